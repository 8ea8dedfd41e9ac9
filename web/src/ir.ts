// The open IR: traces as values, gradients and optimisers appended to them, and what the compiler
// makes of them without a device, so that users can write an optimiser or an op. Must not know a
// worker.

import { planned, coreNow } from './platform.js'
import { Text, type GraphAddress, type GraphInfo, type ModelInfo, type ProgramInfo } from './core.js'
import { ArgumentError, blame, GradientError, holdFrames, NotFoundError, ShapeError } from './errors.js'
import { rateArgument, type LR } from './lr.js'
import { lrFields } from './numbers.js'
import { namedParams, ofParam, type Module, type ParamOptions } from './module.js'
import { chooseOptimizer, optimizerOf, optimizers, type AdamConfig, type OptimizerConfig, type OptimizerKind, type Optimizers, type SGDConfig } from './optimizer.js'
import { anything, callback, checkOptions, flag, record, shown, type Kinds } from './options.js'
import { adamNodes, type AdamResult } from './adam.js'
import { opsOf, tensorsOf, type OpNode, type TensorNode, type WritebackDecl } from './nodes.js'
import { capture, grad, writeback } from './ops.js'
import { call, currentTrace, describe, leaf, nameArgument, Tensor, tensorOperand, traceGraph, traceMore, wholes, type Trace } from './tensor.js'
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

/** A trace that has ended. `traceInto` continues it. */
export class Graph {
  /** @internal */
  readonly trace: Trace
  /** @internal */
  constructor(trace: Trace) {
    this.trace = trace
  }

  #nodes: { count: number; ops: readonly OpNode[]; tensors: readonly TensorNode[] } | null = null

  #info(): GraphInfo {
    return coreNow().describeGraph(this.trace.graph)
  }
  #data(): { ops: readonly OpNode[]; tensors: readonly TensorNode[] } {
    const core = coreNow(), count = this.#info().nodes
    if (this.#nodes?.count !== count) {
      this.trace.settleSites()
      const ops = opsOf(core.graphNodes(this.trace.graph))
      this.#nodes = { count, ops, tensors: tensorsOf(ops) }
    }
    return this.#nodes
  }
  /** Every operation, in the order they were made: `ops[id]` makes `tensors[id]`. */
  get ops(): readonly OpNode[] {
    return this.#data().ops
  }
  get tensors(): readonly TensorNode[] {
    return this.#data().tensors
  }
  /** The result of the traced function; the first if there are several. */
  get result(): Tensor {
    return this.trace.tensor(this.#info().result.id)
  }
  /** All its results, as ids. The second is captured as "output.1", and so on. */
  get outputs(): readonly number[] {
    return [this.#info().result.id, ...this.trace.more].map((node) => node - 1)
  }
  get writebacks(): readonly WritebackDecl[] {
    const { writebacks } = coreNow().graphNodes(this.trace.graph), { ops } = this
    return writebacks.map(([destination, source]) => {
      const { kind, name } = ops[destination] as OpNode
      return { source: { id: source }, destName: name as string, destKind: kind === 'param_input' ? 'param' : 'state' }
    })
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

shown(Graph, ({ ops, params }) => `Graph of ${ops.length} operations (parameters: ${params.map(({ name }) => name).join(', ') || 'none'})`)

const named = (info: { name: string; shape: number[]; dtype: number }): NamedTensor => ({
  name: info.name,
  shape: info.shape,
  dtype: dtypes[info.dtype] as Dtype,
})

// ---------------------------------------------------------------- tracing by hand

function graphArgument(op: string, above: unknown, graph: unknown): void {
  if (!(graph instanceof Graph)) throw blame(new ArgumentError(`${op}: takes a graph, not ${describe(graph)}`), above)
}
function tracedArgument(op: string, above: unknown, fn: unknown): void {
  if (typeof fn !== 'function') throw blame(new ArgumentError(`${op}: takes a function that is traced, not ${describe(fn)}`), above)
}

/** Runs fn in a new trace. Later operations on its tensors need `traceInto`. If fn returns several
 *  tensors, the first is the graph's result, which runs return and gradients differentiate. The
 *  others become captures: "output.1" and so on. */
export function trace(fn: () => Tensor | readonly Tensor[]): Graph {
  tracedArgument('trace', trace, fn)
  return new Graph(
    traceGraph(holdFrames(trace), (made) => {
      const built = fn()
      if (!Array.isArray(built)) return built
      if (built.length === 0) throw new ArgumentError('trace: the function returned no tensor')
      made.more = built.slice(1).map((each: Tensor, i) => {
        const { id } = tensorOperand('trace', each, `result ${i + 2}`)
        capture(`output.${i + 1}`, each)
        return id
      })
      return built[0] as Tensor
    }),
  )
}

/** Continues a graph: fn may use its tensors. What fn returns becomes the graph's result; if it
 *  returns nothing, the result stays. */
export function traceInto<R>(graph: Graph, fn: () => R): R {
  graphArgument('traceInto', traceInto, graph)
  tracedArgument('traceInto', traceInto, fn)
  let made: R | undefined
  traceMore(holdFrames(traceInto), graph.trace, () => {
    made = fn()
    return made instanceof Tensor ? made : graph.result
  })
  return made as R
}

/** A parameter of that name. Parameters are f32; any other dtype is refused. */
export function paramInput(name: string, shape: Shape, options: ParamOptions | Dtype = {}): Tensor {
  return call(paramInput, (site) => {
    const trace = currentTrace('param'), own = checkOptions('param', typeof options === 'string' ? { dtype: options } : options, ofParam)
    if ((own.dtype ?? 'f32') !== 'f32') throw new ArgumentError(`param ${nameArgument('param', name)}: parameters are f32, not ${own.dtype}`)
    return trace.makeParam(site, nameArgument('param', name), wholes('param', 'shape', shape), own)
  })
}

/** A value fed on every step. */
export function tensorInput(name: string, shape: Shape, dtype: Dtype = 'f32'): Tensor {
  return leaf('input', tensorInput, (site, { graph }) => coreNow().input(site, graph, nameArgument('input', name), wholes('input', 'shape', shape), dtype))
}

/** A value kept between steps beside the parameters, first filled with `value`. See `writeback`. */
export function stateInput(name: string, shape: Shape, dtype: Dtype = 'f32', value = 0): Tensor {
  return leaf('state', stateInput, (site, { graph }) => coreNow().state(site, graph, nameArgument('state', name), wholes('state', 'shape', shape), dtype, value))
}

const ofMaterialize: Kinds = { decayFilter: callback, frozen: anything }

export type InitFn = (size?: number, shape?: Shape, seed?: number | bigint) => Float32Array

export interface MaterializedParams {
  /** Every parameter by name. */
  readonly tensors: Readonly<Record<string, Tensor>>
  /** The initial values of each, for a model of that seed (default 0). Size and shape are those of
   *  the parameter. */
  readonly initFns: Readonly<Record<string, InitFn>>
  /** Whether weight decay acts on each. */
  readonly decayFlags: Readonly<Record<string, boolean>>
}

/** Every parameter of a module as a tensor of the trace in progress, by name: the module's fields
 *  can be used in it from now on. */
export function materializeParams(module: Module, options: MaterializeOptions = {}): MaterializedParams {
  return call(materializeParams, () => {
    const own = checkOptions('materialize_params', options, ofMaterialize), trace = currentTrace('param')
    const tensors = materialize(trace, module, own), core = coreNow(), { params } = core.describeGraph(trace.graph)
    const initFns: Record<string, InitFn> = {}, decayFlags: Record<string, boolean> = {}
    for (const name of Object.keys(tensors)) {
      const i = params.findIndex((param) => param.name === name), count = (tensors[name] as Tensor).shape.reduce((a, b) => a * b, 1)
      initFns[name] = (_size, _shape, seed = 0) => coreNow().initialValues(trace.graph, i, count, BigInt(seed))
      decayFlags[name] = (params[i] as GraphParam).decay
    }
    return { tensors, initFns, decayFlags }
  })
}

export interface MaterializeOptions {
  /** Overrides the parameters' decay flags. */
  decayFilter?: ((name: string) => boolean) | undefined
  /** Names of parameters to freeze, whatever their own option is. '*' matches any characters, '?'
   *  any one. */
  frozen?: string | readonly string[] | undefined
}

/** @internal forward: initial values do not matter (a sibling shares those of its parent). */
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

/** The names that match a pattern. Each pattern must match one. */
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
  /** d loss / d parameter by name, for every parameter that is not frozen. */
  readonly paramGrads: Readonly<Record<string, Tensor>>
  readonly loss: Tensor
}

/** The gradients of a loss: a graph's result (they are appended to it), or a tensor of the trace in
 *  progress. */
export function appendGrad(of: Graph | Tensor): GradResult {
  if (!(of instanceof Graph)) return gradients(new Graph(call(appendGrad, () => currentTrace('grad'))), of)
  const loss = of.result
  if (of.trace.more.length > 0)
    throw blame(new GradientError(`grad: the graph has ${of.trace.more.length + 1} results: the loss must be the only one`), appendGrad)
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

/** Appends Adam: gradients, update, writebacks, step counter. Then compile the graph without an
 *  optimiser. Call it once for a graph, after its last parameter. */
export function appendAdam(to: Graph | GradResult | Tensor, config: AdamConfig): void
/** The same for given gradients, changed in any way, as operations of the graph: the states
 *  adam_m_NAME and adam_v_NAME for each, and one adam_t for all. decayFlags (see materializeParams)
 *  comes before the config's decayFilter; without either, a parameter decays as it was declared. */
export function appendAdam(
  graph: Graph, grads: Readonly<Record<string, Tensor>>, tensors: Readonly<Record<string, Tensor>>, config: AdamConfig,
  decayFlags?: Readonly<Record<string, boolean>>,
): AdamResult
export function appendAdam(
  to: Graph | GradResult | Tensor, given: AdamConfig | Readonly<Record<string, Tensor>>, tensors?: Readonly<Record<string, Tensor>>,
  config?: AdamConfig, decayFlags: Readonly<Record<string, boolean>> = {},
): AdamResult | void {
  if (tensors === undefined) return append(appendAdam, to, 'adam', given as AdamConfig)
  const graph = to as Graph
  graphArgument('appendAdam', appendAdam, graph)
  for (const [what, value] of Object.entries({ 'the gradients are': given, 'the tensors are': tensors, 'decayFlags is': decayFlags }))
    if (!record.is(value as never)) throw blame(new ArgumentError(`appendAdam: ${what} ${describe(value)}, not an object`), appendAdam)
  const own = call(appendAdam, () => configOf('adam', config))
  for (const option of ['groups', 'clipNorm', 'clipValue', 'normalize', 'skipNonFinite', 'accumulate', 'average'] as const)
    if (own[option] !== undefined)
      throw blame(new ArgumentError(`appendAdam: ${option} is for an optimizer of the compiler's own: change the gradients instead`), appendAdam)
  const declared = Object.fromEntries(graph.params.map(({ name, decay }) => [name, decay]))
  const decays = (name: string): boolean => decayFlags[name] ?? own.decayFilter?.(name) ?? declared[name] ?? true
  const state = (name: string, like: Tensor | null): Tensor => stateInput(name, like?.shape ?? [], like === null ? 'i32' : 'f32')
  const body = (): readonly WritebackDecl<Tensor>[] => {
    const writebacks = adamNodes(given as Readonly<Record<string, Tensor>>, tensors, own, decays, state, (t) => resolveLR(own.lr, t))
    writeBack(graph, writebacks)
    return writebacks
  }
  return { config: own, writebacks: isTracing(graph) ? body() : inGraph(appendAdam, graph, body) }
}

/** The configuration of an optimizer that must be given. */
function configOf(kind: OptimizerKind, config: OptimizerConfig | undefined): OptimizerConfig & AdamConfig {
  if (config === undefined) throw new ArgumentError(`${kind}: the options are undefined`)
  return chooseOptimizer({ [kind]: config }).config as OptimizerConfig & AdamConfig
}

/** Runs fn in a graph, whose result stays. */
function inGraph<R>(above: unknown, graph: Graph, fn: () => R): R {
  const { result } = graph
  let made: R | undefined
  traceMore(holdFrames(above), graph.trace, () => {
    made = fn()
    return result
  })
  return made as R
}

/** Writes, in the trace in progress, those writebacks that the graph does not have yet. */
function writeBack(graph: Graph, declared: readonly WritebackDecl<Tensor>[]): void {
  const have = new Map(graph.writebacks.map(({ destKind, destName, source }) => [`${destKind} ${destName}`, source.id]))
  for (const { source, destName, destKind } of declared) {
    const key = `${destKind} ${destName}`, kind = destKind === 'param' ? 'param_input' : 'state_input'
    if (have.get(key) === source.id) continue
    const home = graph.ops.find((op) => op.kind === kind && op.name === destName)
    if (home === undefined) throw new NotFoundError(`writeback: the graph has no ${destKind} ${JSON.stringify(destName)}`)
    writeback(graph.trace.tensor(home.out + 1), source)
  }
}

export function appendSGD(to: Graph | GradResult | Tensor, config: SGDConfig): void {
  append(appendSGD, to, 'sgd', config)
}

/** The same for any optimiser: `appendOptimizer(loss, { lion: { lr: 0.001 } })`. */
export function appendOptimizer(to: Graph | GradResult | Tensor, options: Optimizers): void {
  const { kind, config } = call(appendOptimizer, () => chooseOptimizer(checkOptions('append_optimizer', options, optimizers)))
  if (config === null) throw blame(new ArgumentError('append_optimizer: the optimizer is missing'), appendOptimizer)
  append(appendOptimizer, to, kind, config)
}

function append(above: unknown, to: Graph | GradResult | Tensor, kind: OptimizerKind, config: OptimizerConfig): void {
  const optimizer = call(above, () => optimizerOf(kind, configOf(kind, config)))
  if (!(to instanceof Graph || to instanceof Tensor || (to as GradResult | null | undefined)?.graph instanceof Graph))
    throw blame(new ArgumentError(`append_optimizer: takes a graph, what appendGrad gives, or a loss, not ${describe(to)}`), above)
  const loss = to instanceof Graph ? to.result : to instanceof Tensor ? to : to.loss
  const graph = to instanceof Graph ? to : to instanceof Tensor ? null : to.graph
  const body = () =>
    call(above, (site) => {
      const operand = tensorOperand('append_optimizer', loss, 'the loss')
      markParams(graph?.trace.graph ?? currentTrace('append_optimizer').graph, config)
      coreNow().appendOptimizer(site, operand, optimizer)
      currentTrace('append_optimizer').changes = true
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

/** @internal Writes into the graph what the optimiser's decayFilter and groups mean for its
 *  parameters. */
export function markParams(graph: GraphAddress, config: OptimizerConfig | null): void {
  const core = coreNow(), decayFilter = config?.decayFilter
  if (decayFilter !== undefined) core.describeGraph(graph).params.forEach(({ name }, i) => core.setDecay(graph, i, decayFilter(name)))
  core.unmark(graph)
  for (const group of config?.groups ?? []) core.markGroup(graph, group)
}

/** The rate at step t = 1, 2, ...: a number for a number, an f32 rank-0 tensor for an i32 rank-0
 *  tensor. */
export function resolveLR(schedule: LR, step: number): number
export function resolveLR(schedule: LR, step: Tensor): Tensor
export function resolveLR(schedule: LR, step: number | Tensor): number | Tensor {
  return call<number | Tensor>(resolveLR, (site) => {
    const fields = lrFields(rateArgument('resolve_lr', schedule))
    if (typeof step === 'number') return coreNow().lrValue(fields, step)
    const id = coreNow().op('resolve_lr', site, [tensorOperand('resolve_lr', step, 'the step')], { schedule: fields })
    return currentTrace('resolve_lr').tensor(id)
  })
}

// ---------------------------------------------------------------- what the compiler makes of it

export interface IROptions extends Optimizers {
  /** Training: differentiate the result (rank 0) and keep the gradients. Default: whether the
   *  result is rank 0. */
  training?: boolean
}

export interface BufferSpec {
  /** Its index in the plan's list. */
  readonly id: number
  readonly kind: 'param' | 'param_grad' | 'tensor_input' | 'state' | 'intermediate' | 'output' | 'constant'
  /** The name of a parameter, its gradient, an input or a state; else null. */
  readonly name: string | null
  readonly byteSize: number
  readonly dtype: Dtype
  /** Null if it has no name. */
  readonly shape: Shape | null
  readonly storage: 'workspace' | 'input' | 'state' | 'constant'
  readonly count: number
  /** Bytes within the workspace or the state. */
  readonly offset: number
}
/** First the buffers that kernels bind, then the parameters and gradients by name, which are parts
 *  of two flat states. A step's kernels write parameters and states in place: `writebacks` lists
 *  them. Values within a kernel have no buffer. */
export interface BufferPlan {
  readonly buffers: readonly BufferSpec[]
  /** Buffers by name. */
  readonly paramsByName: ReadonlyMap<string, number>
  readonly paramGradsByName: ReadonlyMap<string, number>
  readonly inputsByName: ReadonlyMap<string, number>
  readonly statesByName: ReadonlyMap<string, number>
  readonly outputBufferIds: readonly number[]
  readonly writebacks: readonly PlannedWriteback[]
  readonly workspaceBytes: number
  readonly peakBytes: number
  readonly text: string
}
export interface PlannedWriteback {
  readonly destName: string
  readonly destKind: 'param' | 'state'
  readonly bytes: number
}
/** One dispatch: a kernel, or several that start together. */
export interface KernelSpec {
  /** The operation that it is named for. */
  readonly opKind: string
  readonly label: string
  readonly wgsl: string
  readonly workgroups: readonly [number, number, number]
  readonly workgroupSize: number
  /** Invocations, including those beyond the last element. */
  readonly threads: number
  /** Buffers of the plan by binding. A number below 0 is a whole block: -1 scratch, -2 the
   *  workspace, -3 the inputs, -4 the constants, -5 - s state s. */
  readonly bindings: readonly number[]
}
export interface CompiledIR {
  readonly graph: Graph
  /** Empty unless the graph is a training graph. */
  readonly paramGrads: Readonly<Record<string, Tensor>>
  /** The result. */
  readonly loss: Tensor
  readonly outputShape: Shape
  readonly paramNames: readonly string[]
  readonly plan: BufferPlan
  readonly kernels: readonly KernelSpec[]
  /** The IR after the passes, training nodes included. */
  readonly text: string
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
      checkFinite: false,
      precision: 'f32',
      lossScale: 0,
      optimizer: config === null ? null : optimizerOf(kind, config),
    })
    try {
      const program = planned[0] // the model's own; a program that checks computed indices may follow
      if (program === undefined) throw new ArgumentError('the graph gives no program')
      return { program, info: core.describeModel(model), plan: core.modelText(model, Text.plan), ir: core.modelText(model, Text.ir) }
    } finally {
      core.destroyModel(model)
    }
  })
}

/** The graph and options of a plan: its kernels are made from the same. */
const plannedWith = new WeakMap<BufferPlan, { graph: Graph; options: IROptions }>()

function bufferPlan(graph: Graph, options: IROptions, { program, info, plan }: Planned, grads: readonly string[]): BufferPlan {
  const flat = (slot: number): BufferSpec['kind'] => (slot === info.parameters ? 'param' : slot === info.gradients ? 'param_grad' : 'state')
  const shapes = new Map([...graph.inputs, ...graph.states].map(({ name, shape }) => [name, shape]))
  const outputs = new Set(program.outputs.map(({ buffer }) => buffer))
  const buffers: BufferSpec[] = program.buffers.map(([storage, number, count, offset, slot], id) => {
    const dtype = dtypes[number] as Dtype
    const name = (storage === 1 ? program.inputs[slot]?.name : storage === 2 ? info.states[slot]?.name : null) ?? null
    const kind = storage === 1 ? 'tensor_input' : storage === 2 ? flat(slot) : storage === 3 ? 'constant' : outputs.has(id) ? 'output' : 'intermediate'
    const shape = name === null ? null : (shapes.get(name) ?? [count])
    return { id, kind, name, byteSize: 4 * count, dtype, shape, storage: storages[storage] as BufferSpec['storage'], count, offset }
  })
  const byName = (kind: BufferSpec['kind']) => new Map(buffers.filter((each) => each.kind === kind).map(({ name, id }) => [name as string, id]))
  const inputsByName = byName('tensor_input'), statesByName = byName('state')
  const views = (kind: 'param' | 'param_grad', names: readonly string[]): ReadonlyMap<string, number> =>
    new Map(info.params.filter(({ name }) => names.includes(name)).map(({ name, shape, count, offset }) => {
      const id = buffers.push({ id: buffers.length, kind, name, byteSize: 4 * count, dtype: 'f32', shape, storage: 'state', count, offset: 4 * offset }) - 1
      return [name, id]
    }))
  const made: BufferPlan = {
    buffers, inputsByName, statesByName, paramsByName: views('param', info.params.map(({ name }) => name)),
    paramGradsByName: info.gradients < 0 ? new Map() : views('param_grad', grads), outputBufferIds: program.outputs.map(({ buffer }) => buffer),
    writebacks: writtenBack(graph, options), workspaceBytes: info.info.workspaceBytes, peakBytes: info.info.peakBytes, text: plan,
  }
  plannedWith.set(made, { graph, options })
  return made
}

function writtenBack(graph: Graph, options: IROptions): PlannedWriteback[] {
  const bytes = (shape: Shape): number => 4 * shape.reduce((a, b) => a * b, 1), { ops } = graph
  const own = graph.writebacks.map(({ source, destName, destKind }) => ({ destName, destKind, bytes: bytes((ops[source.id] as OpNode).shape) }))
  if (chooseOptimizer(options).config === null) return own
  return [...graph.params.filter(({ frozen }) => !frozen).map(({ name, shape }) => ({ destName: name, destKind: 'param' as const, bytes: bytes(shape) })), ...own]
}

const kernelList = ({ program }: Planned): KernelSpec[] =>
  program.stages.map(({ label, source, groups, bindings }) => {
    const wgsl = program.sources[source]?.text as string, size = /@workgroup_size\(([^)]*)\)/.exec(wgsl)?.[1] ?? '1'
    const workgroupSize = size.split(',').reduce((a, part) => a * Math.max(1, parseInt(part)), 1)
    return { opKind: label.split(/[ +(]/)[0] as string, label, wgsl, workgroups: groups, workgroupSize, threads: groups.reduce((a, b) => a * b, workgroupSize), bindings }
  })

const trainable = (graph: Graph): string[] => graph.params.filter(({ frozen }) => !frozen).map(({ name }) => name)

/** Where each value of a step or run is. */
export function planBuffers(graph: Graph, options?: IROptions): BufferPlan
/** The same for a graph whose gradients and update are written out. The plan names the buffers of
 *  `grads` (from appendGrad; {} for a forward pass), and `writebacks` (from appendAdam, or your
 *  own) become part of the graph. */
export function planBuffers(graph: Graph, grads: Readonly<Record<string, Tensor>>, writebacks?: readonly WritebackDecl<Tensor>[]): BufferPlan
export function planBuffers(
  graph: Graph, second: IROptions | Readonly<Record<string, Tensor>> = { training: undefined as never }, writebacks?: readonly WritebackDecl<Tensor>[],
): BufferPlan {
  const above = planBuffers
  graphArgument('planBuffers', above, graph)
  const isPlain = typeof second === 'object' && second !== null
  const isGrads = writebacks !== undefined || (isPlain && Object.values(second).every((value) => value instanceof Tensor))
  if (!isGrads) {
    const options = second as IROptions, result = planGraph('planBuffers', above, graph, options)
    return bufferPlan(graph, options, result, trainable(graph))
  }
  const grads = second as Readonly<Record<string, Tensor>>, names = Object.keys(grads), options = { training: names.length > 0 }
  call(above, () => checkGrads(graph, grads, writebacks ?? []))
  if (writebacks !== undefined && writebacks.length > 0) inGraph(above, graph, () => writeBack(graph, writebacks))
  return bufferPlan(graph, options, planGraph('planBuffers', above, graph, options), names)
}

function checkGrads(graph: Graph, grads: Readonly<Record<string, Tensor>>, writebacks: readonly WritebackDecl<Tensor>[]): void {
  if (!Array.isArray(writebacks)) throw new ArgumentError(`planBuffers: the writebacks are ${describe(writebacks)}, not an array`)
  const shapes = new Map(graph.params.map(({ name, shape }) => [name, shape.join()])), known = [...shapes.keys()].join(', ') || 'none'
  for (const [name, gradient] of Object.entries(grads)) {
    if (!(gradient instanceof Tensor) || gradient.trace !== graph.trace) throw new ArgumentError(`planBuffers: the gradient of ${name} is no tensor of the graph`)
    if (!shapes.has(name)) throw new NotFoundError(`planBuffers: there is no parameter ${name} (parameters: ${known})`)
    if (shapes.get(name) !== gradient.shape.join())
      throw new ShapeError(`planBuffers: the gradient of ${name} is [${gradient.shape.join(', ')}], the parameter [${shapes.get(name)}]`)
  }
  for (const { source, destName } of writebacks)
    if (!(source instanceof Tensor) || source.trace !== graph.trace) throw new ArgumentError(`planBuffers: what goes into ${destName} is no tensor of the graph`)
}

/** The kernels of a step or run, in order. Given a plan: the kernels that it was made for. */
export function emitKernels(graph: Graph, options: IROptions | BufferPlan = {}): KernelSpec[] {
  graphArgument('emitKernels', emitKernels, graph)
  const known = plannedWith.get(options as BufferPlan)
  if (known !== undefined && known.graph !== graph) throw blame(new ArgumentError("emitKernels: the plan is another graph's"), emitKernels)
  return kernelList(planGraph('emitKernels', emitKernels, graph, known?.options ?? (options as IROptions)))
}

/** Everything that compiling gives except a device, at once, without worker or GPU. The gradients
 *  of a training graph are appended to it. */
export function compileToIR(of: Graph | (() => Tensor), options: IROptions = {}): CompiledIR {
  if (!(of instanceof Graph) && typeof of !== 'function')
    throw blame(new ArgumentError(`compileToIR: takes a graph or a function, not ${describe(of)}`), compileToIR)
  return irOf(compileToIR, of instanceof Graph ? of : new Graph(traceGraph(holdFrames(compileToIR), of)), options)
}

/** @internal */
export function irOf(above: unknown, graph: Graph, options: IROptions): CompiledIR {
  const result = planGraph('compileToIR', above, graph, options), loss = graph.result, training = result.info.training
  const plan = bufferPlan(graph, options, result, trainable(graph))
  return {
    graph,
    paramGrads: training ? inGraph(above, graph, () => gradients(graph, loss)).paramGrads : {},
    loss,
    outputShape: result.info.output.shape,
    paramNames: result.info.params.map((param) => param.name),
    plan,
    kernels: kernelList(result),
    text: result.ir,
  }
}
