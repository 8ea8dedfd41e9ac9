// Sizes: a model whose inputs have a null axis is traced and compiled for each size that calls
// feed, and the sizes used last are kept. Decides which size a call has and which one to drop. Must
// not know messages: its user gives the functions that compile and drop a size.

import { ArgumentError, ShapeError, type Frames } from './errors.js'
import type { ArrayMessage, GraphMessage } from './protocol.js'
import { describe, wholes } from './tensor.js'
import type { InputShape, InputSpecs, Shape } from './types.js'

export interface SizeOptions {
  /** For inputs with a null axis: the size that the model is traced and compiled for first, and the
   *  default of `train`. Choose the one that most calls have. Default 2, for `train` none. */
  batch?: number
  /** How many other sizes are kept compiled; the one unused for longest is dropped first. Default
   *  8. */
  maxSizes?: number
}

const FIRST = 2, MOST = 8

export interface SizeArguments {
  batch: number
  isDeclared: boolean
  maxSizes: number
}

export function sizeArguments(what: string, options: SizeOptions, family: SizeArguments | null): SizeArguments {
  const { batch = family?.batch ?? FIRST, maxSizes = family?.maxSizes ?? MOST } = options
  const atLeastOne = (name: string, value: unknown): void => {
    if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > 2 ** 31 - 1)
      throw new ArgumentError(`${what}: ${name} is ${typeof value === 'number' ? value : describe(value)}, not a whole number from 1 on`)
  }
  atLeastOne('batch', batch)
  atLeastOne('maxSizes', maxSizes)
  return { batch, isDeclared: options.batch !== undefined || (family?.isDeclared ?? false), maxSizes }
}

/** The shape of a declared input in a trace for that size. */
export function sizedShape(what: string, name: string, shape: unknown, size: number): Shape {
  const label = `the shape of the input ${name}`
  if (!Array.isArray(shape)) return wholes(what, label, shape)
  if (shape.filter((dim) => dim === null).length > 1) throw new ShapeError(`${what}: ${label} has more than one null axis`)
  return wholes(what, label, shape.map((dim: unknown) => (dim === null ? size : dim)))
}

const hasNull = (shape: unknown): shape is InputShape => Array.isArray(shape) && shape.includes(null)
const shapeText = (shape: InputShape): string => `[${shape.map((dim) => dim ?? '?').join(', ')}]`

export interface Sized {
  readonly size: number
  readonly graph: number
  readonly message: GraphMessage
  /** How many data sets have batches of this size. */
  users: number
}

export class Sizes {
  readonly first: Sized
  /** In the order of use, the latest last. `first` is not among them and is never dropped. */
  readonly #others = new Map<number, Sized>()
  #last: Sized

  constructor(
    readonly specs: InputSpecs,
    readonly options: SizeArguments,
    graph: number,
    message: GraphMessage,
    readonly compile: (size: number, what: string, frames: Frames) => Promise<{ graph: number; message: GraphMessage }>,
    readonly drop: (graph: number) => void,
  ) {
    this.first = this.#last = { size: options.batch, graph, message, users: 0 }
  }

  static areNeeded(specs: InputSpecs): boolean {
    return Object.values(specs).some((spec) => hasNull(spec?.shape))
  }

  get last(): Sized {
    return this.#last
  }
  get graphs(): number[] {
    return [...this.#others.values()].map((each) => each.graph)
  }

  /** The size of a call, from its arrays. The core refuses those that do not fit. */
  sizeOf(what: string, feeds: readonly ArrayMessage[]): number {
    let found: { size: number; label: string } | null = null
    for (const { name, dtype, data } of feeds) {
      const spec = Object.hasOwn(this.specs, name) ? this.specs[name] : undefined
      if (spec === undefined || !hasNull(spec.shape) || dtype !== (spec.dtype ?? 'f32')) continue
      const label = `input ${name}${shapeText(spec.shape)}`
      const row = spec.shape.reduce<number>((count, dim) => count * (dim ?? 1), 1), size = data.length / row
      if (size < 1 || !Number.isInteger(size)) throw new ShapeError(`${what}: ${label} takes a multiple of ${row} elements, fed ${data.length}`)
      if (found !== null && found.size !== size)
        throw new ShapeError(`${what}: ${found.label} is fed with a size of ${found.size}, ${label} with ${size}`)
      found = { size, label }
    }
    return found?.size ?? this.first.size
  }

  /** Returns the size at once if it is compiled. Else compiles it, and then may drop another.
   *  Compiles one at a time: a call that comes meanwhile asks again. */
  get(size: number, what: string, frames: Frames): Sized | Promise<Sized> {
    const known = size === this.first.size ? this.first : this.#others.get(size)
    return known !== undefined ? this.#use(known) : this.#add(size, what, frames)
  }
  async #add(size: number, what: string, frames: Frames): Promise<Sized> {
    const { graph, message } = await this.compile(size, what, frames)
    const made = this.#use({ size, graph, message, users: 0 })
    for (const each of this.#others.values()) {
      if (this.#others.size <= this.options.maxSizes) break
      if (each === made || each.users > 0) continue
      this.#others.delete(each.size)
      this.drop(each.graph)
    }
    return made
  }
  #use(sized: Sized): Sized {
    this.#last = sized
    if (sized === this.first) return sized
    this.#others.delete(sized.size)
    this.#others.set(sized.size, sized)
    return sized
  }
}
