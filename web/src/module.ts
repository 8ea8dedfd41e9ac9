// Modules: classes whose fields are parameters, other modules, and arrays of these. Owns the walk
// that gives every parameter its dotted name. Must not know a graph: a parameter here is a
// declaration, which each trace turns into a node.

import { ArgumentError, holdFrames, TraceError } from './errors.js'
import type { Init } from './init.js'
import { anything, check, checkOptions, finite, flag, type Kinds } from './options.js'
import { Parameter, isForeignTensor, isInTrace, wholes, type Tensor } from './tensor.js'
import type { Dtype, Shape } from './types.js'

const BRAND = Symbol.for('tensorgrad.module')

export interface ParamOptions {
  /** Parameters are f32. */
  dtype?: Dtype
  /** Default 'randn' with std 0.02. */
  init?: Init
  /** Whether weight decay acts on it. Default true, except for zeros and ones. */
  decay?: boolean
  /** It has no gradient, and no optimiser changes it. */
  frozen?: boolean
}

/** @internal */
export const ofParam: Kinds = { dtype: anything, init: anything, decay: flag, frozen: flag }

export abstract class Module {
  /** Declares a parameter: keep it in a field (or an array in a field), whose path becomes its
   *  name. */
  protected param(shape: Shape, options: ParamOptions = {}): Tensor {
    const above = this.param
    const own = check(above, () => wholes('param', 'shape', shape))
    return new Parameter(own, check(above, () => checkOptions('param', options, ofParam)), holdFrames(above))
  }
  /** Declares an f32 value that is kept between steps beside the parameters, and first filled with
   *  `init`. Keep it in a field, whose path becomes its name. `writeback` sets its value after a
   *  step. */
  protected state(shape: Shape, options: { init?: number } = {}): Tensor {
    const above = this.state
    const own = check(above, () => wholes('state', 'shape', shape)), { init = 0 } = check(above, () => checkOptions('state', options, { init: finite }))
    return new Parameter(own, {}, holdFrames(above), init)
  }

  /** Freezes its present parameters, also those of its modules: no gradient is computed for them,
   *  nor for values that lead only to them, and no optimiser changes them. false: train them again.
   *  Models compiled from it later are affected. */
  freeze(frozen = true): this {
    check(this.freeze, () => {
      checkOptions('freeze', { frozen }, { frozen: flag })
      const own = [...namedParams(this).keys()]
      if (own.some(isInTrace)) throw new TraceError('freeze: inside the forward function it comes too late: call it where the model is made')
      for (const parameter of own) parameter.options.frozen = frozen
    })
    return this
  }
}
Object.defineProperty(Module.prototype, BRAND, { value: Module })

function isForeignModule(value: object): boolean {
  return BRAND in value && !(value instanceof Module)
}

/** Every parameter and state of a module once, under the first path that reaches it:
 *  "layers.0.attn.q.W". */
export function namedParams(root: Module): Map<Parameter, string> {
  if (!(root instanceof Module)) {
    const foreign = typeof root === 'object' && root !== null && isForeignModule(root)
    throw new ArgumentError(foreign ? anotherCopy('the model') : 'the factory returned something that is no Module')
  }
  const walk = new Walk()
  walk.enter(root, [])
  return walk.names
}

const anotherCopy = (what: string) =>
  `${what} comes from another copy of tensorgrad: the page must load the library once (see the bundler's "dedupe")`

class Walk {
  readonly names = new Map<Parameter, string>()
  readonly #done = new Set<object>() // modules reached before: tied
  readonly #open = new Map<object, string>() // modules on the path to this one, with their own paths

  enter(value: unknown, path: string[]): void {
    if (typeof value !== 'object' || value === null) return
    const name = path.join('.')
    if (value instanceof Parameter) {
      if (!this.names.has(value)) this.names.set(value, name)
    } else if (value instanceof Module || Array.isArray(value)) this.#descend(value, path)
    else if (isForeignModule(value) || isForeignTensor(value)) throw new ArgumentError(anotherCopy(`the field ${name}`))
    else refuseHidden(value, name)
  }

  #descend(value: object, path: string[]): void {
    const name = path.join('.')
    const above = this.#open.get(value)
    if (above !== undefined)
      throw new ArgumentError(`the model contains a cycle: ${name} is ${above === '' ? 'the model itself' : above} again`)
    if (this.#done.has(value)) return
    this.#open.set(value, name)
    for (const key of Object.keys(value)) this.enter((value as Record<string, unknown>)[key], [...path, key])
    this.#open.delete(value)
    this.#done.add(value)
  }
}

// ---------------------------------------------------------------- what must not hide parameters

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

function containerName(value: object): string | null {
  if (value instanceof Map) return 'a Map'
  if (value instanceof Set) return 'a Set'
  return isPlain(value) ? 'a plain object' : null
}

function contents(value: object): unknown[] {
  if (value instanceof Map) return [...value.keys(), ...value.values()]
  if (value instanceof Set || Array.isArray(value)) return [...value]
  return Object.values(value)
}

function holdsParams(value: unknown, seen: Set<object>): boolean {
  if (typeof value !== 'object' || value === null || seen.has(value)) return false
  seen.add(value)
  if (value instanceof Parameter || value instanceof Module) return true
  if (containerName(value) === null && !Array.isArray(value)) return false
  return contents(value).some((item) => holdsParams(item, seen))
}

function refuseHidden(value: object, name: string): void {
  const container = containerName(value)
  if (container === null || !holdsParams(value, new Set())) return
  throw new ArgumentError(`the field ${name} hides parameters in ${container}: keep modules and parameters in fields or arrays`)
}
