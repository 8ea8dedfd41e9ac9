// Tensors and traces: the operands and results of operations while a forward function runs. Owns
// how every call reaches the core and every failure reaches the user's line. Must not know an
// operation by name.

import { dtypeArrays, dtypes, type OpName, type OpNumbers } from './boundary.gen.js'
import type { Core, CoreOperand, GraphAddress } from './core.js'
import {
  ArgumentError, blame, blameOnce, holdSite, siteOf, TraceError, UnsupportedError, type Frames, type HeldSite,
} from './errors.js'
import { initNumbers } from './init.js'
import type { ParamOptions } from './module.js'
import { describe } from './options.js'
import { inSlices } from './pause.js'
import { coreNow } from './platform.js'
import { forgetSites, numberSite, settled, siteText, toCore, type CoreSite } from './sites.js'
import type { DataArray, Dtype, Shape } from './types.js'

export { describe }

const BRAND = Symbol.for('tensorgrad.tensor')

// ---------------------------------------------------------------- tensors

/** A value in a trace: it has a shape and a dtype, but no numbers yet. */
export class Tensor {
  readonly shape: Shape
  readonly dtype: Dtype
  /** @internal Null for a parameter that a module declares: each trace has its own node for it. */
  readonly trace: Trace | null
  /** @internal The number in the core, from 1; 0 means none. */
  readonly node: number

  /** @internal */
  constructor(trace: Trace | null, node: number, shape: Shape, dtype: Dtype) {
    this.trace = trace
    this.node = node
    this.shape = shape
    this.dtype = dtype
  }

  /** Its index in `graph.tensors` and `graph.ops`; -1 for a module's parameter, which has one in
   *  each trace. */
  get id(): number {
    return this.node - 1
  }
  toString(): string {
    return `Tensor ${this.dtype}[${this.shape.join(', ')}]`
  }
  toJSON(): string {
    return this.toString()
  }
  /** @internal Shown by Node's console.log. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString()
  }
  /** @internal Called by `x > 0`, `x * 2`, `x == y`, which JavaScript cannot turn into
   *  operations. */
  [Symbol.toPrimitive](hint: string): string {
    if (hint === 'string') return this.toString()
    throw blame(new TraceError(`${this} is no number while it is traced: write greater(x, 0) for x > 0 (less, equal, ...), ` +
      'add(x, 1) or mul(x, 2) for x + 1 or x * 2, and where(c, a, b) for c ? a : b'), this[Symbol.toPrimitive])
  }
}
Object.defineProperty(Tensor.prototype, BRAND, { value: true })

/** @internal A parameter, or a state, as a module declares it. */
export class Parameter extends Tensor {
  constructor(
    shape: Shape,
    readonly options: ParamOptions,
    readonly frames: Frames,
    /** The first value of a state; null for a parameter. */
    readonly stateValue: number | null = null,
  ) {
    super(null, 0, shape, options.dtype ?? 'f32')
  }

  readonly heldSite: HeldSite = () => siteOf(this.frames())
}

/** Whether it is a tensor of another copy of this library. */
export function isForeignTensor(value: object): boolean {
  return BRAND in value && !(value instanceof Tensor)
}

// ---------------------------------------------------------------- traces

/** One graph, while and after it is traced. Tensors hold their trace, and the graph lives as long
 *  as the trace, so that messages can name where a tensor of another trace comes from. */
export class Trace {
  /** Parameters of modules, as nodes of this trace. */
  readonly params = new Map<Parameter, Tensor>()
  /** All parameters, in the order they were made. */
  readonly named: { name: string; tensor: Tensor; frozen: boolean }[] = []
  /** Further results, besides the graph's, as tensors. */
  more: number[] = []
  /** The trace itself makes a step change something. */
  changes = false
  /** The trace threw, and its graph is gone. */
  failed = false
  /** Sites that are still numbers in the graph. */
  readonly #sites: CoreSite[]
  constructor(
    readonly graph: GraphAddress,
    sites: CoreSite[],
    /** Traced for training, as far as the library can tell; nn.Dropout uses it. */
    readonly training: boolean,
  ) {
    this.#sites = sites
  }

  /** A site for the next node, resolved when it is needed. */
  site(held: HeldSite): CoreSite {
    const site = numberSite(held)
    this.#sites.push(site)
    return site
  }

  /** Replaces the numbers in the graph by files and lines. */
  settleSites(): void {
    if (this.#sites.length === 0) return
    coreNow().settleSites(this.graph, this.#sites, this.#sites.map(settled))
    forgetSites(this.#sites)
    this.#sites.length = 0
  }
  /** The same, with pauses. */
  async settleSitesSlowly(): Promise<void> {
    await inSlices(this.#sites, settled)
    this.settleSites()
  }

  tensor(id: number): Tensor {
    const core = coreNow()
    return new Tensor(this, id, Object.freeze(core.shapeOf(this.graph, id)), core.dtypeOf(this.graph, id))
  }

  /** Makes the node of a module's parameter. */
  declare(parameter: Parameter, name: string, decay: boolean | undefined, keepInit: boolean, frozen: boolean): Tensor {
    const { shape, frames } = parameter, options = frozen ? { ...parameter.options, frozen } : parameter.options
    try {
      if (parameter.stateValue !== null) {
        const made = coreNow().state(this.site(parameter.heldSite), this.graph, name, parameter.shape, 'f32', parameter.stateValue)
        const state = this.tensor(made)
        this.params.set(parameter, state)
        return state
      }
      if ((options.dtype ?? 'f32') !== 'f32') throw new ArgumentError(`param ${name}: parameters are f32, not ${options.dtype}`)
      const tensor = this.makeParam(this.site(parameter.heldSite), name, shape, keepInit ? options : { ...options, init: 'zeros' }, decay)
      this.params.set(parameter, tensor)
      return tensor
    } catch (error) {
      throw blame(error as Error, null, frames())
    }
  }

  makeParam(site: CoreSite, name: string, shape: Shape, options: ParamOptions, decay = options.decay): Tensor {
    const { kind, scale, data, decays } = initNumbers(options.init)
    const tensor = this.tensor(coreNow().param(site, this.graph, name, shape, kind, scale, data, decay ?? decays, options.frozen))
    this.named.push({ name, tensor, frozen: options.frozen ?? false })
    return tensor
  }
}

let current: Trace | null = null
const graphs = new FinalizationRegistry<{ core: Core; graph: GraphAddress; sites: CoreSite[] }>(({ core, graph, sites }) => {
  core.destroyGraph(graph)
  forgetSites(sites)
})

function checkBuilt(built: unknown): { graph: GraphAddress; id: number } {
  if (built instanceof Tensor) return tensorOperand('trace', built, 'the result')
  const isPromise = typeof (built as { then?: unknown } | null | undefined)?.then === 'function'
  if (isPromise) throw new TraceError('trace: the forward function is async: it must return its tensor, not a promise of one')
  const foreign = typeof built === 'object' && built !== null && isForeignTensor(built)
  throw new TraceError(
    foreign
      ? `trace: ${anotherCopy('the tensor that the forward function returned')}`
      : `trace: the forward function returned ${describe(built)}, not a tensor`,
  )
}

function run(trace: Trace, build: (trace: Trace) => unknown): { graph: GraphAddress; id: number } {
  current = trace
  try {
    return checkBuilt(build(trace))
  } finally {
    current = null
  }
}

/** Runs build in a new trace. Throws what build throws. */
export function traceGraph(frames: Frames, build: (trace: Trace) => unknown, training = true): Trace {
  refuseNested(frames)
  const core = coreNow()
  const sites: CoreSite[] = []
  let trace: Trace | null = null as Trace | null
  try {
    core.trace((graph) => run((trace = new Trace(graph, sites, training)), build))
  } catch (error) {
    if (trace !== null) trace.failed = true
    forgetSites(sites)
    throw blameOnce(error, frames)
  }
  const made = trace as Trace
  graphs.register(made, { core, graph: made.graph, sites })
  return made
}

interface Reentry {
  traceInto(graph: GraphAddress, build: (graph: GraphAddress) => { graph: GraphAddress; id: number }): void
}

/** Continues a trace that has ended; what build returns becomes the graph's result. */
export function traceMore(frames: Frames, trace: Trace, build: (trace: Trace) => unknown): void {
  refuseNested(frames)
  try {
    const core = coreNow() as Core & Partial<Reentry>
    if (core.traceInto === undefined) throw new UnsupportedError('trace: this build of the core cannot go on with a trace that has ended')
    core.traceInto(trace.graph, () => run(trace, build))
  } catch (error) {
    throw blameOnce(error, frames)
  }
}

export function refuseNested(frames: Frames): void {
  if (current === null) return
  throw blameOnce(new TraceError('trace: another trace is in progress: a forward function cannot trace or compile'), frames)
}

/** Whether the trace in progress has made a node of it. */
export const isInTrace = (parameter: Parameter): boolean => current?.params.has(parameter) ?? false
export const isTracing = (): boolean => current !== null

export function currentTrace(op: string): Trace {
  if (current === null) throw new TraceError(`${op}: outside a trace: operations belong inside the forward function`)
  return current
}

// ---------------------------------------------------------------- operands

const anotherCopy = (what: string) => `${what} comes from another copy of tensorgrad: the page must load the library once`

/** The core's operand for a tensor. Throws for anything else. */
export function tensorOperand(op: string, value: unknown, place: string): { graph: GraphAddress; id: number } {
  if (value instanceof Parameter) {
    const node = currentTrace(op).params.get(value)
    if (node !== undefined) return { graph: (node.trace as Trace).graph, id: node.node }
    const where = siteText(value.heldSite())
    throw new TraceError(
      `${op}: ${place} is a parameter [${value.shape.join(', ')}] (made at ${where}) that the traced model does not reach`,
    )
  }
  if (value instanceof Tensor) {
    const trace = value.trace as Trace
    if (trace.failed) throw new TraceError(`${op}: ${place} [${value.shape.join(', ')}] belongs to a trace that failed`)
    return { graph: trace.graph, id: value.node }
  }
  if (typeof value === 'object' && value !== null && isForeignTensor(value)) throw new TraceError(`${op}: ${anotherCopy(place)}`)
  throw new ArgumentError(`${op}: ${place} is ${describe(value)}, not a tensor`)
}

export function numberOrTensor(op: string, value: unknown, place: string): CoreOperand {
  return typeof value === 'number' ? value : tensorOperand(op, value, place)
}

/** Checks the name of a node or a capture. */
export function nameArgument(op: string, name: unknown): string {
  if (typeof name === 'string') return name
  throw new ArgumentError(`${op}: the name is ${describe(name)}, not a string`)
}

/** Checks a whole number, for axes, dims and counts. */
export function whole(op: string, what: string, value: unknown): number {
  if (Number.isSafeInteger(value)) return value as number
  throw new ArgumentError(`${op}: ${what} is ${typeof value === 'number' ? value : describe(value)}, not a whole number`)
}

/** Checks a number, finite or not. */
export function numeric(op: string, what: string, value: unknown): number {
  if (typeof value === 'number') return value
  throw new ArgumentError(`${op}: ${what} is ${describe(value)}, not a number`)
}

export function wholes(op: string, what: string, values: unknown): number[] {
  if (!Array.isArray(values)) throw new ArgumentError(`${op}: ${what} is ${describe(values)}, not an array of numbers`)
  return values.map((value, i) => whole(op, `${what}[${i}]`, value))
}

/** Checks one whole number for all axes, or one for each. */
export function pair(op: string, what: string, value: unknown, axes: 1 | 2, least: number): [number, number] {
  if (!Array.isArray(value)) return pair(op, what, axes === 1 ? [value] : [value, value], axes, least)
  if (value.length !== axes)
    throw new ArgumentError(`${op}: ${what} has ${value.length} numbers, not ${axes}`)
  const numbers = [value[0], value[axes - 1]].map((each) => whole(op, what, each)) as [number, number]
  // 0 would mean the core's default
  for (const number of numbers) if (number < least) throw new ArgumentError(`${op}: ${what} needs to be at least ${least}, not ${number}`)
  return numbers
}

// ---------------------------------------------------------------- calls

/** Runs one public call. The line that called `above` is the site of the call and of its errors. */
export function call<R>(above: unknown, body: (site: CoreSite) => R): R {
  try {
    const held = holdSite(above)
    return body(current === null ? toCore(held()) : current.site(held))
  } catch (error) {
    throw error instanceof Error ? blame(error, above) : error
  }
}

/** Given for an operand that is left out. */
export const NONE = Symbol('none')
/** Operations that take the same numbers as `N`. */
export type OpLike<N extends OpName> = {
  [O in OpName]: OpNumbers[O] extends OpNumbers[N] ? (OpNumbers[N] extends OpNumbers[O] ? O : never) : never
}[OpName]
type Rest<O extends OpName> = {} extends OpNumbers[O] ? [values?: () => OpNumbers[O], mixed?: boolean] : [values: () => OpNumbers[O], mixed?: boolean]

/** The operation `op` of the core. values: its numbers, by name. `mixed`: operands may be numbers,
 *  but at least one is a tensor. */
export function invoke<O extends OpName>(op: O, above: unknown, operands: readonly unknown[], ...rest: Rest<O>): Tensor {
  const [values = () => ({}) as OpNumbers[O], mixed = false] = rest as [(() => OpNumbers[O])?, boolean?]
  return call(above, (site) => {
    const name = publicName(op)
    const place = (i: number) => (operands.length === 1 ? 'the operand' : `operand ${i + 1}`)
    const ids = operands.map((value, i) => (value === NONE ? null : (mixed ? numberOrTensor : tensorOperand)(name, value, place(i))))
    if (!ids.some((id) => typeof id === 'object' && id !== null)) throw new ArgumentError(`${name}: no operand is a tensor: the result would belong to no trace`)
    const id = coreNow().op(op, site, ids, values())
    return currentTrace(name).tensor(id)
  })
}

/** The name in messages of the core: "split_heads". */
const publicName = (op: string) => op.replace(/^nn_/, '').replace(/_(fwd|step)$/, '')

/** A leaf of the trace in progress. */
export function leaf(op: string, above: unknown, make: (site: CoreSite, trace: Trace) => number): Tensor {
  return call(above, (site) => {
    const trace = currentTrace(op)
    return trace.tensor(make(site, trace))
  })
}

export function dtypeOfArray(data: unknown): Dtype | null {
  return dtypes[dtypeArrays.findIndex((array) => data instanceof array)] ?? null
}

/** A copy that owns its memory. */
export function copyOf<A extends DataArray>(data: A): A {
  try {
    return data.slice() as A
  } catch {
    throw new ArgumentError(`the ${describe(data).replace(/^an? /, '')} has no memory any more: it was transferred elsewhere`)
  }
}
