// Compiling and running: traces on the page, posts the graph's bytes to a worker, and stands for the model that lives there. Calls go
// out in their order; what they check and change is the core's, in the worker.

import { Captures } from './captures.js'
import { loadCore, loadThreaded, moduleNow, startWorker } from './platform.js'
import { ArgumentError, blame, blameOnce, holdFrames, NotFiniteError, siteOf, StateError, WorkerError, type Frames } from './errors.js'
import { Graph, irOf, markParams, materialize, type CompiledIR, type IROptions } from './ir.js'
import { rateArgument, type LR } from './lr.js'
import { Module } from './module.js'
import { chooseOptimizer, optimizerMessage, optimizers, type Optimizers } from './optimizer.js'
import { told } from './numbers.js'
import { anything, callback, check, checkOptions, flag, oneOf, record, shown, text, type Hints, type Kind, type Kinds } from './options.js'
import {
  Connection,
  joined,
  type Answers,
  type ArrayMessage,
  type CaptureMessage,
  type GraphMessage,
  type RequestBody,
  type RequestKind,
  type TextKind,
  type TrainMessage,
} from './protocol.js'
import { pause } from './pause.js'
import { coreNow } from './platform.js'
import { sizeArguments, sizedShape, Sizes, type SizeArguments, type Sized, type SizeOptions } from './sizes.js'
import { call, copyOf, describe, dtypeOfArray, refuseNested, traceGraph, type Tensor, type Trace } from './tensor.js'
import type { AnyArrays, Batch, DataArray, Device, Dtype, InputArrays, InputSpecs, InputTensors, Precision, Shape } from './types.js'
import { warn, warningOf, type OnWarning } from './warnings.js'

// ---------------------------------------------------------------- what a caller gives and gets

export interface ForwardOptions<I extends InputSpecs> extends SizeOptions {
  /** The inputs of `forward` by name. */
  inputs?: I
}

export interface AverageOption {
  /** Over the averages of the parameters that an optimiser with `average` keeps, instead of the parameters. */
  average?: boolean
}

interface RuntimeOptions {
  /** Of the initial values and of random numbers: the same seed gives the same values everywhere. A whole number from 0 on. Default 0. */
  seed?: number | bigint
  /** Default 'auto'. */
  device?: Device
  /** A part of the name of the GPU wanted, where there are several. */
  adapter?: string
  /** One kernel for each operation: slow, for comparison. */
  noFusion?: boolean
  /** Before every step look at all values, forward and back: where loss or gradients are not finite, the step rejects with a NotFiniteError
   *  that names the first operation, input or parameter that is worse than what it was made of, and nothing is changed. Slow. */
  checkFinite?: boolean
  /** 'f16': large contractions round their operands to f16 where the GPU offers that (`model.precision` says), and add in f32. Parameters,
   *  gradients and all else stay f32. Default 'f32'. */
  precision?: Precision
  /** With f16 in use, cotangents are computed times this, and gradients divided by it, so that small ones do not vanish: a power of two
   *  from 1 to 2^24. Default 4096. */
  lossScale?: number
  /** Of the CPU, 1 to 16. More than one where memory can be shared: in Node, and with tensorgrad/split in a page that is isolated
   *  (`crossOriginIsolated`); elsewhere one. `model.device` says how many; results do not depend on it. Default 1. */
  threads?: number
  /** Told of what compiles and most likely is not what was meant: no optimizer, a parameter that nothing trains. Default: the console, each
   *  thing once. */
  onWarning?: OnWarning
}

/** Without an optimiser a step computes loss and gradients and changes nothing. */
export interface CompileOptions<I extends InputSpecs = InputSpecs> extends ForwardOptions<I>, RuntimeOptions, Optimizers {
  /** Names of parameters that are not trained and need no backward work. '*' matches any characters,
   *  '?' any one. A pattern that matches nothing is a NotFoundError. See also `Module.freeze`. */
  frozen?: string | readonly string[]
}
export interface CompileForwardOptions<I extends InputSpecs = InputSpecs> extends ForwardOptions<I>, RuntimeOptions {}
export interface CompileGraphOptions extends RuntimeOptions, Optimizers {
  /** Differentiate the result. Default: whether it is rank 0. */
  training?: boolean
}

export type Forward<M extends Module, I extends InputSpecs> = (model: M, inputs: InputTensors<I>) => Tensor

export interface CallOptions {
  withCaptures?: boolean
}
/** Of 0.0.17. */
export type RunOptions = CallOptions
/** Of 0.0.17. */
export type StepOptions = CallOptions
/** Of 0.0.17. */
export type ForwardFn<M extends Module, I extends InputSpecs = InputSpecs> = Forward<M, I>
/** Of 0.0.17. */
export type CompileModuleOptions<I extends InputSpecs = InputSpecs> = CompileOptions<I>
export interface TrainOptions<I extends InputSpecs = InputSpecs> {
  /** Of inputs with a null axis: rows of a batch. Default: `batch` of the compile options. */
  batch?: number
  /** Rows for inputs whose first axis is the batch, or a data set made before. */
  data: Partial<InputArrays<I>> | Dataset
  /** The other inputs: the same in every step. */
  inputs?: Partial<InputArrays<I>>
  /** To make: 0 or more. */
  steps: number
  /** Default 'random': each row drawn with replacement. 'sequential': one after another, over again. */
  order?: 'random' | 'sequential'
  /** Of the random order. Default 0. */
  seed?: number | bigint
  /** How many steps a GPU is given at a time, up to 4096. Default: as many as let a page draw between. */
  stepsPerSubmission?: number
  /** Called for each step, in order, several at a time. Return false to stop, after the steps that
   *  were made meanwhile. */
  onProgress?: (step: number, loss: number) => boolean | void
  /** Ends once a loss is no more than this. */
  targetLoss?: number
  /** Ends once the least loss is this many steps old. */
  patience?: number
  /** Aborting ends it, after the steps under way: the promise rejects with the signal's reason. */
  signal?: AbortSignal
}
export interface StepResult {
  loss: number
  captures: Captures
}
export interface RunResult<A extends DataArray = Float32Array> {
  output: A
  captures: Captures
}

// ---------------------------------------------------------------- compiling

/** Compiles training: `forward` returns the loss, rank 0. The worker that it starts is the model's until `destroy`. */
export async function compileModule<M extends Module, const I extends InputSpecs = {}>(
  factory: () => M,
  forward: Forward<M, I>,
  options: CompileOptions<I> = {},
): Promise<CompiledModule<M, I>> {
  const plan: Plan<M> = { what: 'compileModule', above: compileModule, factory, options: ownOptions('compileModule', compileModule, options, ofModule) }
  const { family, message, graph, sizes, source } = await compileRoot(plan, forward, true)
  return new CompiledModule<M, I>(family, graph, message, sizes, source)
}

/** Compiles a forward pass alone: `forward` returns the output, of any shape and dtype. */
export async function compileForward<M extends Module, const I extends InputSpecs = {}>(
  factory: () => M,
  forward: Forward<M, I>,
  options: CompileForwardOptions<I> = {},
): Promise<CompiledForward<M, I>> {
  const plan: Plan<M> = { what: 'compileForward', above: compileForward, factory, options: ownOptions('compileForward', compileForward, options, ofForward) }
  const { family, message, graph, sizes, source } = await compileRoot(plan, forward, false)
  return new CompiledForward<M, I>(family, graph, message, sizes, source)
}

/** Compiles a graph traced by hand (see `trace`), its writebacks with it. */
export async function compileGraph(graph: Graph, options: CompileGraphOptions = {}): Promise<CompiledModule<Module, InputSpecs>> {
  const own = ownOptions('compileGraph', compileGraph, options, ofGraph)
  const plan: Plan<Module> = { what: 'compileGraph', above: compileGraph, factory: null, options: own }
  const frames = holdFrames(compileGraph)
  await checked(frames, async () => {
    checkGraph(graph)
    await loadCore()
    markParams(graph.trace.graph, chooseOptimizer(own).config)
    await graph.trace.settleSitesSlowly()
  })
  const training = own.training ?? (chooseOptimizer(own).config !== null || graph.result.shape.length === 0)
  const started = await startRuntime(plan, graph.bytes(), training, frames)
  const { kind, config } = chooseOptimizer(own), source = graphSource(graph, config === null ? { training } : { training, [kind]: config })
  return new CompiledModule<Module, InputSpecs>(started.family, started.graph, started.message, null, source)
}

function checkGraph(graph: unknown): void {
  if (!(graph instanceof Graph)) throw new ArgumentError(`compileGraph: takes a graph made by trace, not ${describe(graph)}`)
}

const powerOfTwo: Kind = { text: 'a power of two from 1 to 2^24', is: (value: unknown) => typeof value === 'number' && Number.isInteger(Math.log2(value)) && value >= 1 && value <= 2 ** 24 }
const sized: Kinds = { inputs: record, batch: anything, maxSizes: anything }
const runtime: Kinds = { seed: anything, device: anything, adapter: text, noFusion: flag, checkFinite: flag, precision: anything, lossScale: powerOfTwo, threads: anything, onWarning: callback }
const average: Kinds = { average: flag }
const ofForward: Kinds = { ...sized, ...runtime }
const patterns: Kind = { text: 'a pattern for names of parameters, or an array of them', is: (value: unknown) => typeof value === 'string' || Array.isArray(value) }
const ofModule: Kinds = { ...ofForward, frozen: patterns, ...optimizers }
const ofGraph: Kinds = { ...runtime, training: flag, ...optimizers }
const texts = oneOf('ir', 'kernels', 'plan', 'dot', 'c', 'wgsl')
const ofCall: Kinds = { withCaptures: flag }
const abortable: Kind = { text: 'an AbortSignal', is: (value: unknown) => typeof (value as AbortSignal | null)?.throwIfAborted === 'function' }
const ofTraining: Kinds = {
  data: anything, inputs: record, batch: anything, steps: anything, order: anything, seed: anything, stepsPerSubmission: anything,
  onProgress: callback, targetLoss: anything, patience: anything, signal: abortable,
}
const optimizerHint = 'the optimizer goes by its name: { adam: { lr: 0.001 } }'
const hints: Hints = { optimizer: optimizerHint, lr: optimizerHint, learningRate: optimizerHint, weightDecay: optimizerHint }

/** Of the caller's own nothing is kept: other sizes are traced from the options later, whatever becomes of the object meanwhile. */
function ownOptions<O extends CompileOptions | CompileGraphOptions>(what: string, above: unknown, options: O, kinds: Kinds): O {
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

interface Plan<M extends Module> {
  what: string
  above: unknown
  factory: (() => M) | null
  options: CompileOptions & Optimizers
}

interface Started<M extends Module> {
  family: Family<M>
  graph: number
  message: GraphMessage
}

/** body, its errors given the frames of the compile call unless they have the user's own already. */
async function checked<R>(frames: Frames, body: () => R | Promise<R>): Promise<R> {
  try {
    return await body()
  } catch (error) {
    throw blameOnce(error, frames)
  }
}

async function compileRoot<M extends Module, I extends InputSpecs>(
  plan: Plan<M>,
  forward: Forward<M, I>,
  training: boolean,
): Promise<Started<M> & { sizes: Sizes | null; source: Source }> {
  const frames = holdFrames(plan.above)
  refuseNested(frames)
  const whole = forward as Forward<M, InputSpecs>
  const { bytes, sizes } = await checked(frames, async () => {
    checkFunctions(plan.what, plan.factory, forward)
    const chosen = sizeArguments(plan.what, plan.options, null)
    await loadCore()
    return { bytes: await writtenModel(plan, whole, frames, true, training, chosen.batch), sizes: chosen }
  })
  const started = await startRuntime(plan, bytes, training, frames)
  started.family.sizes = sizes
  return { ...started, sizes: sizesOf(plan, whole, training, started, sizes), source: sourceOf(plan, whole, training, sizes.batch) }
}

/** How the other sizes of a model come about, where it has any. */
function sizesOf<M extends Module>(
  plan: Plan<M>,
  forward: Forward<M, InputSpecs>,
  training: boolean,
  { family, graph, message }: Started<M>,
  sizes: SizeArguments,
): Sizes | null {
  const specs = plan.options.inputs ?? {}, { connection } = family
  if (!Sizes.areNeeded(specs)) return null
  const compile = async (size: number, what: string, frames: Frames) => {
    refuseNested(frames)
    const bytes = await writtenModel(plan, forward, frames, false, training, size), number = family.nextGraph()
    return { graph: number, message: await connection.request({ kind: 'compileSize', graph: number, parent: graph, bytes }, [bytes.buffer], frames, what) }
  }
  const drop = (number: number) => void connection.request({ kind: 'destroy', graph: number }, [], () => '').catch(() => undefined)
  return new Sizes(specs, sizes, graph, message, compile, drop)
}

function checkFunctions(what: string, factory: unknown, forward: unknown): void {
  if (typeof factory !== 'function')
    throw new ArgumentError(`${what}: the factory is ${describe(factory)}, not a function that makes the model`)
  if (factory.prototype instanceof Module)
    throw new ArgumentError(`${what}: the factory is the class ${factory.name} itself: give a function that makes one: () => new ${factory.name}()`)
  if (typeof forward !== 'function') throw new ArgumentError(`${what}: forward is ${describe(forward)}, not a function`)
}

const NO_OPTIMIZER =
  'there is no optimizer: a step computes loss and gradients and changes nothing: give one, as in { adam: { lr: 0.001 } }'

/** Traces and writes the graph, in pieces between which the page can draw. */
async function writtenModel<M extends Module>(
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

/** Parameters first (in the order of the walk), then inputs, then what forward does. */
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

const MAX_SEED = (1n << 64n) - 1n

function seedArgument(what: string, seed: number | bigint = 0): bigint {
  const whole = typeof seed === 'bigint' || Number.isSafeInteger(seed)
  const value = whole ? BigInt(seed) : -1n
  if (value < 0n || value > MAX_SEED) throw new ArgumentError(`${what}: the seed is ${typeof seed === 'number' || typeof seed === 'bigint' ? seed : describe(seed)}, not a whole number from 0 on`)
  return value
}

function deviceArgument(what: string, device: Device = 'auto'): Device {
  if (device === 'auto' || device === 'cpu' || device === 'webgpu') return device
  throw new ArgumentError(`${what}: the device is ${describe(device)}, not 'auto', 'cpu' or 'webgpu'`)
}

function precisionArgument(what: string, precision: Precision = 'f32'): Precision {
  if (precision === 'f32' || precision === 'f16') return precision
  throw new ArgumentError(`${what}: the precision is ${describe(precision)}, not 'f32' or 'f16'`)
}

function threadsArgument(what: string, threads = 1): number {
  if (Number.isInteger(threads) && threads >= 1 && threads <= 16) return threads
  throw new ArgumentError(`${what}: threads is ${describe(threads)}, not a whole number from 1 to 16`)
}

const NOT_SHARED = 'memory cannot be shared here: a page must be isolated (Cross-Origin-Opener-Policy: same-origin, ' +
  'Cross-Origin-Embedder-Policy: require-corp) and load tensorgrad/split'
const ROOT = 1 // a root's graph number

async function startRuntime<M extends Module>(
  plan: Plan<M>,
  bytes: Uint8Array<ArrayBuffer>,
  training: boolean,
  frames: Frames,
): Promise<Started<M>> {
  const { options, what } = plan
  const body = await checked(frames, () => {
    const { kind, config } = chooseOptimizer(options)
    return {
      kind: 'createRuntime' as const,
      graph: ROOT,
      bytes,
      training,
      optimizer: config === null ? null : optimizerMessage(kind, config),
      seed: seedArgument(what, options.seed),
      device: deviceArgument(what, options.device),
      adapter: options.adapter ?? '',
      noFusion: options.noFusion ?? false,
      checkFinite: options.checkFinite ?? false,
      precision: precisionArgument(what, options.precision),
      lossScale: options.lossScale ?? 0,
      module: moduleNow(),
      threads: threadsArgument(what, options.threads),
      threaded: null as WebAssembly.Module | null,
    }
  })
  if (body.threads > 1 && body.device !== 'webgpu')
    body.threaded = await loadThreaded().then((module) => module ?? Promise.reject(new Error(NOT_SHARED))).catch((error: Error) => {
      warn(options.onWarning, `${what}: one thread instead of ${body.threads}: ${error.message}`, siteOf(frames()))
      return null
    })
  const connection = new Connection(await openPort(what, frames), (text) => {
    const { message, site } = warningOf(text)
    warn(options.onWarning, message, site)
  })
  const family = new Family<M>(connection, plan.factory)
  try {
    return { family, graph: ROOT, message: await connection.request(body, [bytes.buffer], frames, what) }
  } catch (error) {
    void family.destroy()
    throw blameOnce(error, frames)
  }
}

async function openPort(what: string, frames: Frames) {
  try {
    return await startWorker()
  } catch (error) {
    if (!(error instanceof Error)) throw error
    throw blame(new WorkerError(`${what}: the worker does not start: ${error.message}`), null, frames())
  }
}

// ---------------------------------------------------------------- a model and its siblings

/** What a model and its siblings share: the worker, its device, its parameters. */
class Family<M extends Module> {
  #lastGraph = ROOT
  /** What siblings take where they are not told otherwise. */
  sizes: SizeArguments | null = null
  /** Until the size being compiled is there, and the calls after it have gone out; null: none is. */
  #line: Promise<void> | null = null
  /** Until the training runs asked for have ended; null: there are none. */
  turn: Promise<void> | null = null
  constructor(
    readonly connection: Connection,
    readonly factory: (() => M) | null,
  ) {}

  nextGraph(): number {
    return ++this.#lastGraph
  }
  /** Of a data set: as those of graphs. */
  readonly nextDataset = this.nextGraph
  /** Runs `body` when the runs before it have ended. */
  inTurn<R>(body: () => Promise<R>): Promise<R> {
    const before = this.turn
    const result = before === null ? body() : before.then(body)
    const turn = result.then(() => undefined, () => undefined).then(() => {
      if (this.turn === turn) this.turn = null
    })
    this.turn = turn
    return turn.then(() => undefined).then(() => result) // after the calls that waited for it
  }
  /** Posts when the calls before have been posted, in their order, and when what `prepare` begins is there. */
  send<R>(prepare: () => void | Promise<void>, post: () => Promise<R>): Promise<R> {
    const ready = this.#line === null ? prepare() : this.#line.then(prepare)
    if (ready === undefined) return post()
    const result = ready.then(post)
    const line: Promise<void> = ready.catch(() => undefined).then(() => {
      if (this.#line === line) this.#line = null
    })
    this.#line = line
    return result
  }
  /** Every call made so far has been answered; a training run: as far as it has been asked for. */
  async settled(): Promise<void> {
    await this.#line
    await this.connection.settled()
  }
  destroy(): Promise<void> {
    return this.connection.shutDown(ROOT, (what) => new StateError(`${what}: the model is destroyed`))
  }
}

/** What changes a model waits for the training runs before it. What reads it is served between their submissions. */
const WAITS_FOR_TRAINING: ReadonlySet<RequestKind> = new Set<RequestKind>([
  'step', 'uploadParams', 'reset', 'resetOptimizer', 'setLR', 'recover', 'compileForward',
])

/** Rows on the device, for many calls of `train`. */
export class Dataset {
  readonly #drop: (atOnce: boolean) => Promise<unknown>
  /** @internal */
  readonly owner: object
  /** @internal The one whose batches it makes. */
  readonly graph: number
  /** @internal */
  readonly number: number
  #destroyed = false

  /** @internal */
  constructor(owner: object, graph: number, number: number, drop: (atOnce: boolean) => Promise<unknown>) {
    this.owner = owner
    this.graph = graph
    this.number = number
    this.#drop = drop
  }
  get destroyed(): boolean {
    return this.#destroyed
  }
  /** Gives its memory back, after the runs that use it. Twice is fine. */
  destroy(): Promise<void>
  /** @internal atOnce: in a run's own turn. */
  destroy(atOnce: boolean): Promise<void>
  async destroy(atOnce = false): Promise<void> {
    if (this.#destroyed) return
    this.#destroyed = true
    await this.#drop(atOnce)
  }
}

/** Where a model's IR comes from. */
interface Source {
  ir(): CompiledIR
}

interface Sibling {
  bytes: Uint8Array<ArrayBuffer>
  sizes: (graph: number, message: GraphMessage) => Sizes | null
  source: Source
}

/** Of a model that was traced from its factory: initial values are left out. */
function sourceOf<M extends Module>(plan: Plan<M>, forward: Forward<M, InputSpecs>, training: boolean, size: number): Source {
  return {
    ir() {
      const frames = holdFrames(irGetter), { kind, config } = chooseOptimizer(plan.options)
      const graph = new Graph(traceModel(plan, forward, frames, false, training, size))
      return irOf(irGetter, graph, config === null ? { training } : { training, [kind]: config })
    },
  }
}
/** The same of a graph traced by hand. */
const graphSource = (graph: Graph, options: IROptions): Source => ({ ir: () => irOf(irGetter, graph, options) })

/** What training models and forward passes have in common. */
abstract class Compiled<M extends Module, I extends InputSpecs> {
  readonly #family: Family<M>
  readonly #graph: number
  /** @internal Null: all inputs have fixed shapes. */
  protected readonly sizes: Sizes | null
  /** Of the size whose call was answered last. */
  #message: GraphMessage
  #device: string
  #precision: Precision
  #destroyed = false
  #ir: CompiledIR | null = null
  /** @internal */
  protected readonly source: Source

  /** @internal */
  constructor(family: Family<M>, graph: number, message: GraphMessage, sizes: Sizes | null, source: Source) {
    this.source = source
    this.#family = family
    this.#graph = graph
    this.#message = message
    this.sizes = sizes
    this.#device = message.device
    this.#precision = message.precision
  }

  /** Kernels of one step or run. Where inputs have a null axis, this and what follows are of the size whose call was answered last. */
  get kernelCount(): number {
    return this.#message.kernelCount
  }
  /** Launches of one step or run: on a GPU one holds several kernels, and a large reduction is more than one. */
  get dispatchCount(): number {
    return this.#message.dispatchCount
  }
  /** Bytes of parameters, gradients, optimiser state, inputs, constants and workspace. */
  get peakBytes(): number {
    return this.#message.peakBytes
  }
  get outputShape(): Shape {
    return this.#message.outputShape
  }
  get outputDtype(): Dtype {
    return this.#message.outputDtype
  }
  get paramNames(): readonly string[] {
    return this.#message.params.map((param) => param.name)
  }
  /** What was compiled, as data: the graph with its gradients, the plan, the kernels as WGSL, whatever it runs on. Made when it is first
   *  asked for, by tracing once more. Of inputs with a null axis: of the size compiled first. The optimiser's update is in the plan and the
   *  kernels; `text` is the whole IR after the passes, of the call answered last. */
  get ir(): CompiledIR {
    this.#ir ??= check(irGetter, () => this.source.ir())
    return { ...this.#ir, text: this.#message.ir }
  }
  /** Where it runs: "webgpu (NVIDIA H200)", or "cpu (simd128): this browser has no WebGPU". */
  get device(): string {
    return this.#device
  }
  /** Of contractions, in use: 'f32' where f16 was asked for and the device does not offer it. */
  get precision(): Precision {
    return this.#precision
  }
  get destroyed(): boolean {
    return this.#destroyed || this.#family.connection.closed !== null
  }

  paramShape(name: string): Shape {
    const param = this.#message.params.find((each) => each.name === name)
    if (param !== undefined) return param.shape
    throw blame(new ArgumentError(`paramShape: there is no ${describe(name)} (parameters: ${this.paramNames.join(', ')})`), this.paramShape)
  }

  /** The traced result for these inputs (the loss of a training model): no update, no writebacks. */
  run<A extends DataArray = Float32Array, R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options?: { withCaptures?: false }): Promise<A>
  run<A extends DataArray = Float32Array, R extends Batch = never>(
    inputs: InputArrays<I> | AnyArrays<R>,
    options: { withCaptures: true },
  ): Promise<RunResult<A>>
  run<A extends DataArray = Float32Array, R extends Batch = never>(
    inputs: InputArrays<I> | AnyArrays<R>,
    options: CallOptions,
  ): Promise<A | RunResult<A>>
  async run(inputs: Batch, options: CallOptions = {}): Promise<DataArray | RunResult<DataArray>> {
    const above = Compiled.prototype.run
    const { withCaptures = false } = check(above, () => checkOptions('run', options, ofCall))
    const { feeds, transfer } = this.arrays('run', 'input', inputs, above)
    const body = { kind: 'run' as const, graph: this.#graph, feeds, withCaptures }
    const answer = await this.ask(body, above, transfer, (sizes) => sizes.sizeOf('run', feeds))
    return withCaptures ? { output: answer.output, captures: new Captures(answer.captures ?? []) } : answer.output
  }

  /** Writes parameters. Every name and length is checked before anything is written. partial: names may be missing. */
  async uploadParams(params: Readonly<Record<string, Float32Array>>, options: { partial?: boolean } = {}): Promise<void> {
    const above = Compiled.prototype.uploadParams
    const { partial = false } = check(above, () => checkOptions('uploadParams', options, { partial: flag }))
    const { feeds, transfer } = this.arrays('uploadParams', 'parameter', params, above)
    await this.ask({ kind: 'uploadParams', graph: this.#graph, params: feeds, partial }, above, transfer)
  }

  /** Every parameter by name; average: the averages that an optimiser with `average` keeps. */
  async downloadParams(options: AverageOption = {}): Promise<Record<string, Float32Array>> {
    const above = Compiled.prototype.downloadParams
    const { average: averages = false } = check(above, () => checkOptions('downloadParams', options, average))
    return byName(await this.ask({ kind: 'downloadParams', graph: this.#graph, average: averages }, above))
  }

  /** Initial values again (the same seed, the same values); optimiser state, random numbers and step counter back to the start. */
  async reset(): Promise<void> {
    await this.ask({ kind: 'reset', graph: this.#graph }, Compiled.prototype.reset)
  }

  /** After a lost GPU: opens a device again and goes on from the last snapshot. Nothing happens where none was lost. */
  async recover(): Promise<void> {
    const { device, precision } = await this.ask({ kind: 'recover', graph: this.#graph }, Compiled.prototype.recover)
    this.#device = device
    this.#precision = precision
  }

  /** Keeps a copy of every parameter and state: what `recover` goes on from. */
  async snapshot(): Promise<void> {
    await this.ask({ kind: 'snapshot', graph: this.#graph }, Compiled.prototype.snapshot)
  }

  /** The program as text: its IR, kernels, plan, WGSL, ... */
  async inspect(what: TextKind): Promise<string> {
    const above = Compiled.prototype.inspect
    check(above, () => {
      if (!texts.is(what as never)) throw new ArgumentError(`inspect: takes ${texts.text}, not ${describe(what)}`)
    })
    return this.ask({ kind: 'text', graph: this.#graph, what }, above, [], (sizes) => sizes.last.size)
  }

  /** A forward pass that shares this model's parameters and worker. `forward` gets a new module of the same factory. */
  async compileForward<const J extends InputSpecs = {}>(
    forward: Forward<M, J>,
    options: ForwardOptions<J> & AverageOption = {},
  ): Promise<CompiledForward<M, J>> {
    const above = Compiled.prototype.compileForward
    const own = ownOptions('compileForward', above, options, { ...sized, ...average }), whole = forward as Forward<M, InputSpecs>
    const plan: Plan<M> = { what: 'compileForward', above, factory: this.#family.factory, options: own }
    return this.#sibling<J>('compileForward', above, own.average ?? false, async (frames) => {
      if (plan.factory === null) throw new ArgumentError('compileForward: the model was compiled from a graph: use compileGraph')
      checkFunctions(plan.what, plan.factory, forward)
      const chosen = sizeArguments(plan.what, own, this.#family.sizes)
      const bytes = await writtenModel(plan, whole, frames, false, false, chosen.batch)
      const sizes = (graph: number, message: GraphMessage) => sizesOf(plan, whole, false, { family: this.#family, graph, message }, chosen)
      return { bytes, sizes, source: sourceOf(plan, whole, false, chosen.batch) }
    })
  }

  /** The same of a graph traced by hand, whose parameters must all be this model's. */
  async compileGraph(graph: Graph, options: AverageOption = {}): Promise<CompiledForward<M, InputSpecs>> {
    const above = Compiled.prototype.compileGraph
    const { average: averages = false } = check(above, () => checkOptions('compileGraph', options, average))
    return this.#sibling<InputSpecs>('compileGraph', above, averages, async () => {
      checkGraph(graph)
      await graph.trace.settleSitesSlowly()
      return { bytes: graph.bytes(), sizes: () => null, source: graphSource(graph, { training: false }) }
    })
  }

  async #sibling<J extends InputSpecs>(
    what: string,
    above: unknown,
    average: boolean,
    write: (frames: Frames) => Promise<Sibling>,
  ): Promise<CompiledForward<M, J>> {
    const frames = holdFrames(above)
    try {
      refuseNested(frames)
      this.#refuseDestroyed(what)
      const { bytes, sizes, source } = await write(frames)
      const graph = this.#family.nextGraph()
      const body = { kind: 'compileForward' as const, graph, parent: ROOT, bytes, average }
      const message = await this.#family.connection.request(body, [bytes.buffer], frames, what)
      return new CompiledForward<M, J>(this.#family, graph, message, sizes(graph, message), source)
    } catch (error) {
      throw blameOnce(error, frames)
    }
  }

  /** Ends the model, its siblings and its worker (a sibling: itself alone). Calls in flight and later ones reject. Twice is fine. */
  async destroy(): Promise<void> {
    if (this.#graph === ROOT) return this.#family.destroy()
    if (this.destroyed) return
    this.#destroyed = true
    const { connection } = this.#family
    for (const graph of [this.#graph, ...(this.sizes?.graphs ?? [])])
      connection.abandon(graph, (what) => new StateError(`${what}: the model is destroyed`))
    await connection.request({ kind: 'destroy', graph: this.#graph }, [], () => '').catch(() => undefined)
  }

  /** @internal When all calls made so far, of its siblings too, have been answered. */
  settled(): Promise<void> {
    return this.#family.settled()
  }

  /** @internal */
  protected get family(): Family<M> {
    return this.#family
  }

  #refuseDestroyed(what: string): void {
    if (this.#destroyed) throw new StateError(`${what}: the model is destroyed`)
    const reason = this.#family.connection.closed
    if (reason !== null) throw reason(what)
  }

  /** @internal */
  protected get graph(): number {
    return this.#graph
  }

  /** @internal size: which one the request is for, where there are several; `use` is told right before the request goes out. */
  protected async ask<K extends RequestKind>(
    body: Extract<RequestBody, { kind: K }>,
    above: unknown,
    transfer: Transferable[] = [],
    size: ((sizes: Sizes) => number) | null = null,
    use: (sized: Sized) => void = () => undefined,
    frames: Frames = holdFrames(above),
    what: string = body.kind,
  ): Promise<Answers[K]> {
    try {
      this.#refuseDestroyed(what)
      const wanted = this.sizes === null || size === null ? null : size(this.sizes)
      const { turn } = this.#family
      if (turn !== null && WAITS_FOR_TRAINING.has(body.kind)) await turn
      return await this.#send(body, transfer, frames, wanted, use, what)
    } catch (error) {
      throw blameOnce(error, frames)
    }
  }

  #send<K extends RequestKind>(
    body: Extract<RequestBody, { kind: K }>,
    transfer: Transferable[],
    frames: Frames,
    size: number | null,
    use: (sized: Sized) => void,
    what: string,
  ): Promise<Answers[K]> {
    let sized: Sized | null = null
    const take = (found: Sized): void => use((sized = found))
    const prepare = (): void | Promise<void> => {
      this.#refuseDestroyed(what)
      const found = this.sizes === null || size === null ? null : this.sizes.get(size, what, frames)
      if (found instanceof Promise) return found.then(take)
      if (found !== null) take(found)
    }
    return this.#family.send(prepare, async () => {
      this.#refuseDestroyed(what)
      const answer = await this.#family.connection.request(sized === null ? body : { ...body, graph: sized.graph }, transfer, frames, what)
      if (sized !== null) this.#message = sized.message
      return answer
    })
  }

  /** @internal Private copies, made now, that may be transferred. Names and lengths are checked by the core. */
  protected arrays(
    what: string,
    kind: string,
    record: Readonly<Record<string, unknown>>,
    above: unknown,
  ): {
    feeds: ArrayMessage[]
    transfer: Transferable[]
  } {
    if (typeof record !== 'object' || record === null)
      throw blame(new ArgumentError(`${what}: takes ${kind}s by name, not ${describe(record)}`), above)
    const feeds: ArrayMessage[] = []
    for (const [name, value] of Object.entries(record)) {
      if (value === undefined) continue // missing: the core says so
      const dtype = dtypeOfArray(value)
      if (dtype === null) throw blame(new ArgumentError(`${what}: the ${kind} ${name} is ${describe(value)}, ${typesText(kind)}`), above)
      feeds.push({ name, dtype, data: copyOf(value as DataArray) })
    }
    return { feeds, transfer: feeds.map((feed) => feed.data.buffer as ArrayBuffer) }
  }
}

function typesText(kind: string): string {
  return kind === 'parameter' ? 'not a Float32Array' : 'not a Float32Array (f32), Int32Array (i32) or Uint8Array (bool)'
}

interface TrainRun {
  message: TrainMessage
  onProgress: TrainOptions['onProgress']
  signal: AbortSignal | undefined
}

const MAX_STEPS = 2 ** 31 - 1

function trainArguments(options: TrainOptions): TrainRun {
  const { data, steps, order = 'random', stepsPerSubmission = 0, targetLoss, patience = 0, onProgress, signal } = checkOptions('train', options, ofTraining)
  const whole = (what: string, value: unknown, most: number): void => {
    if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > most)
      throw new ArgumentError(`train: ${what} is ${typeof value === 'number' ? value : describe(value)}, not a whole number from 0 to ${most}`)
  }
  if (typeof data !== 'object' || data === null) throw new ArgumentError(`train: data is ${describe(data)}, not arrays by name or a data set`)
  whole('steps', steps, MAX_STEPS)
  whole('stepsPerSubmission', stepsPerSubmission, 4096)
  whole('patience', patience, Number.MAX_SAFE_INTEGER)
  if (order !== 'random' && order !== 'sequential') throw new ArgumentError(`train: order is ${describe(order)}, not 'random' or 'sequential'`)
  if (targetLoss !== undefined && typeof targetLoss !== 'number') throw new ArgumentError(`train: targetLoss is ${describe(targetLoss)}, not a number`)
  if (Number.isNaN(targetLoss ?? 0)) throw new ArgumentError('train: targetLoss is NaN: no loss is below it')
  if (Math.abs(targetLoss ?? 0) === Infinity) throw new ArgumentError(`train: targetLoss is ${targetLoss}, not a finite number`)
  const message = { steps, order, seed: seedArgument('train', options.seed), stepsPerSubmission, targetLoss: told(targetLoss), patience }
  return { message, onProgress, signal }
}

/** The caller may change or reuse the arrays at once. What is no array is refused when its turn comes. */
function copiesOf<R extends Readonly<Record<string, unknown>>>(record: R): R {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, dtypeOfArray(value) === null ? value : copyOf(value as DataArray)])) as R
}

function byName(arrays: readonly ArrayMessage[]): Record<string, Float32Array> {
  return Object.fromEntries(arrays.map(({ name, data }) => [name, data as Float32Array]))
}

const irGetter = Object.getOwnPropertyDescriptor(Compiled.prototype, 'ir')?.get

/** A forward pass. */
export class CompiledForward<M extends Module = Module, I extends InputSpecs = InputSpecs> extends Compiled<M, I> {}

/** Of 0.0.17. */
export type CompiledForwardModule<M extends Module = Module, I extends InputSpecs = InputSpecs> = CompiledForward<M, I>

/** A training model. */
export class CompiledModule<M extends Module = Module, I extends InputSpecs = InputSpecs> extends Compiled<M, I> {
  /** One training step; the loss. A loss that is not finite rejects with a NotFiniteError, the step made; with `skipNonFinite` of the
   *  optimiser nothing but the count of steps is changed. So does a gradient that is not finite, with skipNonFinite, clipNorm or normalize
   *  (the error's loss is NaN then). */
  step<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options?: { withCaptures?: false }): Promise<number>
  step<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options: { withCaptures: true }): Promise<StepResult>
  step<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options: CallOptions): Promise<number | StepResult>
  async step(inputs: Batch, options: CallOptions = {}): Promise<number | StepResult> {
    const above = CompiledModule.prototype.step
    const { withCaptures = false } = check(above, () => checkOptions('step', options, ofCall))
    const { feeds, transfer } = this.arrays('step', 'input', inputs, above)
    try {
      const body = { kind: 'step' as const, graph: this.graph, feeds, withCaptures }
      const { loss, captures } = await this.ask(body, above, transfer, (sizes) => sizes.sizeOf('step', feeds))
      return withCaptures ? { loss, captures: new Captures(captures ?? []) } : loss
    } catch (error) {
      if (error instanceof NotFiniteError) error.captures = withCaptures ? new Captures((error.captures ?? []) as CaptureMessage[]) : null
      throw error
    }
  }

  /** Rows for inputs, [N, ...] where the input is [B, ...], uploaded once: all names, lengths and indices are checked here. batch: B of
   *  inputs with a null axis; default: `batch` of the compile options. */
  async dataset(data: Partial<InputArrays<I>>, options: Pick<TrainOptions, 'batch'> = {}): Promise<Dataset> {
    const above = CompiledModule.prototype.dataset
    return this.#dataset('dataset', data, check(above, () => checkOptions('dataset', options, { batch: anything })).batch, above)
  }
  async #dataset(what: string, data: Partial<InputArrays<I>>, batch: number | undefined, above: unknown, frames: Frames = holdFrames(above)): Promise<Dataset> {
    const { feeds, transfer } = this.arrays(what, 'input', data, above)
    const number = this.family.nextDataset(), size = call(above, () => this.#batchSize(what, batch))
    let users: Sized | null = null, graph = this.graph
    const free = (): void => {
      if (users !== null) users.users--
    }
    const use = (sized: Sized): void => {
      users = sized
      sized.users++
      graph = sized.graph
    }
    try {
      await this.ask({ kind: 'dataset', graph, dataset: number, arrays: feeds }, above, transfer, () => size, use, frames, what)
    } catch (error) {
      free()
      throw error
    }
    const drop = async (): Promise<void> => {
      await this.ask({ kind: 'dataset', graph, dataset: number, arrays: null }, Dataset.prototype.destroy).catch(() => undefined)
      free()
    }
    return new Dataset(this, graph, number, (atOnce) => (atOnce ? drop() : this.family.inTurn(drop)))
  }
  #batchSize(what: string, batch: number | undefined): number {
    const { sizes } = this
    if (batch !== undefined && (!Number.isInteger(batch) || batch < 1))
      throw new ArgumentError(`${what}: batch is ${typeof batch === 'number' ? batch : describe(batch)}, not a whole number from 1 on`)
    if (sizes === null && batch !== undefined) throw new ArgumentError(`${what}: batch is for models whose inputs have a null axis`)
    if (sizes !== null && batch === undefined && !sizes.options.isDeclared)
      throw new ArgumentError(`${what}: how many rows has a batch? Give \`batch\` here or where the model is compiled`)
    return batch ?? sizes?.first.size ?? 0
  }

  /** Many steps, on batches drawn from data that is on the device: `step` with those rows, again and again. The losses of the steps made.
   *  Calls that change the model wait for it; those that read it (run, downloadParams, inspect, snapshot) are answered meanwhile. */
  async train(options: TrainOptions<I>): Promise<Float32Array> {
    const above = CompiledModule.prototype.train
    const frames = holdFrames(above), run = call(above, () => trainArguments(options))
    const { feeds, transfer } = this.arrays('train', 'input', options.inputs ?? {}, above)
    if (options.data instanceof Dataset) {
      const { data } = options
      if (data.destroyed) throw blame(new StateError('train: the data set is destroyed'), above)
      if (data.owner !== this) throw blame(new ArgumentError("train: the data set is another model's"), above)
      if (options.batch !== undefined) throw blame(new ArgumentError('train: batch is given, and a data set, which has its own'), above)
      return this.family.inTurn(() => this.#trainOn(data, run, feeds, transfer, frames))
    }
    call(above, () => this.#batchSize('train', options.batch))
    const arrays = copiesOf(options.data)
    return this.family.inTurn(async () => {
      const data = await this.#dataset('train', arrays, options.batch, above, frames)
      try {
        return await this.#trainOn(data, run, feeds, transfer, frames)
      } finally {
        void data.destroy(true)
      }
    })
  }

  async #trainOn(data: Dataset, run: TrainRun, feeds: ArrayMessage[], transfer: Transferable[], frames: Frames): Promise<Float32Array> {
    const { message, onProgress, signal } = run
    const parts: Float32Array[] = []
    const ask = (options: TrainMessage | 'end' | null, arrays: ArrayMessage[] = [], moved: Transferable[] = []) =>
      this.ask({ kind: 'train', graph: data.graph, dataset: data.number, feeds: arrays, options }, null, moved, null, undefined, frames)
    signal?.throwIfAborted()
    try {
      for (let answer = await ask(message, feeds, transfer), more = true; more && !answer.isOver; ) {
        answer = await ask(null)
        parts.push(answer.losses)
        for (let i = 0; i < answer.losses.length && more; i++)
          more = onProgress?.(answer.step + i, answer.losses[i] as number) !== false
        signal?.throwIfAborted()
      }
    } finally {
      void ask('end').catch(() => undefined)
    }
    return joined(parts)
  }

  /** The gradients of the last step, before clipping, of every parameter (zeros of a frozen one). */
  async downloadParamGrads(): Promise<Record<string, Float32Array>> {
    return byName(await this.ask({ kind: 'downloadParamGrads', graph: this.graph }, CompiledModule.prototype.downloadParamGrads))
  }

  /** Optimiser state and step counter back to the start; parameters stay. */
  async resetOptimizerState(): Promise<void> {
    await this.ask({ kind: 'resetOptimizer', graph: this.graph }, CompiledModule.prototype.resetOptimizerState)
  }

  /** Replaces the rate or schedule; a schedule begins at its start now. */
  async setLR(rate: LR): Promise<void> {
    const above = CompiledModule.prototype.setLR
    const lr = call(above, () => rateArgument('setLR', rate))
    await this.ask({ kind: 'setLR', graph: this.graph, lr }, above)
  }
}

const many = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`
shown(Compiled, (model) => {
  const kind = model instanceof CompiledModule ? 'CompiledModule' : 'CompiledForward'
  const sizes = `${many(model.paramNames.length, 'parameter')}, ${many(model.kernelCount, 'kernel')}`
  return `${kind} on ${model.device}: ${sizes}${model.destroyed ? ', destroyed' : ''}`
})
shown(Dataset, (data) => `Dataset${data.destroyed ? ', destroyed' : ''}`)
