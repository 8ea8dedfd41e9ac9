// The worker protocol: every message that crosses between the page and the worker, and the page's end of it (Connection). Requests are
// numbered and answered once each, in order. Knows no WebAssembly, no WebGPU and no kind of worker: a Port is all it sees.

import { restoreError, WorkerError, type Frames, type SerialisedError } from './errors.js'
import type { LR } from './lr.js'
import type { OptimizerKind } from './optimizer.js'
import type { DataArray, Device, Dtype, Precision } from './types.js'

// ---------------------------------------------------------------- what a worker looks like

/** One end of a worker, whatever its home calls its events. `onFailure`: the worker is gone or beyond use. */
export interface Port {
  post(message: Request, transfer: Transferable[]): void
  onMessage(listener: (message: Response) => void): void
  onFailure(listener: (error: Error) => void): void
  terminate(): void
}

/** How a home (a browser page, Node, a test) starts one. It may throw or reject: then the compile does. */
export type StartWorker = () => Port | Promise<Port>

// ---------------------------------------------------------------- page to worker

/** The optimiser as the C core has it. A field left out is the core's default. What decayFilter and groups say is in the graph. */
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

/** One array fed or uploaded: a private copy, transferred. `bool` travels as one byte an element. */
export interface ArrayMessage {
  name: string
  dtype: Dtype
  data: DataArray
}

/** `graph` numbers are the page's: unique within a worker, never used twice. `bytes` is what tg_graph_write wrote. */
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
      /** With the caller's own: more than one where `threaded`, the core with threads, is given. */
      threads: number
      threaded: WebAssembly.Module | null
      /** The core, compiled once by the page; null where the worker must load it itself. */
      module: WebAssembly.Module | null
    }
  | { kind: 'compileForward'; graph: number; parent: number; bytes: Uint8Array; average: boolean }
  /** The model of `parent` traced for another size: it steps and runs as the parent does. */
  | { kind: 'compileSize'; graph: number; parent: number; bytes: Uint8Array }
  | { kind: 'step'; graph: number; feeds: ArrayMessage[]; withCaptures: boolean }
  | { kind: 'run'; graph: number; feeds: ArrayMessage[]; withCaptures: boolean }
  | { kind: 'uploadParams'; graph: number; params: ArrayMessage[]; partial: boolean }
  | { kind: 'downloadParams'; graph: number; average: boolean }
  | { kind: 'downloadParamGrads'; graph: number }
  | { kind: 'resetOptimizer'; graph: number }
  | { kind: 'reset'; graph: number }
  | { kind: 'setLR'; graph: number; lr: LR }
  | { kind: 'text'; graph: number; what: TextKind }
  /** arrays null: the data set is destroyed. `dataset` numbers are as those of graphs. */
  | { kind: 'dataset'; graph: number; dataset: number; arrays: ArrayMessage[] | null }
  /** options: begins a run; null: makes some of its steps, for a bounded time; 'end': gives it up, or back. A graph has one at a time. */
  | { kind: 'train'; graph: number; dataset: number; feeds: ArrayMessage[]; options: TrainMessage | 'end' | null }
  | { kind: 'snapshot'; graph: number }
  | { kind: 'recover'; graph: number }
  /** A parent takes its siblings along, and a model its sizes. */
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

/** Steps that were made; `step`: the first one's number, counted from 1. */
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

/** What a compiled graph is; the synchronous properties of a compiled model. */
export interface GraphMessage {
  /** "cpu (simd128)", "webgpu (swiftshader)". */
  device: string
  deviceKind: 'cpu' | 'webgpu'
  /** Why WebGPU is not used although it would have been: "this browser has no WebGPU"; "" where nothing is to be said. */
  fallback: string
  /** Of contractions, in use. */
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

export type TextKind = 'ir' | 'kernels' | 'plan' | 'dot' | 'c' | 'wgsl'

/** What each kind of request is answered with. */
export interface Answers {
  createRuntime: GraphMessage
  compileForward: GraphMessage
  compileSize: GraphMessage
  step: { loss: number; captures: CaptureMessage[] | null }
  run: { output: DataArray; captures: CaptureMessage[] | null }
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
  /** The device may be another one now. */
  recover: { device: string; deviceKind: 'cpu' | 'webgpu'; precision: Precision }
  destroy: null
}

export type Response<K extends RequestKind = RequestKind> = (
  { id: number; ok: true; value: Answers[K] } | { id: number; ok: false; error: SerialisedError }
) & { /** Of the core, since the answer before; absent: none. */ warnings?: string[] }

// ---------------------------------------------------------------- the page's end

interface Pending {
  what: string
  graph: number
  resolve(value: never): void
  reject(error: Error): void
  /** The user's frames of the call: an error made in the worker is given them. */
  frames: Frames
  answered: Promise<unknown>
}

/** Why nothing can be asked any more. `what`: the call that is told so. */
export type Reason = (what: string) => Error

const GRACE_MS = 1000

/** One worker and the calls in flight to it. After `shutDown` or a crash every call, past and to come, rejects with the reason. */
export class Connection {
  readonly #port: Port
  readonly #pending = new Map<number, Pending>()
  #lastId = 0
  #closed: Reason | null = null
  #ended: Promise<void> | null = null
  #farewell: { id: number; done(): void } | null = null

  /** `heard` gets each warning that comes with an answer, for all calls. */
  constructor(port: Port, readonly heard: (warning: string) => void = () => undefined) {
    this.#port = port
    port.onMessage((message) => this.#receive(message))
    port.onFailure((error) => this.#fail(error))
  }

  /** Null while calls can be made. */
  get closed(): Reason | null {
    return this.#closed
  }

  /** Posts at once, in the order of the calls. `what`: the user's call. */
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

  /** When all calls in flight have been answered, one way or the other. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#pending.values()].map((call) => call.answered))
  }

  /** Rejects the calls in flight of one graph; their answers are not waited for. */
  abandon(graph: number, reason: Reason): void {
    for (const [id, call] of this.#pending) {
      if (call.graph !== graph) continue
      this.#pending.delete(id)
      call.reject(reason(call.what))
    }
  }

  /** Rejects everything now, lets the worker give back its device, and ends it. Calling it again does nothing. */
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
    message.warnings?.forEach(this.heard) // after the answer, which a callback that throws does not keep back
  }

  #fail(error: Error): void {
    this.#farewell?.done()
    if (this.#closed !== null) return
    this.#close((what) => new WorkerError(`${what}: the worker is gone: ${error.message}`))
    this.#port.terminate()
  }
}

/** Losses of several submissions, one after another. */
export function joined(parts: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(parts.reduce((count, part) => count + part.length, 0))
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0)
  return all
}
