// The WebGPU calls of a replay, on a device that only records them: what is written from where, the
// order of stages, what is read back.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newArray, type Core, type ProgramInfo } from '../src/core.js'
import { Executable, Gpu } from '../src/gpu.js'
import type { Timer } from '../src/timer.js'
import type { Dtype } from '../src/types.js'

interface Note { what: string; offset: number; data?: ArrayBufferView }

class Notes {
  readonly all: Note[] = []
  readonly device: GPUDevice

  constructor() {
    const { all } = this
    const limits = {}, lost = new Promise<never>(() => undefined)
    const buffer = ({ size }: { size: number }) => {
      const own = { size, destroy() {}, mapAsync: async () => undefined, getMappedRange: (from: number, bytes: number) => filled(from, bytes), unmap() {} }
      return own
    }
    const pass = {
      setPipeline: (pipeline: unknown) => all.push({ what: `pipeline ${String(pipeline)}`, offset: 0 }), setBindGroup() {}, end() {},
      dispatchWorkgroups: (x: number) => all.push({ what: 'dispatch', offset: x }),
    }
    const encoder = {
      beginComputePass: () => pass, finish: () => null,
      copyBufferToBuffer: (_: unknown, from: number, __: unknown, to: number, bytes: number) => all.push({ what: `copy ${from}, ${bytes} bytes`, offset: to }),
    }
    this.device = {
      limits, lost, addEventListener() {}, pushErrorScope() {}, popErrorScope: async () => null, createBuffer: buffer, createBindGroupLayout: () => null,
      createBindGroup: () => null, createPipelineLayout: () => null, createShaderModule: ({ code }: { code: string }) => code,
      createComputePipelineAsync: async ({ compute }: { compute: { module: string } }) => compute.module, createCommandEncoder: () => encoder,
      queue: { submit() {}, writeBuffer: (_: unknown, offset: number, data: ArrayBufferView) => all.push({ what: 'write', offset, data }) },
    } as unknown as GPUDevice
  }
}
/** Words 100, 101, ... from a byte on. */
const filled = (from: number, bytes: number): ArrayBuffer => Float32Array.from({ length: bytes / 4 }, (_, i) => 100 + from / 4 + i).buffer

const [f32, i32, bool] = [0, 1, 2]
const program: ProgramInfo = {
  blocks: [512, 0, 1024, 0], readback: 32, constants: [], buffers: [],
  inputs: [
    { name: 'x', dtype: f32, count: 8, to: 0 }, { name: 'idle', dtype: f32, count: 8, to: -1 }, { name: 'mask', dtype: bool, count: 4, to: 256 },
    { name: 'index', dtype: i32, count: 2, to: 512 },
  ],
  outputs: [{ buffer: 0, dtype: f32, count: 1, to: 0, slice: [0, 256, 4] }, { buffer: 1, dtype: f32, count: 2, to: 16, slice: [0, 0, 8] }],
  sources: [{ text: 'a', bindings: 1, label: 'first' }, { text: 'b', bindings: 2, label: 'second' }],
  stages: [
    { source: 0, groups: [3, 1, 1], slices: [[2, 0, 32]], launch: 0, bindings: [0], label: 'first' },
    { source: 0, groups: [4, 1, 1], slices: [[2, 256, 16]], launch: 0, bindings: [0], label: 'first' },
    { source: 1, groups: [5, 1, 1], slices: [[0, 0, 8], [0, 256, 4]], launch: 1, bindings: [0, 1], label: 'second' },
  ],
}

/** A core that is memory alone: inputs and outputs lie in it. */
function coreOf(memory: ArrayBuffer | SharedArrayBuffer): Core {
  const view = (dtype: Dtype, at: number, count: number) => {
    const Kind = newArray(dtype, 0).constructor as Float32ArrayConstructor
    return new Kind(memory as ArrayBuffer, at, count)
  }
  return { view } as unknown as Core
}
async function runOnce(memory: ArrayBuffer | SharedArrayBuffer, outputs: number[]): Promise<Note[]> {
  const notes = new Notes(), core = coreOf(memory)
  const executable = new Executable(new Gpu(notes.device, 'notes', false), program, core)
  await executable.run(core, [0, 64, 128, 192], outputs)
  return notes.all
}

test('inputs of 32 bits are sent from the memory of the core, and no copy of them', async () => {
  const memory = new ArrayBuffer(1024)
  new Uint8Array(memory, 128, 4).set([1, 0, 0, 1])
  const written = (await runOnce(memory, [256, 0])).filter(({ what }) => what === 'write')
  assert.deepEqual(written.map(({ offset }) => offset), [0, 256, 512])
  const [x, mask, index] = written.map(({ data }) => data as ArrayBufferView) as [ArrayBufferView, ArrayBufferView, ArrayBufferView]
  assert.ok(x.buffer === memory && x.byteOffset === 0 && x.byteLength === 32)
  assert.ok(index.buffer === memory && index.byteOffset === 192 && index.byteLength === 8)
  assert.deepEqual(mask, Uint32Array.of(1, 0, 0, 1))
})
test('memory that is shared is not sent as it is: not every engine takes it', async () => {
  const memory = new SharedArrayBuffer(1024)
  new Float32Array(memory, 0, 8).fill(7)
  const [x] = (await runOnce(memory, [256, 0])).filter(({ what }) => what === 'write')
  assert.ok(x?.data?.buffer instanceof ArrayBuffer)
  assert.deepEqual(x.data, new Float32Array(8).fill(7))
})
test('stages in order, a pipeline set when it changes, and what is wanted read back to where it belongs', async () => {
  const memory = new ArrayBuffer(1024)
  const whats = (await runOnce(memory, [0, 320])).filter(({ what }) => what !== 'write').map(({ what, offset }) => `${what} ${offset}`)
  assert.deepEqual(whats, ['pipeline a 0', 'dispatch 3', 'dispatch 4', 'pipeline b 0', 'dispatch 5', 'copy 0, 8 bytes 16'])
  assert.deepEqual(new Float32Array(memory, 320, 2), Float32Array.of(104, 105))
  const both = (await runOnce(memory, [384, 400])).filter(({ what }) => what.startsWith('copy')).map(({ what, offset }) => `${what} ${offset}`)
  assert.deepEqual(both, ['copy 256, 4 bytes 0', 'copy 0, 8 bytes 16'])
  assert.deepEqual(new Float32Array(memory, 384, 6), Float32Array.of(100, 0, 0, 0, 104, 105))
})
test('a timed run has a pass for each launch, and reads the times at the end', async () => {
  const notes = new Notes(), { all } = notes, note = (what: string) => void all.push({ what, offset: 0 })
  const timer = { pass: (launch: number) => note(`launch ${launch}`), resolve: () => note('resolve'), take: async () => note('take') } as unknown as Timer
  const core = coreOf(new ArrayBuffer(1024)), executable = new Executable(new Gpu(notes.device, 'notes', false), program, core)
  await executable.run(core, [0, 64, 128, 192], [0, 320], undefined, timer)
  const whats = all.filter(({ what }) => what !== 'write' && !what.startsWith('pipeline')).map(({ what, offset }) => `${what} ${offset}`)
  assert.deepEqual(whats, ['launch 0 0', 'dispatch 3', 'dispatch 4', 'launch 1 0', 'dispatch 5', 'copy 0, 8 bytes 16', 'resolve 0', 'take 0'])
})
