// Tracing a model to be compiled: checks and copies its options, writes its graph as bytes, and
// makes its IR on demand. Runs on the page. Must not know a worker.

import type { CompileGraphOptions, CompileOptions, Forward } from './compile-types.js'
import { ArgumentError, blameOnce, holdFrames, siteOf, type Frames } from './errors.js'
import { Graph, irOf, markParams, materialize, type CompiledIR, type IROptions } from './ir.js'
import { Module } from './module.js'
import { chooseOptimizer, optimizers, type Optimizers } from './optimizer.js'
import { anything, callback, check, checkOptions, describe, flag, record, text, type Hints, type Kind, type Kinds } from './options.js'
import { pause } from './pause.js'
import { coreNow } from './platform.js'
import { sizedShape, Sizes } from './sizes.js'
import { traceGraph, type Trace } from './tensor.js'
import type { Dtype, InputSpecs } from './types.js'
import { warn } from './warnings.js'

// ---------------------------------------------------------------- options

const powerOfTwo: Kind = { text: 'a power of two from 1 to 2^24', is: (value: unknown) => typeof value === 'number' && Number.isInteger(Math.log2(value)) && value >= 1 && value <= 2 ** 24 }
export const sized: Kinds = { inputs: record, batch: anything, maxSizes: anything }
const runtime: Kinds = { seed: anything, device: anything, adapter: text, noFusion: flag, checkFinite: flag, precision: anything, lossScale: powerOfTwo, threads: anything, onWarning: callback }
export const average: Kinds = { average: flag }
export const ofForward: Kinds = { ...sized, ...runtime }
const patterns: Kind = { text: 'a pattern for names of parameters, or an array of them', is: (value: unknown) => typeof value === 'string' || Array.isArray(value) }
export const ofModule: Kinds = { ...ofForward, frozen: patterns, ...optimizers }
export const ofGraph: Kinds = { ...runtime, training: flag, ...optimizers }
const optimizerHint = 'the optimizer goes by its name: { adam: { lr: 0.001 } }'
const hints: Hints = { optimizer: optimizerHint, lr: optimizerHint, learningRate: optimizerHint, weightDecay: optimizerHint }

/** Copies everything: other sizes are traced from the options later, and the caller may have
 *  changed the object by then. */
export function ownOptions<O extends CompileOptions | CompileGraphOptions>(what: string, above: unknown, options: O, kinds: Kinds): O {
  return check(above, () => {
    const own: CompileOptions = { ...checkOptions(what, options, kinds, hints) }
    if (own.inputs !== undefined) own.inputs = Object.fromEntries(Object.entries(own.inputs).map(([name, spec]) => [name, ownInput(what, name, spec)]))
    for (const name of ['batch', 'maxSizes'] as const)
      if (own[name] !== undefined && !Sizes.areNeeded(own.inputs ?? {})) throw new ArgumentError(`${what}: ${name} is for inputs with a null axis, and there is none`)
    if (Array.isArray(own.frozen)) own.frozen = [...own.frozen]
    return own as O
  })
}

function ownInput(what: string, name: string, spec: InputSpecs[string]): InputSpecs[string] {
  if (!record.is(spec as never)) throw new ArgumentError(`${what}: the input ${name} is ${describe(spec)}, not { shape, dtype }`)
  const { shape, ...more } = checkOptions(`${what}: the input ${name}`, spec, { shape: anything, dtype: anything })
  return { ...more, shape: Array.isArray(shape) ? [...shape] : shape }
}

export interface Plan<M extends Module> {
  what: string
  above: unknown
  factory: (() => M) | null
  options: CompileOptions & Optimizers
}

export function checkFunctions(what: string, factory: unknown, forward: unknown): void {
  if (typeof factory !== 'function')
    throw new ArgumentError(`${what}: the factory is ${describe(factory)}, not a function that makes the model`)
  if (factory.prototype instanceof Module)
    throw new ArgumentError(`${what}: the factory is the class ${factory.name} itself: give a function that makes one: () => new ${factory.name}()`)
  if (typeof forward !== 'function') throw new ArgumentError(`${what}: forward is ${describe(forward)}, not a function`)
}

export function checkGraph(graph: unknown): void {
  if (!(graph instanceof Graph)) throw new ArgumentError(`compileGraph: takes a graph made by trace, not ${describe(graph)}`)
}

// ---------------------------------------------------------------- tracing

/** Runs body. Its errors get the frames of the compile call, unless they already have frames of the
 *  user. */
export async function checked<R>(frames: Frames, body: () => R | Promise<R>): Promise<R> {
  try {
    return await body()
  } catch (error) {
    throw blameOnce(error, frames)
  }
}

const NO_OPTIMIZER =
  'there is no optimizer: a step computes loss and gradients and changes nothing: give one, as in { adam: { lr: 0.001 } }'

/** Traces and writes the graph in slices, so that the page can draw between them. */
export async function writtenModel<M extends Module>(
  plan: Plan<M>,
  forward: Forward<M, InputSpecs>,
  frames: Frames,
  keepInit: boolean,
  training: boolean,
  size: number,
): Promise<Uint8Array<ArrayBuffer>> {
  await pause()
  const trace = traceModel(plan, forward, frames, keepInit, training, size)
  await pause()
  if (training && keepInit && !trace.changes && chooseOptimizer(plan.options).config === null)
    warn(plan.options.onWarning, `${plan.what}: ${NO_OPTIMIZER}`, siteOf(frames()))
  await trace.settleSitesSlowly()
  const bytes = coreNow().writeGraph(trace.graph)
  await pause()
  return bytes
}

/** Traces parameters first (in the order of the walk), then inputs, then forward. */
function traceModel<M extends Module>(
  plan: Plan<M>,
  forward: Forward<M, InputSpecs>,
  frames: Frames,
  keepInit: boolean,
  training: boolean,
  size: number,
): Trace {
  const { config } = chooseOptimizer(plan.options)
  const build = (trace: Trace) => {
    const site = trace.site(() => siteOf(frames()))
    const model = (plan.factory as () => M)()
    materialize(trace, model, { frozen: plan.options.frozen }, keepInit)
    markParams(trace.graph, config)
    const inputs = Object.entries(plan.options.inputs ?? {}).map(([name, spec]) => {
      const shape = sizedShape(plan.what, name, (spec as { shape?: unknown } | undefined)?.shape, size)
      return [name, trace.tensor(coreNow().input(site, trace.graph, name, shape, dtypeArgument(plan.what, name, spec.dtype)))] as const
    })
    return forward(model, Object.fromEntries(inputs))
  }
  return traceGraph(frames, build, training)
}

function dtypeArgument(what: string, name: string, dtype: Dtype = 'f32'): Dtype {
  if (dtype === 'f32' || dtype === 'i32' || dtype === 'bool') return dtype
  throw new ArgumentError(`${what}: the dtype of the input ${name} is ${describe(dtype)}, not 'f32', 'i32' or 'bool'`)
}

// ---------------------------------------------------------------- the IR

/** Where a model's IR comes from. */
export interface Source {
  /** `above`: the getter that the user reads. */
  ir(above: unknown): CompiledIR
}

/** The source of a model that was traced from its factory. Initial values are left out. */
export function sourceOf<M extends Module>(plan: Plan<M>, forward: Forward<M, InputSpecs>, training: boolean, size: number): Source {
  return {
    ir(above) {
      const frames = holdFrames(above), { kind, config } = chooseOptimizer(plan.options)
      const graph = new Graph(traceModel(plan, forward, frames, false, training, size))
      return irOf(above, graph, config === null ? { training } : { training, [kind]: config })
    },
  }
}
/** The same for a graph traced by hand. */
export const graphSource = (graph: Graph, options: IROptions): Source => ({ ir: (above) => irOf(above, graph, options) })
