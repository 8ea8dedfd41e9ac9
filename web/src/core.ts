// The C core compiled to WebAssembly. Loads it and gives its exports (boundary.gen.ts) as typed
// functions: converts strings, arrays and records, and throws each failure as the error of its
// status. Must not decide anything.

import {
  BatchOrder, CallKind, Choice, DeviceKind, DRAW_WORDS, dtypeArrays, dtypeBytes, dtypes, Precision as PrecisionNumber, Status, Text,
  type Exports, type LrFields, type OpName, type OpNumbers, type OptimizerFields,
} from './boundary.gen.js'
import { errorOfStatus } from './errors.js'
import { inJavaScript } from './names.js'
import type { CoreSite } from './sites.js'
import type { ParamGroup } from './optimizer.js'
import { halves, pack, packOp } from './packing.js'
import type { DataArray, Dtype, Precision } from './types.js'

/** An address in the module's memory; 0 is null. Objects of the core are their addresses. */
export type Address = number
export type GraphAddress = number
export type ModelAddress = number
export type CallAddress = number

export { CallKind, dtypes, Text }
export const dtypeNumber = (dtype: Dtype): number => dtypes.indexOf(dtype)
export const bytesOf = (dtype: Dtype): number => dtypeBytes[dtypeNumber(dtype)] as number
export function newArray(dtype: Dtype, count: number): DataArray {
  return new (dtypeArrays[dtypeNumber(dtype)] as (typeof dtypeArrays)[number])(count)
}

// ---------------------------------------------------------------- what crosses

/** tg_choice */
const choice = (flag: boolean | undefined): number => (flag === undefined ? Choice.default : flag ? Choice.yes : Choice.no)

/** A tensor of the core, a number where the operation takes one, or null for a tensor that is left
 *  out. */
export type CoreOperand = { readonly graph: GraphAddress; readonly id: number } | number | null

export interface NodeInfo { id: number; shape: number[]; dtype: number }
export interface NamedInfo { name: string; shape: number[]; dtype: number }
export interface GraphInfo {
  result: NodeInfo
  inputs: NamedInfo[]
  params: { name: string; shape: number[]; decay: boolean; frozen: boolean }[]
  states: NamedInfo[]
  captures: NamedInfo[]
  nodes: number
}
/** graph_nodes */
export interface GraphNodes {
  ops: {
    kind: string; inputs: number[]; shape: number[]; dtype: number; name: string; file: string; line: number
    attributes: { [name: string]: never }
  }[]
  result: number
  writebacks: [destination: number, source: number][]
}
export interface ParamInfo { name: string; shape: number[]; offset: number; count: number; decay: boolean; frozen: boolean }
export interface ModelInfo {
  training: boolean
  device: string
  inputs: NamedInfo[]
  captures: string[]
  output: { shape: number[]; dtype: number }
  params: ParamInfo[]
  /** Slots of states. gradients is -1 if there are none: then all are 0. */
  parameters: number
  gradients: number
  /** -1 if there are none. */
  average: number
  states: { name: string; dtype: number; count: number }[]
  total: number
  info: {
    parameters: number; nodes: number; kernels: number; dispatches: number; programBytes: number; peakBytes: number
    workspaceBytes: number; contractionFlops: number
    /** tg_precision. */
    precision: number
  }
}
export interface CaptureInfo { name: string; shape: number[]; dtype: number; count: number; data: Address }

/** Part of a buffer. Blocks 0 to 3 belong to a program, 4 to 6 to a feeder, 7 and above are the
 *  device's states: see src/run/replay.h. */
export type SliceInfo = [block: number, offset: number, bytes: number]

/** The argument of gpu_load: see src/run/web/web.h. */
export interface ProgramInfo {
  blocks: number[]
  readback: number
  inputs: { name: string; dtype: number; count: number; to: number }[]
  outputs: { buffer: number; dtype: number; count: number; to: number; slice: SliceInfo }[]
  constants: { dtype: number; count: number; to: number; data: Address }[]
  sources: { text: string; bindings: number; label: string }[]
  stages: { source: number; groups: [number, number, number]; slices: SliceInfo[]; launch: number; bindings: number[]; label: string }[]
  /** storage (0 workspace, 1 input, 2 state, 3 constant), dtype, count, offset, slot */
  buffers: [storage: number, dtype: number, count: number, offset: number, slot: number][]
}

/** A launch of a step or run, as model_launches describes it. */
export interface LaunchInfo { kernel: string; loops: string; kernels: number; workgroups: number; flops: number; bytes: number }

/** The argument of gpu_feeder: see src/run/web/web.h. */
export interface FeederInfo {
  executable: number
  blocks: number[]
  arrays: { input: number; dtype: number; count: number; to: number; data: Address }[]
  loss: SliceInfo
  turns: [SliceInfo[], SliceInfo[]]
  groups: number
  source: string
}

export interface Feed { name: string; dtype: Dtype; data: DataArray }

export interface TrainNumbers {
  steps: number
  order: keyof typeof BatchOrder
  seed: bigint
  stepsPerSubmission: number
  targetLoss: number
  patience: number
}
/** A training run: its address, and the block of its feeds. */
export interface TrainAddress { train: Address; feeds: Address }
/** end is a tg_train_end; 0 means that all steps were made. */
export interface TrainResult { steps: number; end: number; loss: number; best: number }

export interface ModelOptions {
  training: boolean
  seed: bigint
  /** Chosen by the page or the worker. */
  device: 'cpu' | 'webgpu'
  noFusion: boolean
  checkFinite: boolean
  precision: Precision
  /** 0 means the core's default. */
  lossScale: number
  optimizer: OptimizerFields | null
}

/** maxStorageBufferBindingSize, storage buffers per stage (at most 64), invocations per workgroup,
 *  workgroup bytes, workgroups per dimension, maxBufferSize, 1 for a software adapter (else 0), 1
 *  where shaders have f16. */
export type GpuLimits = [number, number, number, number, number, number, number, number]

/** The WebGPU executor as the core calls it (src/run/web/web.h). All functions return at once. */
export interface GpuHooks {
  open(): { device: number; limits: GpuLimits } | null
  close(device: number): void
  isLost(device: number): boolean
  makeState(device: number, slot: number, dtype: Dtype, count: number): void
  /** `data` is a view of the memory: read it before returning. A bool is one byte. */
  writeState(device: number, slot: number, first: number, data: DataArray): void
  load(device: number, program: ProgramInfo): number
  unload(device: number, executable: number): void
  makeFeeder(device: number, info: FeederInfo): number
  dropFeeder(device: number, feeder: number): void
}

export type CallKindNumber = (typeof CallKind)[keyof typeof CallKind]

// ---------------------------------------------------------------- the core

const OPERAND_BYTES = 16, FEED_BYTES = 24, SITE_BYTES = 12, ROOM = 1 << 16
const align = (bytes: number): number => (bytes + 63) & ~63
const encoder = new TextEncoder(), decoder = new TextDecoder()
const noGpu: GpuHooks = {
  open: () => null, close() {}, isLost: () => false, makeState() {}, writeState() {}, load: () => 0, unload() {}, makeFeeder: () => 0, dropFeeder() {},
}

/** The memory and threads of core-threads.wasm: see threads.ts. */
export interface SharedMemory {
  memory: WebAssembly.Memory
  /** The core's own thread included. */
  threads: number
  /** One of the threads calls thread_main(worker) on that stack. False if no thread is left. */
  start(worker: Address, stackTop: Address): boolean
}

/** The body of a trace. Returns the result. */
type Build = (graph: GraphAddress) => { graph: GraphAddress; id: number }

export class Core {
  readonly #x: Exports
  readonly #files = new Map<string, Address>()
  #room: Address = 0 // for short arguments; each call reuses it from its start
  #used = 0
  #extra: Address[] = [] // longer ones, freed after the call
  #feeds: { block: Address; bytes: number } = { block: 0, bytes: 0 }
  #build: Build | null = null
  #thrown: { error: unknown } | null = null

  /** Called with each warning that the core logs. */
  onWarning: (message: string) => void = () => undefined

  private constructor(module: WebAssembly.Module, gpu: GpuHooks, shared: SharedMemory | null) {
    const imports = {
      thread_count: () => shared?.threads ?? 1,
      thread_failed: () => { throw new Error('a thread of the CPU failed') },
      thread_start: (worker: number, stackTop: number) => Number(shared?.start(worker, stackTop) ?? false),
      build: (graph: number, out: number) => this.#runBuild(graph, out),
      warn: (message: number) => this.onWarning(inJavaScript(this.text(message))),
      // for the module's C library (web/core/libc.c)
      format_number: (value: number, precision: number, out: number) => {
        const text = value.toPrecision(precision).replace(/(\.\d*?)0+(?=$|e)/, '$1').replace(/\.(?=$|e)/, '').toLowerCase()
        const bytes = encoder.encode(text.replace('infinity', 'inf')) // not encodeInto, which refuses shared memory
        this.u8(out, 32).set(bytes)
        return bytes.length
      },
      parse_number: (text: number) => Number(this.text(text)),
      exp: Math.exp, log: Math.log, log1p: Math.log1p, expm1: Math.expm1, sin: Math.sin, cos: Math.cos, tanh: Math.tanh, pow: Math.pow,
      gpu_open: (out: number) => {
        const opened = gpu.open()
        if (opened !== null) this.f64(out, opened.limits.length).set(opened.limits)
        return opened?.device ?? 0
      },
      gpu_close: (device: number) => gpu.close(device),
      gpu_lost: (device: number) => Number(gpu.isLost(device)),
      gpu_make_state: (device: number, slot: number, dtype: number, count: number) =>
        gpu.makeState(device, slot, dtypes[dtype] as Dtype, count),
      gpu_write_state: (device: number, slot: number, first: number, data: number, count: number, dtype: number) =>
        gpu.writeState(device, slot, first, this.view(dtypes[dtype] as Dtype, data, count)),
      gpu_load: (device: number, program: number) => gpu.load(device, JSON.parse(this.text(program)) as ProgramInfo),
      gpu_unload: (device: number, executable: number) => gpu.unload(device, executable),
      gpu_feeder: (device: number, info: number) => gpu.makeFeeder(device, JSON.parse(this.text(info)) as FeederInfo),
      gpu_drop_feeder: (device: number, feeder: number) => gpu.dropFeeder(device, feeder),
    }
    this.#x = new WebAssembly.Instance(module, { tg: imports, ...(shared === null ? {} : { env: { memory: shared.memory } }) }).exports as unknown as Exports
    if (this.#x.init() === 0 || (this.#room = this.#x.alloc(ROOM)) === 0) throw errorOfStatus(Status.memory, 'out of memory: the core cannot start')
  }

  /** `module` was compiled (or posted) before; instantiating it costs little. Without hooks there
   *  is no WebGPU. */
  static create(module: WebAssembly.Module, gpu: GpuHooks = noGpu, shared: SharedMemory | null = null): Core {
    return new Core(module, gpu, shared)
  }

  get hasCpu(): boolean { return this.#x.has_cpu() !== 0 }
  get liveBytes(): number { return this.#x.live_bytes() }

  // ---------------------------------------------------------------- memory: views are good until the next call

  u8(at: Address, count: number): Uint8Array<ArrayBuffer> { return new Uint8Array(this.#x.memory.buffer as ArrayBuffer, at, count) }
  u32(at: Address, count: number): Uint32Array<ArrayBuffer> { return new Uint32Array(this.#x.memory.buffer as ArrayBuffer, at, count) }
  i32(at: Address, count: number): Int32Array<ArrayBuffer> { return new Int32Array(this.#x.memory.buffer as ArrayBuffer, at, count) }
  f32(at: Address, count: number): Float32Array<ArrayBuffer> { return new Float32Array(this.#x.memory.buffer as ArrayBuffer, at, count) }
  f64(at: Address, count: number): Float64Array<ArrayBuffer> { return new Float64Array(this.#x.memory.buffer as ArrayBuffer, at, count) }
  view(dtype: Dtype, at: Address, count: number): DataArray {
    return new (dtypeArrays[dtypeNumber(dtype)] as (typeof dtypeArrays)[number])(this.#x.memory.buffer as ArrayBuffer, at, count)
  }
  text(at: Address): string {
    if (at === 0) this.#fail()
    const all = new Uint8Array(this.#x.memory.buffer, at)
    return decoder.decode(all.slice(0, all.indexOf(0))) // a copy: decode refuses shared memory
  }

  alloc(bytes: number): Address {
    return this.#x.alloc(bytes) || this.#throw(errorOfStatus(Status.memory, `out of memory: ${bytes} bytes refused`))
  }
  free(block: Address): void { this.#x.free(block) }

  /** `bytes` bytes for an argument of the next call, 16-byte aligned. */
  #argument(bytes: number): Address {
    const whole = (bytes + 15) & ~15
    if (this.#used + whole <= ROOM) return this.#room + (this.#used += whole) - whole
    const block = this.alloc(bytes)
    this.#extra.push(block)
    return block
  }
  #release(): void {
    for (const block of this.#extra) this.#x.free(block)
    this.#extra.length = this.#used = 0
  }
  #string(text: string): Address {
    const bytes = encoder.encode(text), at = this.#argument(bytes.length + 1)
    const to = this.u8(at, bytes.length + 1)
    to.set(bytes)
    to[bytes.length] = 0
    return at
  }
  #numbers(numbers: readonly number[]): Address {
    const at = this.#argument(numbers.length * 8)
    this.f64(at, numbers.length).set(numbers)
    return at
  }
  #array(data: DataArray): Address {
    const at = this.#argument(data.byteLength)
    this.u8(at, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    return at
  }
  #operands(operands: readonly CoreOperand[]): Address {
    const at = this.#argument(operands.length * OPERAND_BYTES)
    operands.forEach((operand, i) => {
      const to = at + i * OPERAND_BYTES, isNumber = typeof operand === 'number'
      this.i32(to, 2).set(isNumber ? [0, -1] : operand === null ? [0, 0] : [operand.graph, operand.id])
      this.f64(to + 8, 1)[0] = isNumber ? operand : 0
    })
    return at
  }
  /** Never freed: a program has few files. */
  #file(name: string): Address {
    let at = this.#files.get(name)
    if (at === undefined) {
      const bytes = encoder.encode(name)
      at = this.alloc(bytes.length + 1)
      this.u8(at, bytes.length + 1).set([...bytes, 0])
      this.#files.set(name, at)
    }
    return at
  }

  // ---------------------------------------------------------------- errors

  /** Throws the core's error and clears it, so that a program that catches it can go on with the
   *  trace. */
  #fail(): never {
    const x = this.#x, status = x.error_status(), at = x.error_message()
    const message = status === 0 ? 'the core failed without saying why' : this.text(at)
    const file = this.text(x.error_file()), line = x.error_line()
    x.error_clear()
    this.#throw(errorOfStatus(status || Status.internal, message, file === '' ? null : { file, line }))
  }
  #throw(error: Error): never {
    this.#release()
    throw error
  }
  #ok(status: number): void {
    if (status !== 0) this.#fail()
    this.#release()
  }
  #made(result: number): number {
    if (result === 0) this.#fail()
    this.#release()
    return result
  }
  /** Records an error made in JavaScript for call_next. */
  setError(status: number, message: string): void {
    this.#x.error_clear()
    this.#x.error_set(status, this.#string(message))
    this.#release()
  }

  // ---------------------------------------------------------------- traces

  #runBuild(graph: GraphAddress, out: Address): void {
    try {
      const built = (this.#build as Build)(graph)
      this.i32(out, 2).set([built.graph, built.id])
    } catch (error) {
      this.#thrown = { error }
    }
  }
  /** A call of the core that runs `build`. Throws what `build` throws, after `undo`. */
  #building(build: Build, run: () => number, undo: (result: number) => void = () => undefined): number {
    const outer = this.#build
    this.#build = build
    this.#thrown = null
    const result = run()
    this.#build = outer
    const thrown = this.#thrown as { error: unknown } | null
    this.#thrown = null
    if (thrown === null) return result
    undo(result)
    this.#x.error_clear()
    throw thrown.error
  }
  /** Runs build in a new trace. Destroy the graph with destroyGraph once no tensor of it is in
   *  use. */
  trace(build: Build): GraphAddress {
    return this.#made(this.#building(build, () => this.#x.trace(), (graph) => { if (graph !== 0) this.#x.graph_destroy(graph) }))
  }
  /** Continues a trace that has ended. */
  traceInto(graph: GraphAddress, build: Build): void {
    this.#ok(this.#building(build, () => this.#x.trace_into(graph)))
  }
  destroyGraph(graph: GraphAddress): void { this.#x.graph_destroy(graph) }
  describeGraph(graph: GraphAddress): GraphInfo { return JSON.parse(this.text(this.#x.graph_describe(graph))) as GraphInfo }
  graphNodes(graph: GraphAddress): GraphNodes { return JSON.parse(this.text(this.#x.graph_nodes(graph))) as GraphNodes }
  /** The initial values of parameter i. */
  initialValues(graph: GraphAddress, i: number, count: number, seed: bigint): Float32Array {
    const at = this.#argument(count * 4 + 1)
    this.#x.graph_initial(graph, i, ...halves(seed), at, count)
    const values = this.f32(at, count).slice()
    this.#release()
    return values
  }
  graphText(graph: GraphAddress): string { return this.text(this.#x.graph_text(graph)) }
  setDecay(graph: GraphAddress, i: number, decay: boolean): void { this.#x.graph_set_decay(graph, i, Number(decay)) }
  /** Removes all parameter groups. */
  unmark(graph: GraphAddress): void { this.#x.graph_unmark(graph) }
  markGroup(graph: GraphAddress, group: ParamGroup): void {
    const { match, rate, weightDecay, decay, frozen, plain } = group
    const numbers = pack('paramGroup', { rate, weightDecay, decay: choice(weightDecay === 0 ? false : decay), frozen, plain })
    this.#ok(this.#x.graph_mark_group(graph, this.#string(match), this.#numbers(numbers)))
  }
  /** Replaces each site of `from` in the graph by that of `to` at the same index. The lines of
   *  `from` ascend. */
  settleSites(graph: GraphAddress, from: readonly CoreSite[], to: readonly CoreSite[]): void {
    const files = to.map((site) => this.#file(site.file)), at = this.#argument(from.length * SITE_BYTES)
    this.i32(at, from.length * 3).set(from.flatMap((site, i) => [site.line, files[i] as Address, to[i]?.line ?? 0]))
    this.#x.graph_settle_sites(graph, at, from.length)
    this.#release()
  }
  /** A copy of the graph's bytes, which may be posted. */
  writeGraph(graph: GraphAddress): Uint8Array<ArrayBuffer> {
    const size = this.#x.graph_write(graph)
    if (size < 0) this.#fail()
    return this.u8(this.#x.text_data(), size).slice()
  }

  // ---------------------------------------------------------------- operations: ids

  op<O extends OpName>(op: O, site: CoreSite, operands: readonly CoreOperand[], values: OpNumbers[O]): number {
    const { number, numbers } = packOp(op, values)
    return this.#made(this.#x.op(number, this.#file(site.file), site.line, this.#operands(operands), operands.length, this.#numbers(numbers), numbers.length))
  }
  /** init is a tg_init_kind. For decay and frozen, undefined is the default. */
  param(site: CoreSite, graph: GraphAddress, name: string, shape: readonly number[], init: number, scale: number, data: Float32Array | null,
    decay?: boolean, frozen?: boolean): number {
    return this.#made(this.#x.param(this.#file(site.file), site.line, graph, this.#string(name), this.#numbers(shape), shape.length, init,
      scale, data === null ? 0 : this.#array(data), data?.length ?? 0, choice(decay), choice(frozen)))
  }
  input(site: CoreSite, graph: GraphAddress, name: string, shape: readonly number[], dtype: Dtype): number {
    return this.#made(this.#x.input(this.#file(site.file), site.line, graph, this.#string(name), this.#numbers(shape), shape.length,
      dtypeNumber(dtype)))
  }
  state(site: CoreSite, graph: GraphAddress, name: string, shape: readonly number[], dtype: Dtype, value: number): number {
    return this.#made(this.#x.state(this.#file(site.file), site.line, graph, this.#string(name), this.#numbers(shape), shape.length,
      dtypeNumber(dtype), value))
  }
  full(site: CoreSite, graph: GraphAddress, shape: readonly number[], value: number, dtype: Dtype): number {
    return this.#made(this.#x.full(this.#file(site.file), site.line, graph, this.#numbers(shape), shape.length, value, dtypeNumber(dtype)))
  }
  arange(site: CoreSite, graph: GraphAddress, n: number, dtype: Dtype): number {
    return this.#made(this.#x.arange(this.#file(site.file), site.line, graph, n, dtypeNumber(dtype)))
  }
  constant(site: CoreSite, graph: GraphAddress, shape: readonly number[], dtype: Dtype, data: DataArray): number {
    return this.#made(this.#x.constant(this.#file(site.file), site.line, graph, this.#numbers(shape), shape.length, dtypeNumber(dtype),
      this.#array(data), data.length))
  }
  /** kind is a DrawKind. rand_int draws from [lo, hi), bernoulli with probability p. */
  draw(site: CoreSite, graph: GraphAddress, kind: number, shape: readonly number[], lo = 0, hi = 0, p: CoreOperand = 0): number {
    return this.#made(this.#x.draw(this.#file(site.file), site.line, graph, kind, this.#numbers(shape), shape.length, lo, hi, this.#operands([p])))
  }
  capture(site: CoreSite, name: string, graph: GraphAddress, id: number): number {
    return this.#made(this.#x.capture(this.#file(site.file), site.line, this.#string(name), graph, id))
  }
  /** The ids of d loss / d wrt[i]. */
  grad(site: CoreSite, loss: CoreOperand, wrt: readonly CoreOperand[]): number[] { return this.#gradients('grad', site, [loss], wrt) }
  vjp(site: CoreSite, y: CoreOperand, cotangent: CoreOperand, wrt: readonly CoreOperand[]): number[] {
    return this.#gradients('vjp', site, [y, cotangent], wrt)
  }
  #gradients(which: 'grad' | 'vjp', site: CoreSite, of: CoreOperand[], wrt: readonly CoreOperand[]): number[] {
    const all = [...of, ...wrt], out = this.#argument(4 * wrt.length + 4)
    this.#ok(this.#x[which](this.#file(site.file), site.line, this.#operands(all), all.length, out))
    return [...this.i32(out, wrt.length)]
  }
  /** The ids of the parts along an axis: parts of these sizes, or a number of equal ones. */
  split(site: CoreSite, x: { graph: GraphAddress; id: number }, axis: number, parts: number | readonly number[]): number[] {
    const equal = typeof parts === 'number', most = Math.max(1, ...this.shapeOf(x.graph, x.id))
    const count = equal ? parts : parts.length, out = this.#argument(4 * Math.min(Math.max(count, 1), most))
    const numbers = equal ? [axis, 1, parts] : [axis, 0, ...parts]
    this.#ok(this.#x.split(this.#file(site.file), site.line, this.#operands([x]), this.#numbers(numbers), numbers.length, out))
    return [...this.i32(out, count)]
  }
  writeback(site: CoreSite, destination: CoreOperand, source: CoreOperand): void {
    this.#ok(this.#x.writeback(this.#file(site.file), site.line, this.#operands([destination, source])))
  }
  appendOptimizer(site: CoreSite, loss: CoreOperand, optimizer: OptimizerFields): void {
    this.#ok(this.#x.append_optimizer(this.#file(site.file), site.line, this.#operands([loss]),
      this.#numbers(pack('optimizer', optimizer))))
  }
  shapeOf(graph: GraphAddress, id: number): number[] {
    const at = this.#argument(64), rank = this.#x.shape(graph, id, at)
    this.#release()
    return [...this.f64(at, rank)]
  }
  dtypeOf(graph: GraphAddress, id: number): Dtype { return dtypes[this.#x.dtype(graph, id)] as Dtype }
  lrValue(lr: LrFields, t: number): number {
    const value = this.#x.lr_value(this.#numbers(pack('lr', lr)), t)
    this.#ok(this.#x.error_status())
    return value
  }

  // ---------------------------------------------------------------- models

  createModel(bytes: Uint8Array, options: ModelOptions): ModelAddress {
    const { training, device, precision, ...others } = options
    const numbers = pack('compileOptions', { ...others, device: DeviceKind[device], precision: PrecisionNumber[precision] })
    return this.#made(this.#x.model_create(this.#array(bytes), bytes.length, Number(training), this.#numbers(numbers)))
  }
  createSibling(parent: ModelAddress, bytes: Uint8Array, average: boolean): ModelAddress {
    return this.#made(this.#x.model_sibling(parent, this.#array(bytes), bytes.length, Number(average)))
  }
  createSize(owner: ModelAddress, bytes: Uint8Array): ModelAddress {
    return this.#made(this.#x.model_size(owner, this.#array(bytes), bytes.length))
  }
  destroyModel(model: ModelAddress): void { this.#x.model_destroy(model) }
  describeModel(model: ModelAddress): ModelInfo { return JSON.parse(this.text(this.#x.model_describe(model))) as ModelInfo }
  /** Of a model on a GPU; their times are not known here. */
  launches(model: ModelAddress): LaunchInfo[] { return JSON.parse(this.text(this.#x.model_launches(model))) as LaunchInfo[] }
  modelText(model: ModelAddress, what: number): string { return this.text(this.#x.model_text(model, what)) }
  upload(model: ModelAddress, params: readonly Feed[], partial: boolean): void {
    this.#ok(this.#x.model_upload(model, this.#feedList(params), params.length, Number(partial)))
  }
  /** For CPU models. */
  readState(model: ModelAddress, slot: number, dtype: Dtype, first: number, count: number): DataArray {
    const at = this.#argument(count * bytesOf(dtype))
    const status = this.#x.model_read(model, slot, first, at, count)
    if (status !== 0) this.#fail()
    const data = this.view(dtype, at, count).slice()
    this.#release()
    return data
  }
  checkGrads(model: ModelAddress): void { this.#ok(this.#x.model_check_grads(model)) }
  reset(model: ModelAddress): void { this.#ok(this.#x.model_reset(model)) }
  resetOptimizer(model: ModelAddress): void { this.#ok(this.#x.model_reset_optimizer(model)) }
  setLR(model: ModelAddress, lr: LrFields): void { this.#ok(this.#x.model_set_lr(model, this.#numbers(pack('lr', lr)))) }
  steps(model: ModelAddress): number { return this.#x.model_steps(model) }
  /** Gives the core every state of a WebGPU model, by slot, as JavaScript has read it. */
  snapshot(model: ModelAddress, states: readonly DataArray[]): void {
    states.forEach((data, slot) => {
      this.#x.snapshot_put(model, slot, this.#array(data))
      this.#release()
    })
    this.#x.snapshot_end(model)
  }
  recover(model: ModelAddress): void { this.#ok(this.#x.model_recover(model)) }

  // ---------------------------------------------------------------- calls

  createCall(model: ModelAddress): CallAddress { return this.#made(this.#x.call_create(model)) }
  destroyCall(call: CallAddress): void { this.#x.call_destroy(call) }
  /** Throws if something is refused; then nothing has changed. Copies the feeds: a core makes one
   *  call at a time. */
  begin(call: CallAddress, kind: CallKindNumber, feeds: readonly Feed[]): void { this.#ok(this.#x.call_begin(call, kind, this.#callFeeds(feeds), feeds.length)) }
  /** The executable to run now; 0 when the call is done. */
  program(call: CallAddress): number { return this.#x.call_program(call) }
  isLast(call: CallAddress): boolean { return this.#x.call_is_last(call) !== 0 }
  inputs(call: CallAddress, count: number): Uint32Array { return this.u32(this.#x.call_inputs(call), count) }
  outputs(call: CallAddress, count: number): Uint32Array { return this.u32(this.#x.call_outputs(call), count) }
  next(call: CallAddress, status = 0): void { this.#ok(this.#x.call_next(call, status)) }
  /** CPU: runs the call to its end. */
  run(call: CallAddress): void { this.#ok(this.#x.call_run(call)) }
  result(call: CallAddress, dtype: Dtype, count: number): DataArray { return this.view(dtype, this.#x.call_result(call), count).slice() }
  loss(call: CallAddress): number { return this.f32(this.#x.call_result(call), 1)[0] as number }
  captures(call: CallAddress): CaptureInfo[] { return JSON.parse(this.text(this.#x.call_captures(call))) as CaptureInfo[] }
  end(call: CallAddress): void { this.#x.call_end(call) }

  // ---------------------------------------------------------------- many steps

  createDataset(model: ModelAddress, arrays: readonly Feed[], rows: number): Address {
    return this.#made(this.#x.dataset_create(model, this.#feedList(arrays), arrays.length, rows))
  }
  destroyDataset(dataset: Address): void { this.#x.dataset_destroy(dataset) }
  feederOf(dataset: Address): number { return this.#x.dataset_feeder(dataset) }
  /** Throws if something is refused; then nothing has changed. Copies the feeds. */
  beginTraining(model: ModelAddress, dataset: Address, options: TrainNumbers, feeds: readonly Feed[]): TrainAddress {
    const numbers = pack('trainOptions', { ...options, order: BatchOrder[options.order] })
    const block = this.alloc(this.#feedBytes(feeds) + 64)
    const train = this.#x.train_begin(model, dataset, this.#numbers(numbers), this.#writeFeeds(feeds, block), feeds.length)
    if (train === 0) this.#x.free(block)
    return { train: this.#made(train), feeds: block }
  }
  /** How many steps the next submission may have, 0 when training ends; `exact`: it must have that
   *  many. */
  nextSteps({ train }: TrainAddress): { most: number; exact: boolean } {
    return { most: this.#x.train_most(train), exact: this.#x.train_exact(train) !== 0 }
  }
  /** For the GPU: the words of the kernel that draws, the step's executable and its inputs. */
  submission({ train }: TrainAddress, inputs: (program: number) => number): { control: Uint32Array<ArrayBuffer>; program: number; inputs: number[] } {
    const program = this.#x.train_program(train)
    return {
      control: this.u32(this.#x.train_control(train), DRAW_WORDS).slice(), program, inputs: [...this.u32(this.#x.train_inputs(train), inputs(program))],
    }
  }
  /** Tells the core of a submission that was made. */
  trained({ train }: TrainAddress, losses: Float32Array): void {
    this.f32(this.#x.train_losses(train), losses.length).set(losses)
    this.#ok(this.#x.train_next(train, 0, losses.length))
  }
  /** Tells the core that a submission failed, and with it the run. */
  failTraining({ train }: TrainAddress, status: number, message: string): void {
    this.setError(status, message)
    this.#x.train_next(train, status, 0)
    this.#x.error_clear()
  }
  /** CPU: makes `count` steps, fewer if training ends. Throws after the last of them. */
  trainOnCpu({ train }: TrainAddress, count: number): void { this.#ok(this.#x.train_run(train, count)) }
  lossesOf({ train }: TrainAddress, count: number): Float32Array { return this.f32(this.#x.train_losses(train), count).slice() }
  /** Makes one step in `call`, on a batch that the core has made. */
  beginStep({ train }: TrainAddress, call: CallAddress): void { this.#ok(this.#x.train_step(train, call)) }
  trainResult({ train }: TrainAddress): TrainResult {
    const [steps, end, loss, best] = this.f64(this.#x.train_result(train), 4) as unknown as [number, number, number, number]
    return { steps, end, loss, best }
  }
  endTraining({ train, feeds }: TrainAddress): void {
    this.#x.train_end(train)
    this.#x.free(feeds)
  }

  #fillFeed(at: Address, feed: Feed, name: Address, data: Address): void {
    this.u32(at, 6).set([name, dtypeNumber(feed.dtype), data, 0, feed.data.length, 0])
  }
  #feedList(feeds: readonly Feed[]): Address {
    const list = this.#argument(feeds.length * FEED_BYTES + 1)
    feeds.forEach((feed, i) => {
      const name = this.#string(feed.name), data = this.#array(feed.data)
      this.#fillFeed(list + i * FEED_BYTES, feed, name, data)
    })
    return list
  }
  /** The same in one block that outlives this function: a call reads its feeds until it ends. */
  #callFeeds(feeds: readonly Feed[]): Address {
    const need = this.#feedBytes(feeds)
    if (need > this.#feeds.bytes) {
      this.#x.free(this.#feeds.block)
      this.#feeds = { block: 0, bytes: 0 }
      this.#feeds = { block: this.alloc(need + 64), bytes: need }
    }
    return this.#writeFeeds(feeds, this.#feeds.block)
  }
  #feedBytes(feeds: readonly Feed[]): number {
    return feeds.reduce((bytes, { name, data }) => bytes + align(encoder.encode(name).length + 1) + align(data.byteLength),
      align(feeds.length * FEED_BYTES))
  }
  #writeFeeds(feeds: readonly Feed[], block: Address): Address {
    const list = align(block)
    let at = list + align(feeds.length * FEED_BYTES)
    for (const [i, feed] of feeds.entries()) {
      const name = encoder.encode(`${feed.name}\0`), data = at + align(name.length)
      this.u8(at, name.length).set(name)
      this.u8(data, feed.data.byteLength).set(new Uint8Array(feed.data.buffer, feed.data.byteOffset, feed.data.byteLength))
      this.#fillFeed(list + i * FEED_BYTES, feed, at, data)
      at = data + align(feed.data.byteLength)
    }
    return list
  }
}
