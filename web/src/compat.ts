// tensorgrad/compat: the names of version 0.4 over the package of today. Exports everything of
// `tensorgrad`, except that names with another meaning in 0.4 have that meaning. web/COMING-FROM.md
// has the list.

import {
  add, appendAdam, appendGrad, ArgumentError, compileForward as compileForwardNow, compileModule, div, init, latestWins, lr as rates, matmul as matmulFlat,
  matmulBatched, maximum, minimum, Module, mul, nn, norm, replaceModel, resolveLR, sqrt, square, StateError, stateInput, sub, sum, transpose, upsampleNearest,
  cast, writeback, softmaxCausalLast, type AdamConfig, type Captures, type CompiledIR, type CompiledForward as ForwardNow, type CompiledModule, type ConvLayerOptions,
  type DataArray, type Dtype, type Graph, type InputArrays, type InputSpec, type InputSpecs, type InputTensors, type KernelSpec, type LinearOptions, type LossOptions, type LRSchedule,
  type Operand, type OpNode, type Optimizers, type Shape, type Tensor,
} from 'tensorgrad'

export * from 'tensorgrad'
export { loadSafetensors, type SafetensorsData } from './safetensors.js'

// ---------------------------------------------------------------- operations, layers, losses

/** `transpose`. */
export const permute = (x: Tensor, perm: readonly number[]): Tensor => transpose(x, perm)
/** `upsampleNearest`. */
export const nearestUpsample2d = (x: Tensor, factor: number | readonly [number, number]): Tensor => upsampleNearest(x, { factor: factor as number })
/** `minimum`: element by element. */
export const min = (a: Operand, b: Operand): Tensor => minimum(a, b)
/** `maximum`. */
export const max = (a: Operand, b: Operand): Tensor => maximum(a, b)
/** `softmaxCausalLast`. */
export const softmaxCausal = (x: Tensor): Tensor => softmaxCausalLast(x)
/** `matmul`, or `matmulBatched` where b has more than two axes. */
export const matmul = (a: Tensor, b: Tensor): Tensor => (b.shape.length > 2 ? matmulBatched(a, b) : matmulFlat(a, b))
/** `nn.nll`. */
export const nllLoss = (logProbabilities: Tensor, targets: Tensor, options: LossOptions = {}): Tensor => nn.nll(logProbabilities, targets, options)
/** `nn.crossEntropy`. */
export const crossEntropy = (logits: Tensor, targets: Tensor, options: LossOptions = {}): Tensor => nn.crossEntropy(logits, targets, options)
export const { splitHeads, mergeHeads, LayerNorm, RMSNorm, Embedding } = nn

/** `nn.Linear`, its W normal with std 0.02 by default, as in 0.4. */
export class Linear extends nn.Linear {
  constructor(inDim: number, outDim: number, options: LinearOptions = {}) {
    super(inDim, outDim, { init: init.randn(), ...options })
  }
}
/** `nn.Conv2d`, the same. */
export class Conv2d extends nn.Conv2d {
  constructor(inDim: number, outDim: number, kernel: number | readonly [number, number], options: ConvLayerOptions = {}) {
    super(inDim, outDim, kernel as number, { init: init.randn(), ...options })
  }
}

/** Divides every gradient that `which` names (default: all) by its own norm: g / (||g|| + 1e-8). In
 *  a trace. */
export function normalizeGrads(grads: Readonly<Record<string, Tensor>>, which: boolean | ((name: string) => boolean) = true): Record<string, Tensor> {
  const isMeant = (name: string): boolean => (typeof which === 'function' ? which(name) : which)
  return Object.fromEntries(Object.entries(grads).map(([name, g]) => [name, isMeant(name) ? div(g, add(norm(g), 1e-8)) : g]))
}

/** `op.inputs`. */
export const getOpInputs = (op: OpNode): readonly number[] => op.inputs

// ---------------------------------------------------------------- rates

type Falls = { peak: number; final: number; steps: number }
/** 0.4's names of `lr.*`. */
export const lr = {
  ...rates,
  linear: (options: Falls): LRSchedule => rates.linearDecay(options),
  cosineAnnealing: (options: Falls): LRSchedule => rates.cosineDecay(options),
  warmup: (options: { peak: number; steps: number; after: LRSchedule } | { peakLr: number; warmupSteps: number; after: LRSchedule }): LRSchedule =>
    rates.warmup('peak' in options ? { peakLr: options.peak, warmupSteps: options.steps, after: options.after } : options),
  staircase: (options: { peak: number; every: number; gamma: number } | { peak: number; steps: number; factor: number }): LRSchedule =>
    rates.staircase('every' in options ? { peak: options.peak, steps: options.every, factor: options.gamma } : options),
  /** 0.4's milestone m is the first step at the lower rate. */
  multiStep: (options: { peak: number; milestones: readonly number[]; gamma: number } | { peak: number; milestones: readonly number[]; factor: number }): LRSchedule => {
    if (!('gamma' in options)) return rates.multiStep(options)
    const past = options.milestones.filter((m) => m <= 1).length, peak = options.peak * options.gamma ** past, milestones = options.milestones.slice(past).map((m) => m - 1)
    return milestones.length === 0 ? peak : rates.multiStep({ peak, milestones, factor: options.gamma })
  },
}

// ---------------------------------------------------------------- optimisers

interface Clipped {
  lr: LRSchedule
  /** `clipNorm`. */
  clipGradNorm?: number
  /** See `normalizeGrads`. */
  normalizeGrads?: boolean | ((name: string) => boolean)
  decayFilter?: (name: string) => boolean
}
interface Adam extends Clipped {
  beta1?: number
  beta2?: number
  eps?: number
}
export type OptimizerConfig =
  | ({ readonly kind: 'adam' } & Adam)
  | ({ readonly kind: 'adamw'; weightDecay: number } & Adam)
  | ({ readonly kind: 'sgd'; momentum?: number; nesterov?: boolean; weightDecay?: number } & Clipped)

const given = <O extends object>(options: O): O => Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as O

/** Whether the package's own optimiser computes the same. It normalises all gradients together, and
 *  its decay is not part of a momentum. */
const isOwn = (o: OptimizerConfig): boolean => !o.normalizeGrads && !(o.kind === 'sgd' && Boolean(o.weightDecay) && Boolean(o.momentum))

function adamConfig(o: Exclude<OptimizerConfig, { kind: 'sgd' }>): AdamConfig {
  const weightDecay = o.kind === 'adamw' ? o.weightDecay : undefined
  return given({ lr: o.lr, b1: o.beta1, b2: o.beta2, eps: o.eps, weightDecay, decayFilter: o.decayFilter }) as AdamConfig
}

function ownOptimizer(o: OptimizerConfig): Optimizers {
  const clipNorm = o.clipGradNorm
  if (o.kind !== 'sgd') return { [o.kind]: given({ ...adamConfig(o), clipNorm }) }
  return { sgd: given({ lr: o.lr, momentum: o.momentum, nesterov: o.nesterov, weightDecay: o.weightDecay, decayFilter: o.decayFilter, clipNorm }) as NonNullable<Optimizers['sgd']> }
}

/** Multiplies each by min(1, most / (norm + 1e-6)), with the norm over all of them. */
function clipped(grads: Record<string, Tensor>, most: number): Record<string, Tensor> {
  const squares = Object.values(grads).map((g) => sum(square(g)))
  if (squares.length === 0) return grads
  const scale = minimum(div(most, add(sqrt(squares.reduce((a, b) => add(a, b))), 1e-6)), 1)
  return Object.fromEntries(Object.entries(grads).map(([name, g]) => [name, mul(g, scale)]))
}

const at = (model: Module, path: string): Tensor => path.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown>)[key], model) as Tensor

/** Appends the update to the trace of a loss. */
function appendUpdate(model: Module, loss: Tensor, o: OptimizerConfig): void {
  const { graph, paramGrads } = appendGrad(loss), normal = normalizeGrads(paramGrads, o.normalizeGrads ?? false)
  const grads = o.clipGradNorm === undefined ? normal : clipped(normal, o.clipGradNorm), tensors = Object.fromEntries(Object.keys(grads).map((name) => [name, at(model, name)]))
  if (o.kind !== 'sgd') appendAdam(graph, grads, tensors, adamConfig(o))
  else appendSGD(graph, grads, tensors, o)
}

/** g += weightDecay p; v = momentum v + g; p -= rate (nesterov ? g + momentum v : v). */
function appendSGD(graph: Graph, grads: Record<string, Tensor>, tensors: Record<string, Tensor>, o: Extract<OptimizerConfig, { kind: 'sgd' }>): void {
  const { momentum = 0, weightDecay = 0 } = o, counter = stateInput('sgd_t', [], 'i32'), step = add(counter, 1), rate = cast(resolveLR(o.lr, step), 'f32')
  const declared = Object.fromEntries(graph.params.map(({ name, decay }) => [name, decay]))
  writeback(counter, step)
  for (const [name, g] of Object.entries(grads)) {
    const p = tensors[name] as Tensor, decays = weightDecay > 0 && (o.decayFilter?.(name) ?? declared[name])
    const whole = decays ? add(g, mul(p, weightDecay)) : g
    let update = whole
    if (momentum > 0) {
      const v = stateInput(`sgd_v_${name}`, p.shape), next = add(mul(v, momentum), whole)
      writeback(v, next)
      update = o.nesterov ? add(whole, mul(next, momentum)) : next
    }
    writeback(p, sub(p, mul(update, rate)))
  }
}

// ---------------------------------------------------------------- compiling

export type InputDecl = readonly (number | null)[] | InputSpec
export type InputDecls = { readonly [name: string]: InputDecl }
type Spec<D extends InputDecl> = D extends readonly (number | null)[] ? { readonly shape: D; readonly dtype: 'f32' } : D extends InputSpec ? D : never
type Specs<I extends InputDecls> = { readonly [N in keyof I]: Spec<I[N]> }
/** What `step` and `run` take. */
export type TypedInputs<I extends InputDecls> = InputArrays<Specs<I>>
export type ForwardFn<M extends Module, I extends InputDecls = InputDecls> = (model: M, inputs: InputTensors<Specs<I>>) => Tensor

export interface TrainingSpec<M extends Module, I extends InputDecls> {
  model: M
  loss: ForwardFn<M, I>
  inputs: I
  optimizer: OptimizerConfig
  seed?: number
}
export interface ForwardSpec<M extends Module, I extends InputDecls, O extends 'f32' | 'i32' = 'f32'> {
  forward: ForwardFn<M, I>
  inputs: I
  /** The output's dtype; any other is an error. Default 'f32'. */
  output?: O
  /** `maxSizes`. */
  maxCachedShapes?: number
}
export interface ForwardExecutorSpec<M extends Module, I extends InputDecls, O extends 'f32' | 'i32' = 'f32'> extends ForwardSpec<M, I, O> {
  model: M
  seed?: number
}

type Ended = { kind: 'aborted' } | { kind: 'failed'; error: Error }
export type StepResult = { kind: 'completed'; loss: number; captures: Captures } | Ended
export type RunResult<O extends 'f32' | 'i32' = 'f32'> = { kind: 'completed'; output: O extends 'i32' ? Int32Array : Float32Array; captures: Captures } | Ended

/** The result of a call that rejects: aborted if the model was destroyed or replaced, else
 *  failed. */
function ended(error: unknown): Ended {
  return error instanceof StateError && /destroyed/.test(error.message) ? { kind: 'aborted' } : { kind: 'failed', error: error as Error }
}

const isList = (declared: InputDecl): declared is readonly (number | null)[] => Array.isArray(declared)

function specsOf<I extends InputDecls>(inputs: I): Specs<I> {
  return Object.fromEntries(Object.entries(inputs).map(([name, declared]) => [name, isList(declared) ? { shape: declared } : declared])) as unknown as Specs<I>
}

const anySeed = (): number => Math.floor(Math.random() * 2 ** 32)

async function train<M extends Module, I extends InputDecls>(spec: TrainingSpec<M, I>, model: M, optimizer: OptimizerConfig, seed: number): Promise<CompiledModule<M>> {
  const own = isOwn(optimizer), inputs = specsOf(spec.inputs) as InputSpecs
  const forward = (m: M, tensors: Record<string, Tensor>): Tensor => {
    const loss = spec.loss(m, tensors as InputTensors<Specs<I>>)
    if (!own) appendUpdate(m, loss, optimizer)
    return loss
  }
  return compileModule(() => model, forward, { ...(own ? ownOptimizer(optimizer) : {}), inputs, seed }) as Promise<CompiledModule<M>>
}

async function forwardOf<M extends Module, I extends InputDecls>(parent: CompiledModule<M> | ForwardNow<M>, spec: ForwardSpec<M, I, 'f32' | 'i32'>): Promise<ForwardNow<M>> {
  const options = given({ inputs: specsOf(spec.inputs) as InputSpecs, maxSizes: spec.maxCachedShapes })
  const made = await parent.compileForward(spec.forward as never, options as { inputs: InputSpecs })
  return checkOutput(made as ForwardNow<M>, spec.output)
}

async function checkOutput<M extends Module>(made: ForwardNow<M>, output: Dtype = 'f32'): Promise<ForwardNow<M>> {
  if (made.outputDtype === output) return made
  await made.destroy()
  throw new ArgumentError(`attach: the output is ${made.outputDtype}, not ${output}: say output: '${made.outputDtype}'`)
}

/** `compileForward` as in 0.4: a result has a kind, and a model is replaced within the object. */
export class CompiledForward<M extends Module = Module, I extends InputDecls = InputDecls, O extends 'f32' | 'i32' = 'f32'> {
  readonly #find: () => Promise<ForwardNow<M>>
  #now: ForwardNow<M>
  /** @internal */
  constructor(find: () => Promise<ForwardNow<M>>, now: ForwardNow<M>) {
    this.#find = find
    this.#now = now
  }
  async #model(): Promise<ForwardNow<M>> {
    return (this.#now = await this.#find())
  }
  get paramNames(): readonly string[] {
    return this.#now.paramNames
  }
  async run(inputs: TypedInputs<I>): Promise<RunResult<O>> {
    try {
      const { output, captures } = await (await this.#model()).run<DataArray, Record<string, DataArray>>(inputs as Record<string, DataArray>, { withCaptures: true })
      return { kind: 'completed', output: output as never, captures }
    } catch (error) {
      return ended(error)
    }
  }
  /** The IR of the size compiled first. */
  async graphFor(_inputs?: TypedInputs<I>): Promise<CompiledIR> {
    return (await this.#model()).ir
  }
  /** Names may be missing. */
  async uploadParams(params: Readonly<Record<string, Float32Array>>): Promise<void> {
    await (await this.#model()).uploadParams(params, { partial: true })
  }
  async downloadParams(): Promise<Record<string, Float32Array>> {
    return (await this.#model()).downloadParams()
  }
  destroy(): void {
    void this.#now.destroy()
  }
}

/** `compileModule` as in 0.4. */
export class CompiledTraining<M extends Module, I extends InputDecls = InputDecls> {
  readonly #spec: TrainingSpec<M, I>
  #model: CompiledModule<M>
  #optimizer: OptimizerConfig
  #seed: number
  /** @internal */
  constructor(spec: TrainingSpec<M, I>, model: CompiledModule<M>, seed: number) {
    this.#spec = spec
    this.#model = model
    this.#optimizer = spec.optimizer
    this.#seed = seed
  }
  /** The package's own object for the model. */
  get model(): CompiledModule<M> {
    return this.#model
  }
  get graph(): Graph {
    return this.#model.ir.graph
  }
  get kernels(): readonly KernelSpec[] {
    return this.#model.ir.kernels
  }
  get outputShape(): Shape {
    return this.#model.outputShape
  }
  get paramNames(): readonly string[] {
    return this.#model.paramNames
  }
  get seed(): number {
    return this.#seed
  }
  async step(inputs: TypedInputs<I>): Promise<StepResult> {
    try {
      return { kind: 'completed', ...(await this.#model.step(inputs as Record<string, DataArray>, { withCaptures: true })) }
    } catch (error) {
      return ended(error)
    }
  }
  /** Names may be missing. */
  uploadParams(params: Readonly<Record<string, Float32Array>>): Promise<void> {
    return this.#model.uploadParams(params, { partial: true })
  }
  downloadParams(): Promise<Record<string, Float32Array>> {
    return this.#model.downloadParams()
  }
  /** `reset`, `resetOptimizerState`. With params alone: initial values again, the optimiser
   *  unchanged. */
  async reset({ params = true, optimizer = true }: { params?: boolean; optimizer?: boolean } = {}): Promise<void> {
    if (params && optimizer) return this.#model.reset()
    if (optimizer) return this.#model.resetOptimizerState()
    if (!params) return
    const fresh = await train(this.#spec, this.#spec.model, this.#optimizer, this.#seed)
    try {
      await this.#model.uploadParams(await fresh.downloadParams())
    } finally {
      await fresh.destroy()
    }
  }
  setLR(rate: LRSchedule): Promise<void> {
    return this.#model.setLR(rate)
  }
  /** `replaceModel`, with a new seed unless one is given. Forward passes attached to this model
   *  follow. */
  async replaceModel(model: M, options: { seed?: number; optimizer?: OptimizerConfig } = {}): Promise<void> {
    const seed = options.seed ?? anySeed(), optimizer = options.optimizer ?? this.#optimizer
    this.#model = await replaceModel(this.#model, () => train(this.#spec, model, optimizer, seed))
    this.#seed = seed
    this.#optimizer = optimizer
    this.#spec.model = model
  }
  attach<J extends InputDecls, O extends 'f32' | 'i32' = 'f32'>(spec: ForwardSpec<M, J, O>): Promise<CompiledForward<M, J, O>> {
    return attach(this, spec)
  }
  destroy(): void {
    void this.#model.destroy()
  }
}

/** `compileModule(() => model, loss, { [optimizer.kind]: ..., inputs, seed })`; the seed is random
 *  unless given, see `.seed`. */
export async function compile<M extends Module, const I extends InputDecls>(spec: TrainingSpec<M, I>): Promise<CompiledTraining<M, I>> {
  const seed = spec.seed ?? anySeed()
  return new CompiledTraining<M, I>({ ...spec }, await train(spec, spec.model, spec.optimizer, seed), seed)
}

/** `compileForward(() => model, forward, { inputs, seed })`. */
export async function compileForward<M extends Module, const I extends InputDecls, O extends 'f32' | 'i32' = 'f32'>(
  spec: ForwardExecutorSpec<M, I, O>,
): Promise<CompiledForward<M, I, O>> {
  const options = given({ inputs: specsOf(spec.inputs) as InputSpecs, seed: spec.seed ?? anySeed(), maxSizes: spec.maxCachedShapes })
  const made = await checkOutput((await compileForwardNow(() => spec.model, spec.forward as never, options as { inputs: InputSpecs })) as ForwardNow<M>, spec.output)
  return new CompiledForward<M, I, O>(async () => made, made)
}

/** `model.compileForward(forward, { inputs })`, for the result of `compile` or of
 *  `compileModule`. */
export async function attach<M extends Module, const I extends InputDecls, O extends 'f32' | 'i32' = 'f32'>(
  to: { readonly model: CompiledModule<M> } | CompiledModule<M>, spec: ForwardSpec<M, I, O>,
): Promise<CompiledForward<M, I, O>> {
  const parentNow = (): CompiledModule<M> => ('model' in to ? to.model : to)
  let parent = parentNow(), made = forwardOf(parent, spec)
  const find = (): Promise<ForwardNow<M>> => {
    if (parent !== parentNow()) {
      parent = parentNow()
      made = forwardOf(parent, spec)
    }
    return made
  }
  return new CompiledForward<M, I, O>(find, await made)
}

// ---------------------------------------------------------------- helpers of a page

export type SingleFlightResult<R> = { kind: 'completed'; value: R } | { kind: 'aborted' }

/** `latestWins`: of calls that overlap, the newest runs next; the result of those overtaken is
 *  'aborted'. */
export function singleFlight<A, R>(fn: (argument: A) => Promise<R>): (argument: A) => Promise<SingleFlightResult<R>> {
  const newest = latestWins(async (argument: A) => ({ kind: 'completed' as const, value: await fn(argument) }))
  return async (argument) => (await newest(argument)) ?? { kind: 'aborted' }
}

export type WebGPUFailureReason = 'no-webgpu' | 'no-adapter'
export type WebGPUSupport = { ok: true } | { ok: false; reason: WebGPUFailureReason; message: string }

interface Gpu {
  requestAdapter(): Promise<unknown>
}
const gpuHere = (): Gpu | undefined => (globalThis.navigator as { gpu?: Gpu } | undefined)?.gpu

/** Whether there is WebGPU, with or without a GPU. */
export const isWebGPUAvailable = (): boolean => gpuHere() !== undefined

/** Whether WebGPU has an adapter here. Without one, models run on the CPU: for pages that want to
 *  say so (`model.device` does too). */
export async function checkWebGPU(): Promise<WebGPUSupport> {
  const gpu = gpuHere()
  if (gpu === undefined) return { ok: false, reason: 'no-webgpu', message: 'There is no WebGPU here: a newer browser may have it. Models run on the CPU.' }
  const adapter = await gpu.requestAdapter().catch(() => null)
  if (adapter) return { ok: true }
  return { ok: false, reason: 'no-adapter', message: 'WebGPU is here, but no GPU that it may use: drivers or the browser keep it back. Models run on the CPU.' }
}
