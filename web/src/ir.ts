// The open IR: traces as values, gradients and optimisers appended to them, and what the compiler makes of them without any device. So that
// an optimiser or an op is user code. Knows no worker.

import { planned, coreNow } from './platform.js'
import { Text, type GraphAddress, type GraphInfo, type ModelInfo, type ProgramInfo } from './core.js'
import { ArgumentError, blame, holdFrames, NotFoundError } from './errors.js'
import { lrNumbers, rateArgument, type LR } from './lr.js'
import { namedParams, ofParam, type Module, type ParamOptions } from './module.js'
import { chooseOptimizer, optimizerNumbers, optimizers, type AdamConfig, type OptimizerConfig, type OptimizerKind, type Optimizers, type SGDConfig } from './optimizer.js'
import { anything, callback, checkOptions, flag, type Kinds } from './options.js'
import { grad } from './ops.js'
import { call, currentTrace, describe, leaf, Tensor, tensorOperand, traceGraph, traceMore, wholes, type Trace } from './tensor.js'
import { dtypes } from './core.js'
import type { Dtype, Shape } from './types.js'

export interface NamedTensor {
  readonly name: string
  readonly shape: Shape
  readonly dtype: Dtype
}
export interface GraphParam {
  readonly name: string
  readonly shape: Shape
  readonly decay: boolean
  readonly frozen: boolean
}

/** A trace that has ended. `traceInto` goes on with it. */
export class Graph {
  /** @internal */
  readonly trace: Trace
  /** @internal */
  constructor(trace: Trace) {
    this.trace = trace
  }

  #info(): GraphInfo {
    return coreNow().describeGraph(this.trace.graph)
  }
  /** What the traced function returned. */
  get result(): Tensor {
    return this.trace.tensor(this.#info().result.id)
  }
  get outputs(): Tensor[] {
    return [this.result]
  }
  get inputs(): NamedTensor[] {
    return this.#info().inputs.map(named)
  }
  get params(): GraphParam[] {
    return this.#info().params
  }
  get states(): NamedTensor[] {
    return this.#info().states.map(named)
  }
  get captures(): NamedTensor[] {
    return this.#info().captures.map(named)
  }
  /** The IR, a line for each node. */
  get text(): string {
    this.trace.settleSites()
    return coreNow().graphText(this.trace.graph)
  }
  /** @internal */
  bytes(): Uint8Array<ArrayBuffer> {
    this.trace.settleSites()
    return coreNow().writeGraph(this.trace.graph)
  }
}

const named = (info: { name: string; shape: number[]; dtype: number }): NamedTensor => ({
  name: info.name,
  shape: info.shape,
  dtype: dtypes[info.dtype] as Dtype,
})

// ---------------------------------------------------------------- tracing by hand

/** Runs fn in a fresh trace. Operations on its tensors need `traceInto` from then on. */
export function trace(fn: () => Tensor): Graph {
  return new Graph(traceGraph(holdFrames(trace), fn))
}

/** Goes on with a graph: fn may use its tensors. What fn returns is the graph's result from now on; nothing leaves it as it is. */
export function traceInto<R extends Tensor | void>(graph: Graph, fn: () => R): R {
  let made: R | undefined
  traceMore(holdFrames(traceInto), graph.trace, () => {
    made = fn()
    return made instanceof Tensor ? made : graph.result
  })
  return made as R
}

/** A parameter of that name. */
export function paramInput(name: string, shape: Shape, options: ParamOptions = {}): Tensor {
  return call(paramInput, (site) => currentTrace('param').makeParam(site, name, wholes('param', 'shape', shape), checkOptions('param', options, ofParam)))
}

/** A value fed on every step. */
export function tensorInput(name: string, shape: Shape, dtype: Dtype = 'f32'): Tensor {
  return leaf('input', tensorInput, (site, { graph }) => coreNow().input(site, graph, name, wholes('input', 'shape', shape), dtype))
}

/** A value kept between steps beside the parameters, first filled with `value`. See `writeback`. */
export function stateInput(name: string, shape: Shape, dtype: Dtype = 'f32', value = 0): Tensor {
  return leaf('state', stateInput, (site, { graph }) => coreNow().state(site, graph, name, wholes('state', 'shape', shape), dtype, value))
}

/** Every parameter of a module as a tensor of the trace in progress, by name: the module's fields can be used in it from now on. */
export function materializeParams(module: Module, options: MaterializeOptions = {}): Record<string, Tensor> {
  return call(materializeParams, () => materialize(currentTrace('param'), module, checkOptions('materialize_params', options, ofModule)))
}

const ofModule: Kinds = { decayFilter: callback, frozen: anything }
export interface MaterializeOptions {
  /** Overrides the parameters' decay flags. */
  decayFilter?: ((name: string) => boolean) | undefined
  /** Names of parameters that are frozen, whatever their own option says: '*' stands for any run of characters, '?' for any one. */
  frozen?: string | readonly string[] | undefined
}

/** @internal forward: initial values do not matter (a sibling shares its parent's). */
export function materialize(trace: Trace, module: Module, options: MaterializeOptions, keepInit = true): Record<string, Tensor> {
  const entries: [string, Tensor][] = [], declared = [...namedParams(module)]
  const names = declared.filter(([parameter]) => parameter.stateValue === null).map(([, name]) => name)
  const frozen = frozenNames(names, options.frozen ?? [])
  for (const [parameter, name] of declared) {
    const isState = parameter.stateValue !== null
    const decay = isState ? undefined : (options.decayFilter?.(name) ?? parameter.options.decay)
    const tensor = trace.declare(parameter, name, decay, keepInit, frozen.has(name))
    if (!isState) entries.push([name, tensor])
  }
  return Object.fromEntries(entries)
}

/** The names that a pattern fits: each must fit one. */
function frozenNames(names: readonly string[], patterns: unknown): Set<string> {
  const fit = new Set<string>()
  for (const pattern of (Array.isArray(patterns) ? patterns : [patterns]) as unknown[]) {
    if (typeof pattern !== 'string' || pattern === '')
      throw new ArgumentError(`compileModule: frozen is ${describe(pattern)}, not a pattern for names of parameters`)
    const escaped = pattern.replaceAll(/[.+^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*').replaceAll('?', '.')
    const those = names.filter((name) => new RegExp(`^${escaped}$`, 's').test(name))
    if (those.length === 0)
      throw new NotFoundError(`compileModule: frozen "${pattern}" matches no parameter (parameters: ${names.join(', ') || 'none'})`)
    for (const name of those) fit.add(name)
  }
  return fit
}

// ---------------------------------------------------------------- gradients, optimisers

export interface GradResult {
  readonly graph: Graph
  /** d loss / d parameter by name, of every parameter that is not frozen. */
  readonly paramGrads: Readonly<Record<string, Tensor>>
  readonly loss: Tensor
}

/** The gradients of the loss: of a graph's result (appended to it), or of a tensor of the trace in progress. */
export function appendGrad(of: Graph | Tensor): GradResult {
  if (!(of instanceof Graph)) return gradients(new Graph(call(appendGrad, () => currentTrace('grad'))), of)
  const loss = of.result
  let result: GradResult | undefined
  traceMore(holdFrames(appendGrad), of.trace, () => {
    result = gradients(of, loss)
    return loss
  })
  return result as GradResult
}

function gradients(graph: Graph, loss: Tensor): GradResult {
  const params = graph.trace.named.filter((param) => !param.frozen)
  const grads = grad(
    loss,
    params.map(({ tensor }) => tensor),
  )
  return { graph, loss, paramGrads: Object.fromEntries(params.map(({ name }, i) => [name, grads[i] as Tensor])) }
}

/** Appends Adam: gradients, update, writebacks, step counter. Compile the graph without an optimiser of its own then. Once a graph, after
 *  its last parameter. */
export function appendAdam(to: Graph | GradResult | Tensor, config: AdamConfig): void {
  append(appendAdam, to, 'adam', config)
}
export function appendSGD(to: Graph | GradResult | Tensor, config: SGDConfig): void {
  append(appendSGD, to, 'sgd', config)
}

/** The same of any optimiser: `appendOptimizer(loss, { lion: { lr: 0.001 } })`. */
export function appendOptimizer(to: Graph | GradResult | Tensor, options: Optimizers): void {
  const { kind, config } = call(appendOptimizer, () => chooseOptimizer(checkOptions('append_optimizer', options, optimizers)))
  if (config === null) throw blame(new ArgumentError('append_optimizer: the optimizer is missing'), appendOptimizer)
  append(appendOptimizer, to, kind, config)
}

function append(above: unknown, to: Graph | GradResult | Tensor, kind: OptimizerKind, config: OptimizerConfig): void {
  const numbers = call(above, () => optimizerNumbers(kind, chooseOptimizer({ [kind]: config }).config as OptimizerConfig))
  const loss = to instanceof Graph ? to.result : to instanceof Tensor ? to : to.loss
  const graph = to instanceof Graph ? to : to instanceof Tensor ? null : to.graph
  const body = () =>
    call(above, (site) => {
      const operand = tensorOperand('append_optimizer', loss, 'the loss')
      markParams(graph?.trace.graph ?? currentTrace('append_optimizer').graph, config)
      coreNow().appendOptimizer(site, operand, numbers)
    })
  if (graph === null || isTracing(graph)) return body()
  traceMore(holdFrames(above), graph.trace, () => {
    body()
    return loss
  })
}

function isTracing(graph: Graph): boolean {
  try {
    return currentTrace('append_optimizer') === graph.trace
  } catch {
    return false
  }
}

/** @internal What the optimiser's decayFilter and groups say of the parameters, written into the graph. */
export function markParams(graph: GraphAddress, config: OptimizerConfig | null): void {
  const core = coreNow(), decayFilter = config?.decayFilter
  if (decayFilter !== undefined) core.describeGraph(graph).params.forEach(({ name }, i) => core.setDecay(graph, i, decayFilter(name)))
  core.unmark(graph)
  for (const group of config?.groups ?? []) core.markGroup(graph, group)
}

/** The rate at step t = 1, 2, ...: of a number as a number, of an i32 rank-0 tensor as an f32 rank-0 tensor. */
export function resolveLR(schedule: LR, step: number): number
export function resolveLR(schedule: LR, step: Tensor): Tensor
export function resolveLR(schedule: LR, step: number | Tensor): number | Tensor {
  return call<number | Tensor>(resolveLR, (site) => {
    const numbers = lrNumbers(rateArgument('resolve_lr', schedule))
    if (typeof step === 'number') return coreNow().lrValue(numbers, step)
    const id = coreNow().op('resolve_lr', site, [tensorOperand('resolve_lr', step, 'the step')], numbers)
    return currentTrace('resolve_lr').tensor(id)
  })
}

// ---------------------------------------------------------------- what the compiler makes of it

export interface IROptions extends Optimizers {
  /** Training: differentiate the result (rank 0) and keep the gradients. Default: whether the result is rank 0. */
  training?: boolean
}

export interface BufferSpec {
  readonly storage: 'workspace' | 'input' | 'state' | 'constant'
  readonly dtype: Dtype
  readonly count: number
  /** Bytes within the workspace or the state. */
  readonly offset: number
}
export interface BufferPlan {
  readonly buffers: readonly BufferSpec[]
  readonly workspaceBytes: number
  readonly peakBytes: number
  readonly text: string
}
/** One dispatch: a kernel, or several that are launched together. */
export interface KernelSpec {
  readonly label: string
  readonly wgsl: string
  readonly workgroups: readonly [number, number, number]
  /** Buffers of the plan by binding; below 0 a whole block: -1 scratch, -2 the workspace, -3 the inputs, -4 the constants, -5 - s state s. */
  readonly bindings: readonly number[]
}
export interface CompiledIR {
  readonly graph: Graph
  readonly outputShape: Shape
  readonly paramNames: readonly string[]
  readonly plan: BufferPlan
  readonly kernels: readonly KernelSpec[]
  /** The IR after the passes, training nodes included. */
  readonly ir: string
}

const storages = ['workspace', 'input', 'state', 'constant'] as const

interface Planned {
  program: ProgramInfo
  info: ModelInfo
  plan: string
  ir: string
}

/** Compiles for a device with the limits that every WebGPU device has. */
function planGraph(what: string, above: unknown, graph: Graph, options: IROptions): Planned {
  const core = coreNow()
  return call(above, () => {
    const own = checkOptions(what, options, { training: flag, ...optimizers }), { kind, config } = chooseOptimizer(own)
    markParams(graph.trace.graph, config)
    const training = own.training ?? (config !== null || graph.result.shape.length === 0)
    planned.length = 0
    const model = core.createModel(graph.bytes(), {
      training,
      seed: 0n,
      device: 'webgpu',
      noFusion: false,
      precision: 'f32',
      lossScale: 0,
      optimizer: config === null ? null : optimizerNumbers(kind, config),
    })
    try {
      const program = planned[0] // the model's own; one that checks computed indices may follow
      if (program === undefined) throw new ArgumentError('the graph gives no program')
      return { program, info: core.describeModel(model), plan: core.modelText(model, Text.plan), ir: core.modelText(model, Text.ir) }
    } finally {
      core.destroyModel(model)
    }
  })
}

const bufferPlan = ({ program, info, plan }: Planned): BufferPlan => ({
  buffers: program.buffers.map(([storage, dtype, count, offset]) => ({
    storage: storages[storage] as BufferSpec['storage'],
    dtype: dtypes[dtype] as Dtype,
    count,
    offset,
  })),
  workspaceBytes: info.info.workspaceBytes,
  peakBytes: info.info.peakBytes,
  text: plan,
})

const kernelList = ({ program }: Planned): KernelSpec[] =>
  program.stages.map((stage) => ({
    label: stage.label,
    wgsl: program.sources[stage.source] as string,
    workgroups: stage.groups,
    bindings: stage.bindings,
  }))

/** Where every value of a step or run lies. */
export function planBuffers(graph: Graph, options: IROptions = {}): BufferPlan {
  return bufferPlan(planGraph('planBuffers', planBuffers, graph, options))
}

/** The kernels of a step or run, in order. */
export function emitKernels(graph: Graph, options: IROptions = {}): KernelSpec[] {
  return kernelList(planGraph('emitKernels', emitKernels, graph, options))
}

/** Everything that compiling gives but a device: no worker, no GPU, at once. */
export function compileToIR(of: Graph | (() => Tensor), options: IROptions = {}): CompiledIR {
  if (!(of instanceof Graph) && typeof of !== 'function')
    throw blame(new ArgumentError(`compileToIR: takes a graph or a function, not ${describe(of)}`), compileToIR)
  const graph = of instanceof Graph ? of : new Graph(traceGraph(holdFrames(compileToIR), of))
  const result = planGraph('compileToIR', compileToIR, graph, options)
  return {
    graph,
    outputShape: result.info.output.shape,
    paramNames: result.info.params.map((param) => param.name),
    plan: bufferPlan(result),
    kernels: kernelList(result),
    ir: result.ir,
  }
}
