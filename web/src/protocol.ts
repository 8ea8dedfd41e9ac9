// The worker protocol: every message between the page and the worker, and the page's end of it
// (Connection). Requests are numbered; each is answered once, in order. Must not know WebAssembly,
// WebGPU or a kind of worker: it sees only a Port.

import { restoreError, WorkerError, type Frames, type SerialisedError } from './errors.js'
import type { LaunchInfo } from './core.js'
import type { LR } from './lr.js'
import type { OptimizerKind } from './optimizer.js'
import type { DataArray, Device, Dtype, Precision } from './types.js'

// ---------------------------------------------------------------- what a worker looks like

/** One end of a worker, the same on every platform. `onFailure`: the worker is gone or of no more
 *  use. */
export interface Port {
  post(message: Request, transfer: Transferable[]): void
  onMessage(listener: (message: Response) => void): void
  onFailure(listener: (error: Error) => void): void
  terminate(): void
}

/** How a platform (a browser page, Node, a test) starts a worker. If it throws or rejects,
 *  compiling rejects. */
export type StartWorker = () => Port | Promise<Port>

// ---------------------------------------------------------------- page to worker

/** The optimiser as the C core has it. A field left out is the core's default. decayFilter and
 *  groups are in the graph. */
export interface OptimizerMessage {
  kind: OptimizerKind
  lr: LR
  beta1?: number
  beta2?: number
  eps?: number
  epsMode?: 'uncorrected' | 'corrected'
  weightDecay?: number
  momentum?: number
  nesterov?: boolean
  clipNorm?: number
  clipValue?: number
  normalize?: boolean
  skipNonFinite?: boolean
  accumulate?: number
  average?: number
}

/** One array fed or uploaded: a private copy, transferred. A `bool` is one byte. */
export interface ArrayMessage {
  name: string
  dtype: Dtype
  data: DataArray
}

/** The page gives the `graph` numbers: unique within a worker, never used twice. tg_graph_write
 *  wrote `bytes`. */
export type RequestBody =
  | {
      kind: 'createRuntime'
      graph: number
      bytes: Uint8Array
      training: boolean
      optimizer: OptimizerMessage | null
      seed: bigint
      device: Device
      adapter: string
      noFusion: boolean
      checkFinite: boolean
      precision: Precision
      lossScale: number
      /** The caller's own included. More than one if `threaded`, the core with threads, is
       *  given. */
      threads: number
      threaded: WebAssembly.Module | null
      /** The core, compiled once by the page; null if the worker must load it itself. */
      module: WebAssembly.Module | null
    }
  | { kind: 'compileForward'; graph: number; parent: number; bytes: Uint8Array; average: boolean }
  /** The model of `parent`, traced for another size. It steps and runs like the parent. */
  | { kind: 'compileSize'; graph: number; parent: number; bytes: Uint8Array }
  | { kind: 'step'; graph: number; feeds: ArrayMessage[]; withCaptures: boolean }
  | { kind: 'run'; graph: number; feeds: ArrayMessage[]; withCaptures: boolean }
  /** Makes `steps` steps (runs of a forward pass) whose launches are timed. */
  | { kind: 'profile'; graph: number; feeds: ArrayMessage[]; steps: number }
  | { kind: 'uploadParams'; graph: number; params: ArrayMessage[]; partial: boolean }
  | { kind: 'downloadParams'; graph: number; average: boolean }
  | { kind: 'downloadParamGrads'; graph: number }
  | { kind: 'resetOptimizer'; graph: number }
  | { kind: 'reset'; graph: number }
  | { kind: 'setLR'; graph: number; lr: LR }
  | { kind: 'text'; graph: number; what: TextKind }
  /** `arrays` null destroys the data set. `dataset` numbers follow the rule of graph numbers. */
  | { kind: 'dataset'; graph: number; dataset: number; arrays: ArrayMessage[] | null }
  /** `options` begins a training run; null makes some of its steps, for a bounded time; 'end' ends
   *  it, complete or not. A graph has one run at a time. */
  | { kind: 'train'; graph: number; dataset: number; feeds: ArrayMessage[]; options: TrainMessage | 'end' | null }
  | { kind: 'snapshot'; graph: number }
  | { kind: 'recover'; graph: number }
  /** A parent is destroyed with its siblings, and a model with its sizes. */
  | { kind: 'destroy'; graph: number }

export type Request = RequestBody & { id: number }
export type RequestKind = RequestBody['kind']

// ---------------------------------------------------------------- worker to page

export interface ParamMessage {
  name: string
  shape: number[]
}

export interface TrainMessage {
  steps: number
  order: 'random' | 'sequential'
  seed: bigint
  stepsPerSubmission: number
  targetLoss: number
  patience: number
}

/** Steps that were made. `step`: the number of the first one, counted from 1. */
export interface TrainedMessage {
  step: number
  losses: Float32Array
  isOver: boolean
}

export interface CaptureMessage {
  name: string
  shape: number[]
  dtype: Dtype
  data: DataArray
}

/** Facts of a compiled graph: the synchronous properties of a compiled model. */
export interface GraphMessage {
  /** "cpu (simd128)", "webgpu (swiftshader)". */
  device: string
  deviceKind: 'cpu' | 'webgpu'
  /** Why WebGPU is not used although it was wanted: "this browser has no WebGPU". "" if there is no
   *  reason to give. */
  fallback: string
  /** The precision of contractions in use. */
  precision: Precision
  kernelCount: number
  dispatchCount: number
  programBytes: number
  peakBytes: number
  outputShape: number[]
  outputDtype: Dtype
  params: ParamMessage[]
  ir: string
}

/** A launch of a step, and its milliseconds. */
export interface LaunchTime extends LaunchInfo { ms: number }

export type TextKind = 'ir' | 'kernels' | 'plan' | 'dot' | 'c' | 'wgsl'

/** The answer to each kind of request. */
export interface Answers {
  createRuntime: GraphMessage
  compileForward: GraphMessage
  compileSize: GraphMessage
  step: { loss: number; captures: CaptureMessage[] | null }
  run: { output: DataArray; captures: CaptureMessage[] | null }
  profile: { launches: LaunchTime[] }
  uploadParams: null
  downloadParams: ArrayMessage[]
  downloadParamGrads: ArrayMessage[]
  resetOptimizer: null
  reset: null
  setLR: null
  text: string
  dataset: null
  train: TrainedMessage
  snapshot: null
  /** The device may be another one after a recovery. */
  recover: { device: string; deviceKind: 'cpu' | 'webgpu'; precision: Precision }
  destroy: null
}

export type Response<K extends RequestKind = RequestKind> = (
  { id: number; ok: true; value: Answers[K] } | { id: number; ok: false; error: SerialisedError }
) & { /** The core's, since the answer before. */ warnings?: string[] }

// ---------------------------------------------------------------- the page's end

interface Pending {
  what: string
  graph: number
  resolve(value: never): void
  reject(error: Error): void
  /** The user's frames of the call, for an error made in the worker. */
  frames: Frames
  answered: Promise<unknown>
}

/** Why no call can be made any more. `what`: the call that is refused. */
export type Reason = (what: string) => Error

const GRACE_MS = 1000

/** One worker and the calls in flight to it. After `shutDown` or a crash, every call in flight and
 *  every later call rejects with the reason. */
export class Connection {
  readonly #port: Port
  readonly #pending = new Map<number, Pending>()
  #lastId = 0
  #closed: Reason | null = null
  #ended: Promise<void> | null = null
  #farewell: { id: number; done(): void } | null = null

  /** `heard` is called with each warning that comes with an answer to any call. */
  constructor(port: Port, readonly heard: (warning: string) => void = () => undefined) {
    this.#port = port
    port.onMessage((message) => this.#receive(message))
    port.onFailure((error) => this.#fail(error))
  }

  /** Why calls cannot be made; null while they can. */
  get closed(): Reason | null {
    return this.#closed
  }

  /** Posts at once, so messages are in the order of the calls. `what`: the user's call. */
  request<K extends RequestKind>(
    body: Extract<RequestBody, { kind: K }>, transfer: Transferable[], frames: Frames, what: string = body.kind,
  ): Promise<Answers[K]> {
    if (this.#closed !== null) return Promise.reject(this.#closed(what))
    const id = ++this.#lastId
    let settle: Pick<Pending, 'resolve' | 'reject'> | null = null
    const answered = new Promise<Answers[K]>((resolve, reject) => {
      settle = { resolve, reject }
      this.#port.post({ ...body, id }, transfer)
    })
    if (settle !== null) this.#pending.set(id, { what, graph: body.graph, ...(settle as Pick<Pending, 'resolve' | 'reject'>), frames, answered })
    return answered
  }

  /** Resolves when all calls in flight have been answered or rejected. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#pending.values()].map((call) => call.answered))
  }

  /** Rejects the calls in flight of one graph, without waiting for their answers. */
  abandon(graph: number, reason: Reason): void {
    for (const [id, call] of this.#pending) {
      if (call.graph !== graph) continue
      this.#pending.delete(id)
      call.reject(reason(call.what))
    }
  }

  /** Rejects all calls now, lets the worker give back its device, and ends it. A second call does
   *  nothing. */
  shutDown(graph: number, reason: Reason): Promise<void> {
    return (this.#ended ??= this.#closed !== null ? Promise.resolve() : this.#sayGoodbye(graph, reason))
  }

  async #sayGoodbye(graph: number, reason: Reason): Promise<void> {
    this.#close(reason)
    await new Promise<void>((done) => {
      this.#farewell = { id: ++this.#lastId, done }
      setTimeout(done, GRACE_MS)
      this.#port.post({ kind: 'destroy', graph, id: this.#lastId }, [])
    })
    this.#port.terminate()
  }

  #close(reason: Reason): void {
    this.#closed = reason
    const pending = [...this.#pending.values()]
    this.#pending.clear()
    for (const call of pending) call.reject(reason(call.what))
  }

  #receive(message: Response): void {
    if (message.id === this.#farewell?.id) this.#farewell.done()
    const call = this.#pending.get(message.id)
    this.#pending.delete(message.id)
    if (message.ok) call?.resolve(message.value as never)
    else call?.reject(restoreError(message.error, call.frames()))
    message.warnings?.forEach(this.heard) // after the answer, so that a callback that throws cannot hold it up
  }

  #fail(error: Error): void {
    this.#farewell?.done()
    if (this.#closed !== null) return
    this.#close((what) => new WorkerError(`${what}: the worker is gone: ${error.message}`))
    this.#port.terminate()
  }
}

/** Joins the losses of several submissions, in order. */
export function joined(parts: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(parts.reduce((count, part) => count + part.length, 0))
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0)
  return all
}
