// The times of launches on a GPU: timestamps around the pass of each, and their mean over the runs.
// Browsers round timestamps, Chrome to 0.1 ms; the mean of many differences is right, their median is
// not. Must not know programs or models.

import { MAP_READ, USAGE, type Gpu } from './gpu.js'

/** Of a query set, which has at most 4096 queries: two each. */
const LAUNCHES = 2048
const LAUNCH_BYTES = 16 // two times, u64 ns

export class Timer {
  readonly #sets: GPUQuerySet[]
  readonly #resolved: GPUBuffer
  readonly #readback: GPUBuffer
  readonly #sums: Float64Array
  #runs = 0

  constructor(readonly gpu: Gpu, readonly launches: number) {
    const sizes = Array.from({ length: Math.ceil(launches / LAUNCHES) }, (_, i) => Math.min(LAUNCHES, launches - i * LAUNCHES))
    const bytes = Math.max(1, sizes.length) * LAUNCHES * LAUNCH_BYTES
    this.#sets = sizes.map((size) => gpu.device.createQuerySet({ type: 'timestamp', count: 2 * size }))
    this.#resolved = gpu.buffer(bytes, USAGE.queryResolve | USAGE.copySource)
    this.#readback = gpu.buffer(bytes, USAGE.mapRead | USAGE.copyDestination)
    this.#sums = new Float64Array(launches)
  }

  /** What the pass of a launch begins with. */
  pass(launch: number): GPUComputePassDescriptor {
    const querySet = this.#sets[Math.floor(launch / LAUNCHES)], query = 2 * (launch % LAUNCHES)
    return querySet === undefined ? {} : { timestampWrites: { querySet, beginningOfPassWriteIndex: query, endOfPassWriteIndex: query + 1 } }
  }
  /** Encodes, after the last pass of a run, that `take` can read its times. */
  resolve(encoder: GPUCommandEncoder): void {
    this.#sets.forEach((set, i) => encoder.resolveQuerySet(set, 0, set.count, this.#resolved, i * LAUNCHES * LAUNCH_BYTES))
    encoder.copyBufferToBuffer(this.#resolved, 0, this.#readback, 0, this.#readback.size)
  }
  /** Adds the times of a run that is done. */
  async take(): Promise<void> {
    await this.#readback.mapAsync(MAP_READ)
    const times = new BigUint64Array(this.#readback.getMappedRange())
    for (let i = 0; i < this.launches; i++) this.#sums[i] = (this.#sums[i] as number) + Number((times[2 * i + 1] as bigint) - (times[2 * i] as bigint))
    this.#readback.unmap()
    this.#runs++
  }
  /** Milliseconds of each launch. */
  get milliseconds(): number[] {
    return [...this.#sums].map((ns) => Math.max(0, ns / Math.max(1, this.#runs) / 1e6))
  }
  destroy(): void {
    for (const set of this.#sets) set.destroy()
    this.gpu.drop(this.#resolved)
    this.gpu.drop(this.#readback)
  }
}
