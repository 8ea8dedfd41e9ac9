// The WebGPU executor: owns one device, the states on it, and the programs that it replays. The
// core has decided where the data of a program is, what each stage binds, and what is sent and read
// back (ProgramInfo). Pipelines compile in parallel. A run is one compute pass in one submission,
// or several if one would keep the GPU busy for too long for a page to draw. The call that causes
// an error throws it. Must not know graphs or messages.

import { newArray, type Address, type Core, type FeederInfo, type GpuLimits, type ProgramInfo, type SliceInfo } from './core.js'
import { dtypes } from './core.js'
import { DeviceError, DeviceLostError, MemoryError } from './errors.js'
import { type Timer } from './timer.js'
import type { DataArray, Dtype } from './types.js'

// Numbers of the WebGPU specification: not every platform has the constants as globals.
export const USAGE = { mapRead: 1, copySource: 4, copyDestination: 8, storage: 128, queryResolve: 512 }
export const MAP_READ = 1
const COMPUTE_STAGE = 4
const MAX_BINDINGS = 64

/** A submission that takes longer than this makes the next ones shorter: a page draws every 16
 *  ms. */
const SLOW_MS = 12
/** The most steps of one submission (TG_MOST_STEPS). It also has at most GROWS times as many as the
 *  one before. */
const MOST_STEPS = 4096
const GROWS = 16
/** How long after a failed call the news may come that the device is lost. */
const LOSS_SETTLES_MS = 200

const alignUp = (bytes: number, to: number): number => Math.ceil(bytes / to) * to
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

// ---------------------------------------------------------------- adapters

/** `executes` is false for an adapter that takes every command and does nothing. It is used only if
 *  asked for by name. */
export interface FoundAdapter { adapter: GPUAdapter; name: string; executes: boolean }

/** Says why there is no WebGPU. */
export class NoGpu extends Error {}

function adapterName(adapter: GPUAdapter): string {
  const { description, vendor, architecture, device } = adapter.info
  return description || [vendor, architecture, device].filter((part) => part !== '').join(' ') || 'unnamed adapter'
}

const isSoftware = (adapter: GPUAdapter): boolean =>
  adapter.info.isFallbackAdapter || /swiftshader|llvmpipe|basic render/i.test(adapterName(adapter))

/** Dawn offers its Null backend if it finds no driver. */
const executesNothing = (adapter: GPUAdapter): boolean => /\bnull backend\b/i.test(`${adapter.info.device} ${adapterName(adapter)}`)

/** A browser that has just started may have no adapter at first. */
async function askTwice(gpu: GPU, options: GPURequestAdapterOptions): Promise<GPUAdapter | null> {
  const adapter = await gpu.requestAdapter(options)
  if (adapter !== null) return adapter
  await sleep(100)
  return gpu.requestAdapter(options)
}

/** The fastest adapter, or the first whose name contains `wanted`. `real`: not a software
 *  adapter. */
export async function findAdapter(gpu: GPU | null | undefined, wanted: string, real: boolean): Promise<FoundAdapter> {
  if (gpu == null) throw new NoGpu('this home has no WebGPU')
  const seen: string[] = []
  for (const powerPreference of ['high-performance', 'low-power'] as const) {
    const adapter = await askTwice(gpu, { powerPreference })
    if (adapter === null) throw new NoGpu('no WebGPU adapter')
    const name = adapterName(adapter)
    seen.push(name)
    if (!name.toLowerCase().includes(wanted.toLowerCase())) continue
    if (wanted === '' && executesNothing(adapter)) throw new NoGpu(`the only WebGPU adapter executes nothing (${name}): is a driver installed?`)
    if (real && wanted === '' && isSoftware(adapter)) throw new NoGpu(`the only WebGPU adapter is a software one (${name})`)
    return { adapter, name, executes: !executesNothing(adapter) }
  }
  throw new NoGpu(`no WebGPU adapter is called ${JSON.stringify(wanted)} (adapters: ${[...new Set(seen)].join(', ')})`)
}

const WANTED_LIMITS = [
  'maxStorageBufferBindingSize', 'maxStorageBuffersPerShaderStage', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY', 'maxComputeWorkgroupStorageSize', 'maxComputeWorkgroupsPerDimension', 'maxBufferSize',
] as const

/** Asks for everything that the library uses and the adapter offers, also f16, which the core uses
 *  if a model asks for it, and timestamps, for `profile`. Throws NoGpu if the device does not compute correctly. */
export async function openGpu({ adapter, name, executes }: FoundAdapter): Promise<Gpu> {
  const requiredLimits: Record<string, number> = {}
  for (const limit of WANTED_LIMITS) requiredLimits[limit] = adapter.limits[limit]
  const requiredFeatures = (['shader-f16', 'timestamp-query'] as const).filter((feature) => adapter.features.has(feature))
  const gpu = new Gpu(await adapter.requestDevice({ requiredLimits, requiredFeatures }), executes ? name : `${name}, which executes nothing`, isSoftware(adapter))
  if (!executes) return gpu
  const wrong = await prove(gpu).catch((error: Error) => error.message)
  if (wrong === null) return gpu
  gpu.close()
  throw new NoGpu(`the adapter ${name} does not pass its first computation: ${wrong}`)
}

// ---------------------------------------------------------------- a first computation, as src/run/webgpu/proof.h has it

const PROOF_WORDS = 64
const PROOF = `@group(0) @binding(0) var<storage, read_write> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> found: array<u32>;
@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  let mixed = given[i] * 2654435761u + given[(i * 7u + 3u) % 64u];
  found[i] = mixed ^ bitcast<u32>(f32(given[i] >> 12u) * 0.5 + 1.0);
}
`

function proofAnswer(given: Uint32Array): Uint32Array {
  const bits = new Uint32Array(Float32Array.from(given, (word) => (word >>> 12) * 0.5 + 1).buffer)
  return given.map((word, i) => (Math.imul(word, 2654435761) + (given[(i * 7 + 3) % PROOF_WORDS] as number)) ^ (bits[i] as number))
}

/** Returns null, or what is wrong. Each call sends new words, so that an old answer is never right.
 *  Some adapters execute nothing and some drivers are broken, and neither reports it. */
async function prove(gpu: Gpu): Promise<string | null> {
  const { storage, copyDestination, copySource, mapRead } = USAGE, { device } = gpu
  const given = Uint32Array.from({ length: PROOF_WORDS }, () => Math.random() * 2 ** 32)
  const pipeline = await gpu.pipeline(PROOF, 2, 'a first computation')
  const [fed, answer, back] = [storage | copyDestination, storage | copySource, mapRead | copyDestination].map((usage) => gpu.buffer(given.byteLength, usage)) as
    [GPUBuffer, GPUBuffer, GPUBuffer]
  await gpu.guarded('a first computation', () => {
    device.queue.writeBuffer(fed, 0, given)
    const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass()
    pass.setPipeline(pipeline)
    pass.setBindGroup(0, device.createBindGroup({
      layout: gpu.layout(2), entries: [fed, answer].map((buffer, binding) => ({ binding, resource: { buffer } })),
    }))
    pass.dispatchWorkgroups(PROOF_WORDS / 32)
    pass.end()
    encoder.copyBufferToBuffer(answer, 0, back, 0, given.byteLength)
    device.queue.submit([encoder.finish()])
    return back.mapAsync(MAP_READ)
  })
  const found = new Uint32Array(back.getMappedRange()).slice()
  for (const buffer of [fed, answer, back]) gpu.drop(buffer)
  const right = proofAnswer(given), i = found.findIndex((word, at) => word !== right[at])
  return i < 0 ? null : `word ${i} of the answer is ${found[i]}, and right is ${right[i]}: it executes nothing, or wrongly`
}

// ---------------------------------------------------------------- values: four bytes an element on the device, a bool one byte outside

function narrow(to: DataArray, dtype: Dtype, from: ArrayBuffer, offset: number): void {
  if (dtype === 'bool') to.set(new Uint32Array(from, offset, to.length))
  else new Uint8Array(to.buffer, to.byteOffset, to.byteLength).set(new Uint8Array(from, offset, to.byteLength))
}

// ---------------------------------------------------------------- the device

interface State { buffer: GPUBuffer; dtype: Dtype; count: number }
interface Slice { buffer: GPUBuffer; offset: number; size: number }

export interface StateRange { slot: number; first: number; count: number }

export class Gpu {
  readonly states: (State | undefined)[] = []
  readonly #layouts: (GPUBindGroupLayout | undefined)[] = []
  readonly #pipelines = new Map<string, Promise<GPUComputePipeline>>()
  readonly #made = new Set<GPUBuffer>()
  #readback: GPUBuffer | null = null
  #lost: string | null = null
  #uncaptured: string | null = null
  #closed = false

  constructor(readonly device: GPUDevice, readonly name: string, readonly isSoftware: boolean) {
    void device.lost.then((info) => {
      if (!this.#closed) this.#lost = info.message || info.reason || 'no reason given'
    })
    device.addEventListener('uncapturederror', (event) => {
      event.preventDefault()
      this.#uncaptured ??= event.error.message
    })
  }

  get isLost(): boolean { return this.#lost !== null }
  get description(): string { return `webgpu (${this.name})` }

  get limits(): GpuLimits {
    const l = this.device.limits
    return [
      l.maxStorageBufferBindingSize, Math.min(l.maxStorageBuffersPerShaderStage, MAX_BINDINGS),
      Math.min(l.maxComputeInvocationsPerWorkgroup, l.maxComputeWorkgroupSizeX), l.maxComputeWorkgroupStorageSize,
      l.maxComputeWorkgroupsPerDimension, l.maxBufferSize, Number(this.isSoftware), Number(this.device.features.has('shader-f16')),
    ]
  }

  close(): void {
    this.#closed = true
    this.#made.clear()
    this.device.destroy()
  }

  // ---- faults

  /** Throws when the device is gone. */
  checkAlive(): void {
    if (this.#lost !== null) throw new DeviceLostError(`webgpu: the device (${this.name}) was lost: ${this.#lost}`)
  }

  /** Runs `body` and throws every error that the device finds in what it did. */
  async guarded<R>(what: string, body: () => R | Promise<R>): Promise<R> {
    this.checkAlive()
    for (const filter of ['validation', 'out-of-memory', 'internal'] as const) this.device.pushErrorScope(filter)
    let result: R
    let pops: Promise<GPUError | null>[] = []
    try {
      const begun = body()
      pops = [0, 1, 2].map(() => this.device.popErrorScope())
      for (const pop of pops) pop.catch(() => undefined)
      result = await begun
    } catch (error) {
      if (pops.length === 0) for (let i = 0; i < 3; i++) void this.device.popErrorScope().catch(() => undefined)
      await this.#settleLoss()
      await this.#report(what, pops)
      throw error
    }
    await this.#report(what, pops)
    return result
  }

  async #report(what: string, pops: Promise<GPUError | null>[]): Promise<void> {
    const [internal, memory, validation] = await Promise.all(pops.map((pop) => pop.catch(() => null)))
    this.checkAlive()
    if (memory != null) throw new MemoryError(`webgpu: ${what}: out of GPU memory: ${memory.message}`)
    const error = validation?.message ?? internal?.message ?? this.#uncaptured
    this.#uncaptured = null
    if (error != null) throw new DeviceError(`webgpu: ${what}: ${error}`)
  }

  /** A call on a lost device fails before the news of the loss comes. */
  async #settleLoss(): Promise<void> {
    if (this.#lost === null) await Promise.race([this.device.lost, sleep(LOSS_SETTLES_MS)])
  }

  // ---- buffers and states

  buffer(bytes: number, usage: number): GPUBuffer {
    const buffer = this.device.createBuffer({ size: Math.max(alignUp(bytes, 4), 4), usage })
    this.#made.add(buffer)
    return buffer
  }
  drop(buffer: GPUBuffer | null): void {
    if (buffer === null) return
    buffer.destroy()
    this.#made.delete(buffer)
  }

  makeState(slot: number, dtype: Dtype, count: number): void {
    this.drop(this.states[slot]?.buffer ?? null) // left by a model that was refused
    this.states[slot] = { buffer: this.buffer(count * 4, USAGE.storage | USAGE.copySource | USAGE.copyDestination), dtype, count }
  }
  writeState(slot: number, first: number, data: DataArray): void {
    const { buffer, dtype } = this.states[slot] as State
    this.write(buffer, first * 4, dtype, data)
  }

  /** Elements of 32 bits are sent without a copy. */
  write(buffer: GPUBuffer, offset: number, dtype: Dtype, data: DataArray): void {
    const wide = dtype === 'bool' ? Uint32Array.from(data) : data
    // not every engine sends from shared memory
    this.device.queue.writeBuffer(buffer, offset, wide.buffer instanceof ArrayBuffer ? wide : wide.slice())
  }

  /** Reads elements of states, all in one go. */
  async readStates(ranges: readonly StateRange[]): Promise<DataArray[]> {
    const slices = ranges.map(({ slot, first, count }) => ({ buffer: (this.states[slot] as State).buffer, offset: first * 4, size: count * 4 }))
    const results = ranges.map(({ slot, count }) => newArray((this.states[slot] as State).dtype, count))
    const offsets = offsetsOf(slices)
    const bytes = offsets[slices.length] as number
    await this.guarded('reading parameters back', async () => {
      if (this.#readback === null || this.#readback.size < bytes) {
        this.drop(this.#readback)
        this.#readback = this.buffer(bytes, USAGE.mapRead | USAGE.copyDestination)
      }
      const encoder = this.device.createCommandEncoder()
      for (const [i, slice] of slices.entries()) copySlice(encoder, slice, this.#readback, offsets[i] as number)
      this.device.queue.submit([encoder.finish()])
      await this.#readback.mapAsync(MAP_READ, 0, alignUp(bytes, 4))
    }).catch((error: unknown) => {
      this.drop(this.#readback) // it may be mapped
      this.#readback = null
      throw error
    })
    const mapped = (this.#readback as unknown as GPUBuffer).getMappedRange(0, alignUp(bytes, 4))
    results.forEach((to, i) => narrow(to, (this.states[ranges[i]?.slot as number] as State).dtype, mapped, offsets[i] as number))
    this.#readback?.unmap()
    return results
  }

  // ---- pipelines: explicit layouts, since an automatic one leaves out what a shader does not use

  layout(bindings: number): GPUBindGroupLayout {
    return (this.#layouts[bindings] ??= this.device.createBindGroupLayout({
      entries: Array.from({ length: bindings }, (_, binding) => ({ binding, visibility: COMPUTE_STAGE, buffer: { type: 'storage' as const } })),
    }))
  }

  /** Equal sources share a pipeline. Pipelines compile in parallel. */
  pipeline(source: string, bindings: number, label: string): Promise<GPUComputePipeline> {
    const key = `${bindings}\n${source}`
    let pipeline = this.#pipelines.get(key)
    if (pipeline === undefined) {
      pipeline = this.#compile(source, bindings, label)
      pipeline.catch(() => this.#pipelines.delete(key))
      this.#pipelines.set(key, pipeline)
    }
    return pipeline
  }
  async #compile(source: string, bindings: number, label: string): Promise<GPUComputePipeline> {
    this.device.pushErrorScope('validation')
    const module = this.device.createShaderModule({ code: source })
    const layout = this.device.createPipelineLayout({ bindGroupLayouts: [this.layout(bindings)] })
    const made = this.device.createComputePipelineAsync({ layout, compute: { module, entryPoint: 'main' } })
    const scope = this.device.popErrorScope().catch(() => null)
    try {
      return await made
    } catch (error) {
      await this.#settleLoss()
      this.checkAlive()
      throw await shaderError(module, source, label, this.name, (await scope)?.message ?? (error as Error).message)
    }
  }
}

/** The offsets of slices in one buffer, then its size. */
function offsetsOf(slices: readonly Slice[]): number[] {
  const offsets = [0]
  for (const { size } of slices) offsets.push((offsets.at(-1) as number) + alignUp(size, 16))
  return offsets
}

const copySlice = (encoder: GPUCommandEncoder, { buffer, offset, size }: Slice, to: GPUBuffer, at: number): void =>
  encoder.copyBufferToBuffer(buffer, offset, to, at, size)

/** The error of a shader: the kernel's operations, what the compiler says, and the lines with
 *  numbers. */
async function shaderError(module: GPUShaderModule, source: string, label: string, device: string, said: string): Promise<DeviceError> {
  const info = await module.getCompilationInfo().catch(() => null)
  const errors = (info?.messages ?? []).filter((message) => message.type === 'error')
  const text = errors.map((message) => `line ${message.lineNum}: ${message.message}`).join('\n') || said
  const numbered = source.split('\n').map((line, i) => `${String(i + 1).padStart(5)}  ${line}`).join('\n')
  return new DeviceError(`webgpu: the shader of kernel ${label} does not compile on ${device}:\n${text}\n${numbered}`)
}

// ---------------------------------------------------------------- programs

interface Stage { source: number; launch: number; group: GPUBindGroup; groups: [number, number, number] }

const INPUTS = 2, CONSTANTS = 3, FIRST_STATE = 7

/** A data set on the GPU, and the kernel that draws a batch from it before each step
 *  (src/base/draw.h). */
export interface Feeder {
  info: FeederInfo
  /** The kernel's two bind groups, used in turn. */
  groups: GPUBindGroup[]
  pipeline: Promise<GPUComputePipeline>
  loss: Slice
  buffers: { data: GPUBuffer; control: GPUBuffer; history: GPUBuffer; readback: GPUBuffer }
  /** How many steps the next submission has. */
  next: number
  /** The inputs that it fills. */
  given: ReadonlySet<number>
}

function encodeDraw(pass: GPUComputePassEncoder, { groups, info }: Feeder, draw: GPUComputePipeline, i: number): void {
  pass.setPipeline(draw)
  pass.setBindGroup(0, groups[i % 2] as GPUBindGroup)
  pass.dispatchWorkgroups(info.groups)
}

export class Executable {
  readonly #stages: Stage[]
  readonly #pipelines: Promise<GPUComputePipeline[]>
  readonly #blocks: GPUBuffer[]
  readonly #readbacks: GPUBuffer[] = [] // those that no run uses now
  readonly #outputs: Slice[]
  #perSubmission: number
  #lastDone = 0 // when the last submission ended: one that waited for it began then

  /** Starts everything here, synchronously; `ready` reports the result. `core` holds the data of
   *  the constants. */
  constructor(readonly gpu: Gpu, readonly program: ProgramInfo, core: Core) {
    const { storage, copySource, copyDestination } = USAGE
    this.#blocks = program.blocks.map((bytes) => gpu.buffer(bytes, storage | copySource | copyDestination))
    this.#readbacks.push(this.#readback())
    for (const { dtype, count, to, data } of program.constants) this.#write(this.#blocks[CONSTANTS] as GPUBuffer, to, dtype, core, data, count)
    this.#outputs = program.outputs.map(({ slice }) => this.#slice(slice))
    this.#stages = program.stages.map(({ source, launch, groups, slices }) => ({ source, launch, groups, group: this.#bind(slices) }))
    this.#pipelines = Promise.all(program.sources.map(({ text, bindings, label }) => gpu.pipeline(text, bindings, label)))
    this.#pipelines.catch(() => undefined)
    this.#perSubmission = Math.max(1, this.#stages.length)
  }

  /** Rejects with the message of the shader compiler. */
  async ready(): Promise<void> {
    await this.#pipelines
  }

  unload(): void {
    for (const buffer of [...this.#blocks, ...this.#readbacks]) this.gpu.drop(buffer)
  }

  #readback(): GPUBuffer {
    return this.#readbacks.pop() ?? this.gpu.buffer(this.program.readback, USAGE.mapRead | USAGE.copyDestination)
  }

  #write(to: GPUBuffer, offset: number, dtype: number, core: Core, data: Address, count: number): void {
    const name = dtypes[dtype] as Dtype
    this.gpu.write(to, offset, name, core.view(name, data, count))
  }

  /** `more`: the blocks of a feeder. */
  #slice([block, offset, size]: SliceInfo, more: readonly GPUBuffer[] = []): Slice {
    const buffer = block < FIRST_STATE ? [...this.#blocks, ...more][block] : this.gpu.states[block - FIRST_STATE]?.buffer
    return { buffer: buffer as GPUBuffer, offset, size }
  }
  #bind(slices: readonly SliceInfo[], more: readonly GPUBuffer[] = []): GPUBindGroup {
    const entries = slices.map((slice, binding) => ({ binding, resource: this.#slice(slice, more) }))
    return this.gpu.device.createBindGroup({ layout: this.gpu.layout(slices.length), entries })
  }

  // ---- many steps

  /** Copies the data, which `core` holds. */
  makeFeeder(info: FeederInfo, core: Core): Feeder {
    const { gpu } = this
    const { storage, copySource, copyDestination, mapRead } = USAGE
    const blocks = info.blocks.map((bytes) => gpu.buffer(bytes, storage | copySource | copyDestination)), [data, control, history] = blocks as [GPUBuffer, GPUBuffer, GPUBuffer]
    const readback = gpu.buffer(history.size, mapRead | copyDestination)
    for (const { dtype, count, to, data: from } of info.arrays) if (to >= 0) this.#write(data, to, dtype, core, from, count)
    const groups = info.turns.map((slices) => this.#bind(slices, blocks))
    const pipeline = gpu.pipeline(info.source, info.turns[0].length, 'draw a batch')
    pipeline.catch(() => undefined)
    const given = new Set(info.arrays.map((each) => each.input))
    return { info, groups, pipeline, loss: this.#slice(info.loss), buffers: { data, control, history, readback }, next: 1, given }
  }
  dropFeeder(feeder: Feeder): void {
    for (const buffer of Object.values(feeder.buffers)) this.gpu.drop(buffer)
  }

  /** Makes at most `most` steps in one submission and returns their losses. `exact`: no fewer. A
   *  step that takes too long is alone, and is cut into several submissions. */
  async train(core: Core, feeder: Feeder, control: Uint32Array<ArrayBuffer>, inputs: readonly Address[], most: number, exact: boolean): Promise<Float32Array> {
    const [pipelines, draw] = await Promise.all([this.#pipelines, feeder.pipeline])
    const all = this.#stages.length, isSlow = this.#perSubmission < all
    const count = isSlow ? 1 : Math.min(most, exact ? most : feeder.next)
    const { queue } = this.gpu.device
    for (const [now] of feeder.info.turns) queue.writeBuffer(feeder.buffers.control, (now as SliceInfo)[1], control)
    this.#writeInputs(core, inputs, feeder.given)
    const start = performance.now()
    let begin = 0
    for (let end = this.#perSubmission; end < all; begin = end, end += this.#perSubmission) {
      const first = begin === 0 ? draw : null
      await this.#submit(pipelines, begin, Math.min(end, all), () => queue.onSubmittedWorkDone(), undefined, feeder, first)
    }
    await this.#submit(pipelines, begin, all, () => feeder.buffers.readback.mapAsync(MAP_READ, 0, count * 4), (encoder) => {
      if (count > 1) encoder.copyBufferToBuffer(feeder.buffers.history, 0, feeder.buffers.readback, 0, (count - 1) * 4)
      copySlice(encoder, feeder.loss, feeder.buffers.readback, (count - 1) * 4)
    }, feeder, begin === 0 ? draw : null, count).catch((error: unknown) => {
      this.gpu.drop(feeder.buffers.readback) // it may be mapped
      feeder.buffers.readback = this.gpu.buffer(feeder.buffers.history.size, USAGE.mapRead | USAGE.copyDestination)
      throw error
    })
    const losses = new Float32Array(feeder.buffers.readback.getMappedRange(0, count * 4)).slice()
    feeder.buffers.readback.unmap()
    const each = Math.max((performance.now() - start) / count, 1e-3)
    feeder.next = Math.max(1, Math.floor(Math.min(SLOW_MS / each, count * GROWS, MOST_STEPS)))
    return losses
  }

  // ---- one run

  /** `inputs`: addresses in the core's memory, one for each input, read before `submitted` is
   *  called. After that another run may begin. `outputs`: where the results go, 0 for one that is
   *  not wanted; they must not move meanwhile. `timer`: times each launch, in a pass of its own. */
  async run(
    core: Core, inputs: readonly Address[], outputs: readonly Address[], submitted = (): void => undefined, timer: Timer | null = null,
  ): Promise<void> {
    const pipelines = await this.#pipelines
    this.#writeInputs(core, inputs)
    const read = this.program.outputs.map((_, i) => i).filter((i) => outputs[i] !== 0)
    let begin = 0, end = this.#pieceEnd(0, timer)
    for (; end < this.#stages.length; begin = end, end = this.#pieceEnd(begin, timer))
      await this.#submit(pipelines, begin, end, () => this.gpu.device.queue.onSubmittedWorkDone(), undefined, null, null, 1, timer)
    const readback = this.#readback(), places = this.program.outputs.map(({ to }) => to)
    const from = places[read[0] ?? 0] ?? 0, last = read.at(-1) ?? 0, size = (places[last] ?? 0) + (this.#outputs[last]?.size ?? 0) - from
    await this.#submit(pipelines, begin, end, () => {
      submitted()
      return read.length > 0 ? readback.mapAsync(MAP_READ, from, size) : this.gpu.device.queue.onSubmittedWorkDone()
    }, (encoder) => {
      for (const i of read) copySlice(encoder, this.#outputs[i] as Slice, readback, places[i] as number)
      timer?.resolve(encoder)
    }, null, null, 1, timer).catch((error: unknown) => {
      this.gpu.drop(readback) // it may be mapped
      throw error
    })
    if (read.length > 0) {
      this.#take(core, read, outputs, readback.getMappedRange(from, size), from)
      readback.unmap()
    }
    this.#readbacks.push(readback)
    await timer?.take()
  }
  /** The end of the submission that begins at stage `begin`. A launch that is timed is not cut. */
  #pieceEnd(begin: number, timer: Timer | null): number {
    const end = Math.min(begin + this.#perSubmission, this.#stages.length)
    return timer === null || end === 0 ? end : this.#launchEnd(end - 1, this.#stages.length)
  }
  #launchEnd(begin: number, most: number): number {
    let end = begin + 1
    while (end < most && this.#stages[end]?.launch === this.#stages[begin]?.launch) end++
    return end
  }

  #writeInputs(core: Core, inputs: readonly Address[], given: ReadonlySet<number> = new Set()): void {
    this.program.inputs.forEach(({ dtype, count, to }, i) => {
      if (to >= 0 && !given.has(i)) this.#write(this.#blocks[INPUTS] as GPUBuffer, to, dtype, core, inputs[i] as Address, count)
    })
  }

  /** Makes one submission: stages [begin, end), `count` times, each time after the kernel that
   *  draws a batch, if there is one; then what `more` encodes. Waits for the promise of `done`.
   *  `timer`: each launch has a pass. */
  async #submit(
    pipelines: GPUComputePipeline[], begin: number, end: number, done: () => Promise<unknown>, more = (_: GPUCommandEncoder): void => undefined,
    feeder: Feeder | null = null, draw: GPUComputePipeline | null = null, count = 1, timer: Timer | null = null,
  ): Promise<void> {
    const { device } = this.gpu
    const start = Math.max(performance.now(), this.#lastDone)
    await this.gpu.guarded('running a step', () => {
      const encoder = device.createCommandEncoder()
      if (timer !== null) this.#encodeTimed(encoder, timer, pipelines, begin, end)
      else if (end > begin || draw !== null) {
        const pass = encoder.beginComputePass()
        for (let i = 0; i < count; i++) {
          if (feeder !== null && draw !== null) encodeDraw(pass, feeder, draw, i)
          this.#encode(pass, pipelines, begin, end)
        }
        pass.end()
      }
      more(encoder)
      device.queue.submit([encoder.finish()])
      return done()
    })
    if (count === 1) this.#adapt(end - begin, performance.now() - Math.max(start, this.#lastDone))
    this.#lastDone = performance.now()
  }

  #encodeTimed(encoder: GPUCommandEncoder, timer: Timer, pipelines: GPUComputePipeline[], begin: number, end: number): void {
    for (let first = begin, next = begin; first < end; first = next) {
      next = this.#launchEnd(first, end)
      const pass = encoder.beginComputePass(timer.pass(this.#stages[first]?.launch ?? 0))
      this.#encode(pass, pipelines, first, next)
      pass.end()
    }
  }
  #encode(pass: GPUComputePassEncoder, pipelines: GPUComputePipeline[], begin: number, end: number): void {
    let current = -1
    for (const { source, group, groups } of this.#stages.slice(begin, end)) {
      if (source !== current) pass.setPipeline(pipelines[source] as GPUComputePipeline)
      current = source
      pass.setBindGroup(0, group)
      pass.dispatchWorkgroups(...groups)
    }
  }

  /** Adapts the size of submissions: one of `stages` stages has kept the GPU busy for `ms`
   *  milliseconds. */
  #adapt(stages: number, ms: number): void {
    const all = this.#stages.length
    if (ms > SLOW_MS && stages > 1) this.#perSubmission = Math.max(1, Math.floor((stages * SLOW_MS) / ms))
    else if (stages === this.#perSubmission && stages < all) { // it grows if it should still take less than half of that
      const grown = Math.min(all, stages * 2)
      if (ms * grown < (SLOW_MS / 2) * stages) this.#perSubmission = grown
    }
  }

  #take(core: Core, read: readonly number[], outputs: readonly Address[], mapped: ArrayBuffer, from: number): void {
    for (const i of read) {
      const { dtype, count, to } = this.program.outputs[i] as ProgramInfo['outputs'][number], name = dtypes[dtype] as Dtype
      narrow(core.view(name, outputs[i] as Address, count), name, mapped, to - from)
    }
  }
}
