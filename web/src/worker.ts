// The worker's end of the protocol. Owns one core and its models, each on the CPU (the core's own
// executor) or on a GPU. Serves requests one after another, in order. The core decides what a call
// checks and changes; this file carries data between messages, core and device. Must not know the
// platform: `Home` says where WebGPU comes from.

import {
  CallKind, Core, dtypes, Text, type Address, type CallAddress, type CallKindNumber, type CaptureInfo, type Feed, type GpuHooks, type ModelAddress, type ModelInfo,
  type TrainAddress,
} from './core.js'
import { DeviceError, InternalError, NotFiniteError, serialiseError, StateError, TensorgradError, UnsupportedError } from './errors.js'
import { Executable, findAdapter, Gpu, NoGpu, openGpu, type Feeder, type StateRange } from './gpu.js'
import { notStarted } from './loading.js'
import { lrFields, optimizerFields } from './numbers.js'
import { joined } from './protocol.js'
import { Threads, type Thread } from './threads.js'
import { Timer } from './timer.js'
import type {
  Answers, ArrayMessage, CaptureMessage, GraphMessage, Request, RequestBody, RequestKind, Response, TrainedMessage,
} from './protocol.js'
import type { DataArray, Dtype, Precision } from './types.js'

export interface Home {
  /** Null if there is no WebGPU at all, for the reason `noGpu`. */
  gpu(): Promise<GPU | null>
  noGpu: string
  /** Only where a core can have threads. */
  startThread?(): Thread
  /** The device to use for 'auto', and the adapter where none is named. */
  device: string
  adapter: string
}
export type Post = (message: Response, transfer: Transferable[]) => void

type Body<K extends RequestKind> = Extract<RequestBody, { kind: K }>
type Handlers = { [K in RequestKind]: (body: Body<K>, next: () => void) => Answers[K] | Promise<Answers[K]> }

/** A root model and what its siblings share. */
interface Family {
  gpu: Gpu | null
  /** How the device was asked for, in case it must be opened again. */
  adapter: string
  deviceText: string
  models: Set<number>
}
interface Model {
  family: Family
  address: ModelAddress
  /** The model that this is a size of; null for a model of its own. */
  owner: number | null
  /** Those that no request uses now. */
  calls: CallAddress[]
  info: ModelInfo
  datasets: Map<number, Address>
  training: { address: TrainAddress; dataset: Address } | null
}

// ---------------------------------------------------------------- the queue

/** The steps of a model that a GPU may have at a time: while one is read back, the next ones
 *  run. */
const RING = 3

/** How long training runs before the page hears of it. */
const TELL_MS = 40
/** Steps on the CPU between two looks at the clock. */
const CPU_STEPS = 16

/** Returns the function to call with each message of the page. */
export function serve(home: Home, post: Post): (request: Request) => void {
  const worker = new Worker(home)
  let queue: Promise<void> = Promise.resolve() // until the next request may begin
  const flying: { key: string | null; answered: Promise<void> }[] = []
  const begin = async (request: Request): Promise<void> => {
    const key = worker.overlapKey(request)
    const mayOverlap = key !== null && flying.every((each) => each.key === key)
    while (flying.length > (mayOverlap ? RING - 1 : 0)) await flying[0]?.answered
    await new Promise<void>((next) => {
      const before = flying.at(-1)?.answered
      const answered = worker.answer(request, next).then(async (response) => {
        await before
        flying.shift()
        post(response, response.ok ? buffersOf(response.value) : [])
        next()
      })
      flying.push({ key, answered })
    })
  }
  return (request) => {
    queue = queue.then(() => begin(request))
  }
}

/** The buffers to transfer with an answer: each of its arrays is a private copy. */
function buffersOf(value: Answers[RequestKind]): Transferable[] {
  if (typeof value !== 'object' || value === null) return []
  const arrays: (DataArray | undefined)[] = []
  if (Array.isArray(value)) arrays.push(...value.map((array) => array.data))
  if ('output' in value) arrays.push(value.output)
  if ('losses' in value) arrays.push(value.losses)
  if ('captures' in value) arrays.push(...(value.captures ?? []).map((capture) => capture.data))
  return arrays.filter((array) => array !== undefined).map((array) => array.buffer as ArrayBuffer)
}

// ---------------------------------------------------------------- the worker

class Worker {
  #core: Core | null = null
  #threads: Threads | null = null
  readonly #models = new Map<number, Model>()
  readonly #devices = new Map<number, Gpu>()
  readonly #executables = new Map<number, Executable>()
  readonly #feeders = new Map<number, { feeder: Feeder; executable: Executable }>()
  #lastNumber = 0
  /** The device that the core opens next. */
  #opened: Gpu | null = null
  /** The core's warnings since the last answer. */
  #warnings: string[] = []
  /** The executables made by the request being served. */
  #fresh: Executable[] = []

  constructor(readonly home: Home) {}

  /** A request may begin before the one before it is answered if both have the same key, not null:
   *  plain steps of one model on a GPU. */
  overlapKey(request: Request): string | null {
    const isPlain = request.kind === 'step' && !request.withCaptures && this.#models.get(request.graph)?.family.gpu != null
    return isPlain ? `${request.graph}` : null
  }

  /** Calls `next` when a request of the same key may begin, if that is before the answer. */
  async answer(request: Request, next: () => void): Promise<Response> {
    try {
      const handler = this.#handlers[request.kind] as (body: RequestBody, next: () => void) => Promise<Answers[RequestKind]>
      return this.#withWarnings({ id: request.id, ok: true, value: await handler(request, next) })
    } catch (error) {
      return this.#withWarnings({ id: request.id, ok: false, error: serialiseError(error) })
    }
  }
  #withWarnings(response: Response): Response {
    return this.#warnings.length > 0 ? { ...response, warnings: this.#warnings.splice(0) } : response
  }

  readonly #handlers: Handlers = {
    createRuntime: (body) => this.#createRuntime(body),
    compileForward: (body) => this.#compileSibling(body),
    compileSize: (body) => this.#compileSize(body),
    step: async (body, next) => {
      const { result, captures } = await this.#call(body, body.withCaptures ? CallKind.stepWithCaptures : CallKind.step, next)
      return { loss: result[0] as number, captures }
    },
    run: async (body) => {
      const { result, captures } = await this.#call(body, body.withCaptures ? CallKind.runWithCaptures : CallKind.run)
      return { output: result, captures }
    },
    profile: (body) => this.#profile(this.#model(body.graph), body),
    uploadParams: ({ graph, params, partial }) => this.#change(graph, 'uploadParams', (core, model) => core.upload(model, params, partial)),
    downloadParams: ({ graph, average }) => (average ? this.#averages(this.#model(graph)) : this.#parameters(this.#model(graph))),
    downloadParamGrads: ({ graph }) => this.#gradients(this.#model(graph)),
    resetOptimizer: async ({ graph }) => {
      await this.#snapshot(this.#model(graph))
      return this.#change(graph, 'resetOptimizerState', (core, model) => core.resetOptimizer(model))
    },
    reset: ({ graph }) => this.#change(graph, 'reset', (core, model) => core.reset(model)),
    setLR: ({ graph, lr }) => this.#change(graph, 'setLR', (core, model) => core.setLR(model, lrFields(lr))),
    text: ({ graph, what }) => this.#theCore.modelText(this.#model(graph).address, Text[what]),
    dataset: (body) => this.#dataset(this.#model(body.graph), body),
    train: (body) => this.#train(this.#model(body.graph), body),
    snapshot: async ({ graph }) => {
      await this.#snapshot(this.#model(graph))
      return null
    },
    recover: ({ graph }) => this.#recover(this.#model(graph)),
    destroy: ({ graph }) => this.#destroy(graph),
  }

  get #theCore(): Core {
    if (this.#core === null) throw new InternalError('the worker was asked before it had a core')
    return this.#core
  }
  #model(graph: number): Model {
    const model = this.#models.get(graph)
    if (model === undefined) throw new StateError('the model is destroyed')
    return model
  }

  // ---- what the core asks of a GPU: answered at once, awaited later

  readonly #hooks: GpuHooks = {
    open: () => {
      const gpu = this.#opened
      this.#opened = null
      if (gpu === null) return null
      this.#devices.set(++this.#lastNumber, gpu)
      return { device: this.#lastNumber, limits: gpu.limits }
    },
    close: (device) => {
      this.#devices.get(device)?.close()
      this.#devices.delete(device)
    },
    isLost: (device) => this.#devices.get(device)?.isLost ?? true,
    makeState: (device, slot, dtype, count) => this.#devices.get(device)?.makeState(slot, dtype, count),
    writeState: (device, slot, first, data) => this.#devices.get(device)?.writeState(slot, first, data),
    load: (device, program) => {
      const executable = new Executable(this.#devices.get(device) as Gpu, program, this.#theCore)
      this.#executables.set(++this.#lastNumber, executable)
      this.#fresh.push(executable)
      return this.#lastNumber
    },
    unload: (_device, number) => {
      this.#executables.get(number)?.unload()
      this.#executables.delete(number)
    },
    makeFeeder: (_device, info) => {
      const executable = this.#executables.get(info.executable) as Executable
      this.#feeders.set(++this.#lastNumber, { executable, feeder: executable.makeFeeder(info, this.#theCore) })
      return this.#lastNumber
    },
    dropFeeder: (_device, number) => {
      const made = this.#feeders.get(number)
      made?.executable.dropFeeder(made.feeder)
      this.#feeders.delete(number)
    },
  }

  /** Makes a call of the core, and throws the device's errors in what it started, also those of
   *  shaders that compile meanwhile. */
  async #guarded<R>(gpu: Gpu | null, what: string, body: () => R): Promise<R> {
    if (gpu === null) return body()
    this.#fresh = []
    const result = await gpu.guarded(what, body)
    await Promise.all(this.#fresh.map((executable) => executable.ready()))
    return result
  }

  async #change(graph: number, what: string, body: (core: Core, model: ModelAddress) => void): Promise<null> {
    const { family, address } = this.#model(graph)
    await this.#guarded(family.gpu, what, () => body(this.#theCore, address))
    return null
  }

  // ---- compiling

  async #createRuntime(body: Body<'createRuntime'>): Promise<GraphMessage> {
    if (body.module === null) throw new InternalError('the page posted no core')
    const core = (this.#core ??= (await this.#createThreads(body)) ?? this.#createCore(body.module))
    core.onWarning = (message) => void this.#warnings.push(message)
    const { gpu, why } = await this.#openDevice(body.device, body.adapter)
    const options = {
      training: body.training, seed: body.seed, device: gpu === null ? 'cpu' as const : 'webgpu' as const, noFusion: body.noFusion,
      checkFinite: body.checkFinite,
      precision: body.precision, lossScale: body.lossScale,
      optimizer: body.optimizer === null ? null : optimizerFields(body.optimizer),
    }
    const family: Family = { gpu, adapter: body.adapter, deviceText: '', models: new Set() }
    this.#opened = gpu
    try {
      const model = await this.#make(family, body.graph, () => core.createModel(body.bytes, options))
      family.deviceText = gpu?.description ?? (why === '' ? model.info.device : `${model.info.device}: ${why}`)
      return this.#describe(model, why)
    } catch (error) {
      this.#opened = null
      gpu?.close()
      throw error
    }
  }

  #createCore(module: WebAssembly.Module): Core {
    try {
      return Core.create(module, this.#hooks)
    } catch (error) {
      throw error instanceof TensorgradError ? error : notStarted(error)
    }
  }

  /** Null: the core runs without threads. If threads were asked for, there is a warning. */
  async #createThreads({ threaded, threads }: Body<'createRuntime'>): Promise<Core | null> {
    if (threaded === null || this.home.startThread === undefined) return null
    try {
      this.#threads = await Threads.start(threaded, threads, this.home.startThread)
      return Core.create(threaded, this.#hooks, this.#threads)
    } catch (error) {
      await this.#threads?.end()
      this.#threads = null
      this.#warnings.push(`compile: one thread instead of ${threads}: ${(error as Error).message}`)
      return null
    }
  }

  #compileSibling(body: Body<'compileForward'>): Promise<GraphMessage> {
    const parent = this.#model(body.parent)
    const making = this.#make(parent.family, body.graph, () => this.#theCore.createSibling(parent.address, body.bytes, body.average))
    return making.then((model) => this.#describe(model, ''))
  }

  #compileSize(body: Body<'compileSize'>): Promise<GraphMessage> {
    const owner = this.#model(body.parent)
    const making = this.#make(owner.family, body.graph, () => this.#theCore.createSize(owner.address, body.bytes), body.parent)
    return making.then((model) => this.#describe(model, ''))
  }

  async #make(family: Family, graph: number, body: () => ModelAddress, owner: number | null = null): Promise<Model> {
    const core = this.#theCore
    let address: ModelAddress = 0
    try {
      await this.#guarded(family.gpu, 'compiling', () => (address = body()))
      const model: Model = {
        family, address, owner, calls: [core.createCall(address)], info: core.describeModel(address), datasets: new Map(), training: null,
      }
      this.#models.set(graph, model)
      family.models.add(graph)
      return model
    } catch (error) {
      if (address !== 0) core.destroyModel(address)
      throw error
    }
  }

  /** `why`: the reason for the CPU, if WebGPU would have been used. */
  async #openDevice(asked: string, adapter: string): Promise<{ gpu: Gpu | null; why: string }> {
    const device = asked === 'auto' ? this.home.device : asked
    const hasCpu = this.#theCore.hasCpu
    if (device === 'cpu') {
      if (hasCpu) return { gpu: null, why: '' }
      throw new UnsupportedError('compile: this build of tensorgrad has no CPU executor')
    }
    try {
      return { gpu: await this.#openGpu(adapter, device === 'auto' && hasCpu), why: '' }
    } catch (error) {
      const why = (error as Error).message
      if (device === 'auto' && hasCpu) return { gpu: null, why }
      throw new DeviceError(`compile: WebGPU cannot be used: ${why}`)
    }
  }
  async #openGpu(adapter: string, real: boolean): Promise<Gpu> {
    const gpu = await this.home.gpu()
    if (gpu === null) throw new NoGpu(this.home.noGpu)
    return openGpu(await findAdapter(gpu, adapter || this.home.adapter, real))
  }

  #describe(model: Model, fallback: string): GraphMessage {
    const { info, params, output } = model.info
    return {
      precision: precisionOf(model.info),
      device: model.family.deviceText, deviceKind: model.family.gpu === null ? 'cpu' : 'webgpu', fallback,
      kernelCount: info.kernels, dispatchCount: info.dispatches, programBytes: info.programBytes, peakBytes: info.peakBytes,
      outputShape: output.shape, outputDtype: dtypes[output.dtype] as Dtype, params: params.map(({ name, shape }) => ({ name, shape })),
      ir: this.#theCore.modelText(model.address, Text.ir),
    }
  }

  // ---- calls

  async #call(
    body: { graph: number; feeds: ArrayMessage[] }, kind: CallKindNumber, next = (): void => undefined, timer: Timer | null = null,
  ): Promise<{ result: DataArray; captures: CaptureMessage[] | null }> {
    const model = this.#model(body.graph)
    const core = this.#theCore
    const call = model.calls.pop() ?? core.createCall(model.address)
    const asked = kind === CallKind.stepWithCaptures || kind === CallKind.runWithCaptures
    const isStep = kind === CallKind.step || kind === CallKind.stepWithCaptures
    const captures = () => (asked ? core.captures(call).map((info) => captureOf(core, info)) : null)
    try {
      if (model.family.gpu === null) this.#runOnCpu(call, kind, body.feeds)
      else await this.#runOnGpu(call, model.family.gpu, kind, body.feeds, next, timer)
      const { shape, dtype } = model.info.output
      const result = isStep ? core.result(call, 'f32', 1) : core.result(call, dtypes[dtype] as Dtype, countOf(shape))
      return { result, captures: captures() }
    } catch (error) {
      if (error instanceof NotFiniteError) { // the step was made
        error.loss = core.loss(call)
        error.captures = captures()
      }
      throw error
    } finally {
      core.end(call)
      model.calls.push(call)
    }
  }

  #runOnCpu(call: CallAddress, kind: CallKindNumber, feeds: readonly Feed[]): void {
    this.#theCore.begin(call, kind, feeds)
    this.#theCore.run(call)
  }

  /** Calls `next` when the core could begin another step of the model. */
  async #runOnGpu(
    call: CallAddress, gpu: Gpu, kind: CallKindNumber, feeds: readonly Feed[], next: () => void, timer: Timer | null,
  ): Promise<void> {
    const core = this.#theCore
    await this.#begin(call, gpu, kind, feeds)
    for (let number = core.program(call); number !== 0; number = core.program(call)) {
      const executable = this.#executables.get(number)
      if (executable === undefined) throw new InternalError('the core runs a program that it did not load')
      const inputs = [...core.inputs(call, executable.program.inputs.length)]
      const outputs = [...core.outputs(call, executable.program.outputs.length)]
      try {
        await executable.run(core, inputs, outputs, core.isLast(call) ? next : undefined, core.isLast(call) ? timer : null)
      } catch (error) { // the call ends with it
        core.setError(error instanceof TensorgradError ? error.status : 18, (error as Error).message)
        core.next(call, error instanceof TensorgradError ? error.status : 18)
        throw error
      }
      core.next(call)
    }
  }
  async #profile(model: Model, body: Body<'profile'>): Promise<Answers['profile']> {
    const { gpu } = model.family
    if (gpu === null) throw new UnsupportedError(`profile: launches are timed on a GPU, not on ${model.family.deviceText}`)
    if (!gpu.device.features.has('timestamp-query')) throw new UnsupportedError(`profile: ${gpu.description} does not offer timestamp-query`)
    const launches = this.#theCore.launches(model.address), timer = new Timer(gpu, launches.length)
    const kind = model.info.training ? CallKind.step : CallKind.run
    try {
      await this.#call(body, kind) // the first is slower
      for (let step = 0; step < body.steps; step++) await this.#call(body, kind, undefined, timer)
      return { launches: launches.map((launch, i) => ({ ...launch, ms: timer.milliseconds[i] as number })) }
    } finally {
      timer.destroy()
    }
  }

  /** The first call of its kind compiles, so it throws the device's errors. Other calls send
   *  nothing to the device here. */
  async #begin(call: CallAddress, gpu: Gpu, kind: CallKindNumber, feeds: readonly Feed[]): Promise<void> {
    gpu.checkAlive()
    const known = this.#executables.size
    this.#fresh = []
    this.#theCore.begin(call, kind, feeds)
    if (this.#executables.size !== known) await gpu.guarded('compiling', () => Promise.all(this.#fresh.map((executable) => executable.ready())))
  }

  // ---- many steps

  async #dataset(model: Model, { dataset, arrays }: Body<'dataset'>): Promise<null> {
    const core = this.#theCore, known = model.datasets.get(dataset)
    if (arrays === null) {
      if (known !== undefined) core.destroyDataset(known)
      model.datasets.delete(dataset)
      return null
    }
    let made: Address = 0
    try {
      await this.#guarded(model.family.gpu, 'dataset', () => (made = core.createDataset(model.address, arrays, rowsOf(model.info, arrays))))
      await this.#feeders.get(core.feederOf(made))?.feeder.pipeline
    } catch (error) {
      if (made !== 0) core.destroyDataset(made)
      throw error
    }
    model.datasets.set(dataset, made)
    return null
  }

  async #train(model: Model, { dataset, feeds, options }: Body<'train'>): Promise<TrainedMessage> {
    const core = this.#theCore, none = new Float32Array(0)
    if (options === 'end') {
      if (model.training !== null) core.endTraining(model.training.address)
      model.training = null
      return { step: 0, losses: none, isOver: true }
    }
    if (options === null) return this.#trainSome(model)
    const address = model.datasets.get(dataset)
    if (address === undefined) throw new StateError('train: the data set is destroyed')
    if (model.training !== null) throw new InternalError('two training runs of one model')
    model.training = { address: core.beginTraining(model.address, address, options, feeds), dataset: address }
    return { step: core.steps(model.address) + 1, losses: none, isOver: core.nextSteps(model.training.address).most === 0 }
  }

  /** Makes submissions for a bounded time. Then the page hears of them, and other requests can be
   *  served. */
  async #trainSome(model: Model): Promise<TrainedMessage> {
    const core = this.#theCore, { training } = model
    if (training === null) throw new InternalError('no training run to go on with')
    const step = core.steps(model.address) + 1, parts: Float32Array[] = []
    const until = performance.now() + TELL_MS
    let steps = core.nextSteps(training.address)
    try {
      for (let isFirst = true; steps.most > 0 && (isFirst || performance.now() < until); isFirst = false) {
        parts.push(await this.#submitSteps(model, training, steps.most, steps.exact))
        steps = core.nextSteps(training.address)
      }
    } catch (error) {
      if (error instanceof NotFiniteError) error.loss = core.trainResult(training.address).loss // the step was made
      throw error
    }
    return { step, losses: joined(parts), isOver: steps.most === 0 }
  }

  async #submitSteps(model: Model, { address, dataset }: NonNullable<Model['training']>, most: number, exact: boolean): Promise<Float32Array> {
    const core = this.#theCore, { gpu } = model.family
    if (gpu === null) {
      const before = core.trainResult(address).steps
      core.trainOnCpu(address, exact ? most : Math.min(most, CPU_STEPS))
      return core.lossesOf(address, core.trainResult(address).steps - before)
    }
    try {
      gpu.checkAlive()
      const made = this.#feeders.get(core.feederOf(dataset))
      const losses = made === undefined ? await this.#stepOnHost(model, gpu, address) : await this.#stepFed(made, address, most, exact)
      core.trained(address, losses)
      return losses
    } catch (error) {
      if (!(error instanceof NotFiniteError)) core.failTraining(address, error instanceof TensorgradError ? error.status : 18, (error as Error).message)
      throw error
    }
  }
  #stepFed({ feeder, executable }: { feeder: Feeder; executable: Executable }, address: TrainAddress, most: number, exact: boolean): Promise<Float32Array> {
    const { control, inputs } = this.#theCore.submission(address, () => executable.program.inputs.length)
    return executable.train(this.#theCore, feeder, control, inputs, most, exact)
  }
  /** For a model that computes indices, which are checked before every step. */
  async #stepOnHost(model: Model, gpu: Gpu, address: TrainAddress): Promise<Float32Array> {
    const core = this.#theCore, call = model.calls.pop() ?? core.createCall(model.address)
    try {
      core.beginStep(address, call)
      await this.#runPrograms(call, gpu)
      return Float32Array.of(core.loss(call))
    } finally {
      core.end(call)
      model.calls.push(call)
    }
  }
  async #runPrograms(call: CallAddress, gpu: Gpu): Promise<void> {
    const core = this.#theCore
    for (let number = core.program(call); number !== 0; number = core.program(call)) {
      const executable = this.#executables.get(number)
      if (executable === undefined || executable.gpu !== gpu) throw new InternalError('the core runs a program that it did not load')
      const inputs = [...core.inputs(call, executable.program.inputs.length)]
      await executable.run(core, inputs, [...core.outputs(call, executable.program.outputs.length)])
      if (core.isLast(call)) return
      core.next(call)
    }
  }

  // ---- parameters and states

  /** A flat state of a model, cut by parameter. */
  async #cut(model: Model, slot: number): Promise<ArrayMessage[]> {
    const { params, total } = model.info
    const all = slot < 0 ? null : ((await this.#read(model, [{ slot, first: 0, count: total }]))[0] as DataArray)
    return params.map(({ name, offset, count }) => ({
      name, dtype: 'f32', data: all === null ? new Float32Array(count) : all.slice(offset, offset + count),
    }))
  }
  #read(model: Model, ranges: readonly StateRange[]): Promise<DataArray[]> | DataArray[] {
    const { family: { gpu }, address, info } = model
    if (gpu !== null) return gpu.readStates(ranges)
    return ranges.map(({ slot, first, count }) => {
      const dtype = dtypes[info.states[slot]?.dtype as number] as Dtype
      return this.#theCore.readState(address, slot, dtype, first, count)
    })
  }
  #parameters(model: Model): Promise<ArrayMessage[]> {
    return this.#cut(model, model.info.parameters)
  }
  /** A frozen parameter is its own average. */
  async #averages(model: Model): Promise<ArrayMessage[]> {
    if (model.info.average < 0)
      throw new StateError('downloadParams: the model keeps no average of its parameters: compile it with an optimizer that has `average`')
    const averages = await this.#cut(model, model.info.average), own = await this.#cut(model, model.info.parameters)
    return averages.map((average, i) => (model.info.params[i]?.frozen === true ? (own[i] as ArrayMessage) : average))
  }
  #gradients(model: Model): Promise<ArrayMessage[]> {
    this.#theCore.checkGrads(model.address)
    model.info = this.#theCore.describeModel(model.address)
    return this.#cut(model, model.info.gradients)
  }

  /** Takes the snapshot that a recovery after a lost device goes on from. The CPU is never lost. */
  async #snapshot(model: Model): Promise<void> {
    const { gpu } = model.family
    if (gpu === null) return
    const { states } = this.#theCore.describeModel(model.address)
    this.#theCore.snapshot(model.address, await gpu.readStates(states.map(({ count }, slot) => ({ slot, first: 0, count }))))
  }

  async #recover(model: Model): Promise<Answers['recover']> {
    const { family } = model
    if (family.gpu === null) return { device: family.deviceText, deviceKind: 'cpu', precision: 'f32' }
    if (family.gpu.isLost) {
      const opened = await this.#openGpu(family.adapter, false).catch((error: Error) => {
        throw new DeviceError(`recover: WebGPU cannot be used: ${error.message}`)
      })
      this.#opened = opened
      try {
        await this.#guarded(opened, 'recovering', () => this.#theCore.recover(model.address))
      } finally {
        this.#opened = null
      }
      family.gpu = opened
      family.deviceText = opened.description
    }
    return { device: family.deviceText, deviceKind: 'webgpu', precision: precisionOf(this.#theCore.describeModel(model.address)) }
  }

  async #destroy(graph: number): Promise<null> {
    const model = this.#models.get(graph)
    if (model === undefined) return null
    const core = this.#theCore
    const isRoot = Math.min(...model.family.models) === graph
    const gone = [...model.family.models].filter((each) => isRoot || each === graph || this.#model(each).owner === graph)
    for (const each of gone) {
      const { calls, training, datasets } = this.#model(each)
      if (training !== null) core.endTraining(training.address)
      for (const dataset of datasets.values()) core.destroyDataset(dataset)
      for (const call of calls) core.destroyCall(call)
      this.#models.delete(each)
      model.family.models.delete(each)
    }
    core.destroyModel(model.address) // the core destroys siblings with their parent, and sizes with their model
    if (this.#models.size === 0) await this.#threads?.end()
    return null
  }
}

/** The rows of the data: those of the first array whose input is known. The core checks the
 *  others. */
function rowsOf(info: ModelInfo, arrays: readonly ArrayMessage[]): number {
  for (const { name, data } of arrays) {
    const shape = info.inputs.find((input) => input.name === name)?.shape
    if (shape !== undefined && shape.length > 0) return Math.floor(data.length / countOf(shape.slice(1)))
  }
  return 1
}

const precisionOf = ({ info }: ModelInfo): Precision => (info.precision === 1 ? 'f16' : 'f32')

const countOf = (shape: readonly number[]): number => shape.reduce((count, dim) => count * dim, 1)

function captureOf(core: Core, { name, shape, dtype, count, data }: CaptureInfo): CaptureMessage {
  return { name, shape, dtype: dtypes[dtype] as Dtype, data: core.view(dtypes[dtype] as Dtype, data, count).slice() }
}
