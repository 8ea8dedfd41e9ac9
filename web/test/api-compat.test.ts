// tensorgrad/compat: version 0.4's names, each does what COMING-FROM.md says.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  add, attach, checkWebGPU, compile, compileForward, compileModule, Conv2d, crossEntropy, FormatError, getOpInputs, init, isWebGPUAvailable, Linear, loadSafetensors, logSoftmax,
  lr, matmul, max, min, Module, mul, nearestUpsample2d, nllLoss, normalizeGrads, permute, relu, resolveLR, singleFlight, softmaxCausal, square, sub, sum, argmax,
  type LRSchedule, type OptimizerConfig, type Tensor,
} from '../src/compat.js'
import '../src/node.js'
import { thrown } from './api-support.js'

process.env['TENSORGRAD_DEVICE'] = 'cpu'

class Empty extends Module {}
/** What op makes of x. */
async function values(shape: readonly number[], x: ArrayLike<number>, op: (x: Tensor) => Tensor): Promise<number[]> {
  const model = await compileForward({ model: new Empty(), forward: (_, inputs) => op(inputs.x), inputs: { x: shape } }), r = await model.run({ x: Float32Array.from(x) })
  model.destroy()
  assert.ok(r.kind === 'completed', r.kind === 'failed' ? r.error.message : r.kind)
  return [...r.output]
}
const close = (got: ArrayLike<number>, want: ArrayLike<number>, within = 1e-6): void => {
  assert.equal(got.length, want.length)
  for (let i = 0; i < want.length; i++) assert.ok(Math.abs(got[i]! - want[i]!) <= within * Math.max(1, Math.abs(want[i]!)), `${Array.from(got).join()}, not ${Array.from(want).join()}`)
}

test('operations', async () => {
  assert.deepEqual(await values([2, 3], [1, 2, 3, 4, 5, 6], (x) => permute(x, [1, 0])), [1, 4, 2, 5, 3, 6])
  assert.deepEqual(await values([1, 1, 1, 2], [1, 2], (x) => nearestUpsample2d(x, 2)), [1, 1, 2, 2, 1, 1, 2, 2])
  assert.deepEqual(await values([3], [1, 2, 3], (x) => add(min(x, 2), max(mul(x, 10), 15))), [16, 22, 32])
  close(await values([2, 2], [1, 5, 1, 1], softmaxCausal), [1, 0, 0.5, 0.5])
  assert.deepEqual(await values([2, 1, 1], [2, 3], (x) => matmul(x, x)), [4, 9])
  assert.deepEqual(await values([1, 2], [2, 3], (x) => matmul(x, permute(x, [1, 0]))), [13])
})

test('nllLoss and crossEntropy', async () => {
  const model = await compileForward({
    model: new Empty(), forward: (_, { x, t }) => add(nllLoss(logSoftmax(x), t, { reduction: 'none' }), crossEntropy(x, t, { reduction: 'none' })),
    inputs: { x: [2, 2], t: { shape: [2], dtype: 'i32' } },
  })
  const r = await model.run({ x: new Float32Array([0, 0, 1, 3]), t: new Int32Array([0, 1]) })
  assert.ok(r.kind === 'completed')
  close(r.output, [2 * Math.log(2), 2 * Math.log(1 + Math.exp(-2))])
  model.destroy()
})

test('layers begin as those of 0.4', async () => {
  class Two extends Module {
    a = new Linear(200, 20)
    b = new Conv2d(4, 8, 5)
  }
  const model = await compileForward({ model: new Two(), forward: (m) => add(sum(m.a.W), sum(m.b.W)), inputs: {}, seed: 1 }), params = await model.downloadParams()
  for (const name of ['a.W', 'b.W']) {
    const w = params[name] as Float32Array
    close([Math.hypot(...w) / Math.sqrt(w.length)], [0.02], 2e-3)
  }
  assert.deepEqual(new Linear(2, 3, { bias: false }).b, null)
  model.destroy()
})

test('rates', () => {
  const rows: [LRSchedule, number[]][] = [
    [lr.linear({ peak: 1, final: 0, steps: 4 }), [0.75, 0.5, 0.25, 0, 0]],
    [lr.cosineAnnealing({ peak: 1, final: 0, steps: 2 }), [0.5, 0, 0]],
    [lr.warmup({ peak: 0.4, steps: 2, after: 0.3 }), [0.2, 0.4, 0.3]],
    [lr.staircase({ peak: 1, every: 2, gamma: 0.5 }), [1, 1, 0.5, 0.5, 0.25]],
    [lr.multiStep({ peak: 1, milestones: [3, 4], gamma: 0.5 }), [1, 1, 0.5, 0.25, 0.25]],
    [lr.multiStep({ peak: 1, milestones: [1, 2], gamma: 0.5 }), [0.5, 0.25, 0.25]],
    [lr.multiStep({ peak: 1, milestones: [1], gamma: 0.5 }), [0.5, 0.5]],
  ]
  for (const [schedule, want] of rows) close(want.map((_, i) => resolveLR(schedule, i + 1)), want)
})

class Line extends Module {
  w: Tensor = this.param([2], { init: init.literal(new Float32Array([1, -2])) })
  b: Tensor = this.param([2], { init: init.literal(new Float32Array([0.5, 0.5])) })
}
const loss = (m: Line, { x }: { x: Tensor }): Tensor => sum(add(mul(m.w, x), mul(square(m.b), x)))
const inputs = { x: [2] } as const
const GRADIENTS = [[3, 4], [-1, 2], [0.5, -0.25]] as const

/** w, b after three steps by the formulas of 0.4. */
function wanted(o: OptimizerConfig): { w: number[]; b: number[] } {
  const p = { w: [1, -2], b: [0.5, 0.5] }, m = { w: [0, 0], b: [0, 0] }, v = { w: [0, 0], b: [0, 0] }, names = ['w', 'b'] as const
  GRADIENTS.forEach((x, step) => {
    const g = { w: [...x] as number[], b: x.map((each, i) => 2 * each * p.b[i]!) }
    for (const name of names)
      if (typeof o.normalizeGrads === 'function' ? o.normalizeGrads(name) : o.normalizeGrads) {
        const length = Math.hypot(...g[name]) + 1e-8
        g[name] = g[name].map((each) => each / length)
      }
    const norm = Math.hypot(...g.w, ...g.b), scale = o.clipGradNorm === undefined ? 1 : Math.min(1, o.clipGradNorm / (norm + 1e-6)), rate = o.lr as number
    for (const name of names)
      g[name].forEach((raw, i) => {
        const decay = 'weightDecay' in o && (o.decayFilter?.(name) ?? true) ? (o.weightDecay ?? 0) : 0
        if (o.kind === 'sgd') {
          const whole = raw * scale + decay * p[name][i]!, momentum = o.momentum ?? 0
          v[name][i] = momentum * v[name][i]! + whole
          p[name][i]! -= rate * (o.nesterov ? whole + momentum * v[name][i]! : v[name][i]!)
          return
        }
        const { beta1 = 0.9, beta2 = 0.999, eps = 1e-8 } = o, each = raw * scale
        m[name][i] = beta1 * m[name][i]! + (1 - beta1) * each
        v[name][i] = beta2 * v[name][i]! + (1 - beta2) * each * each
        const root = Math.sqrt(1 - beta2 ** (step + 1)) / (1 - beta1 ** (step + 1))
        p[name][i] = p[name][i]! * (1 - rate * decay) - rate * root * m[name][i]! / (Math.sqrt(v[name][i]!) + eps)
      })
  })
  return p
}

const optimizers: OptimizerConfig[] = [
  { kind: 'adam', lr: 0.1 }, { kind: 'adam', lr: 0.1, beta1: 0, beta2: 0.5, eps: 0.1 }, { kind: 'adam', lr: 0.1, clipGradNorm: 1, eps: 0.1 },
  { kind: 'adamw', lr: 0.1, weightDecay: 0.5, decayFilter: (name) => name === 'b' }, { kind: 'adam', lr: 0.1, normalizeGrads: true, eps: 0.1 },
  { kind: 'adam', lr: 0.1, normalizeGrads: (name) => name === 'w', eps: 0.1, clipGradNorm: 0.5 }, { kind: 'adamw', lr: 0.1, weightDecay: 0.5, normalizeGrads: true },
  { kind: 'sgd', lr: 0.1 }, { kind: 'sgd', lr: 0.1, momentum: 0.9, nesterov: true }, { kind: 'sgd', lr: 0.1, momentum: 0.9, weightDecay: 0.5 },
  { kind: 'sgd', lr: 0.1, momentum: 0.9, weightDecay: 0.5, nesterov: true, normalizeGrads: (name) => name === 'b' }, { kind: 'sgd', lr: 0.1, weightDecay: 0.5 },
]
for (const optimizer of optimizers)
  test(`three steps of ${JSON.stringify(optimizer)}${typeof optimizer.normalizeGrads === 'function' ? ' (some normalised)' : ''}`, async () => {
    const train = await compile({ model: new Line(), loss, inputs, optimizer }), want = wanted(optimizer)
    for (const x of GRADIENTS) assert.equal((await train.step({ x: new Float32Array(x) })).kind, 'completed')
    const { w, b } = await train.downloadParams()
    close(w as Float32Array, want.w, 3e-6)
    close(b as Float32Array, want.b, 3e-6)
    train.destroy()
  })

test('normalizeGrads as a function', async () => {
  const got = await values([2], [3, 4], (x) => (normalizeGrads({ a: x, b: x }, (name) => name === 'a')['a'] as Tensor))
  close(got, [0.6, 0.8])
  assert.deepEqual(await values([2], [3, 4], (x) => normalizeGrads({ a: x }, false)['a'] as Tensor), [3, 4])
})

test('compile, attach, replaceModel, reset, results that say how they came out', async () => {
  const train = await compile({ model: new Line(), loss, inputs, optimizer: { kind: 'sgd', lr: 0.5 }, seed: 7 })
  assert.deepEqual([train.seed, train.paramNames, train.outputShape, train.graph.outputs.length, train.kernels.length > 0], [7, ['w', 'b'], [], 1, true])
  assert.ok(train.graph.ops.every((op) => getOpInputs(op) === op.inputs))
  const infer = await train.attach({ forward: (m, { x }) => mul(m.w, x), inputs: { x: [null, 2] } })
  const other = await attach(train, { forward: (m) => argmax(m.w), inputs: {}, output: 'i32' })
  const ran = async (): Promise<number[]> => {
    const r = await infer.run({ x: new Float32Array([1, 1, 2, 2]) })
    return r.kind === 'completed' ? [...r.output] : assert.fail(r.kind)
  }
  assert.deepEqual(await ran(), [1, -2, 2, -4])
  const r = await train.step({ x: new Float32Array([1, 1]) })
  assert.ok(r.kind === 'completed' && r.captures.names().length === 0)
  close([r.loss], [-0.5])
  assert.deepEqual(await ran(), [0.5, -2.5, 1, -5])
  const index = await other.run({})
  assert.ok(index.kind === 'completed' && index.output instanceof Int32Array && index.output[0] === 0)
  await train.uploadParams({ w: new Float32Array([7, 8]) })
  assert.deepEqual(await ran(), [7, 8, 14, 16])
  await train.reset({ optimizer: false })
  assert.deepEqual(await ran(), [1, -2, 2, -4])
  await train.setLR(0.25)
  assert.equal((await train.step({ x: new Float32Array([1, 1]) })).kind, 'completed')
  await train.reset()
  class Wide extends Line {
    extra = this.param([1])
  }
  await train.replaceModel(new Wide() as Line, { seed: 9, optimizer: { kind: 'adam', lr: 0.1 } })
  assert.deepEqual([train.seed, train.paramNames], [9, ['w', 'b', 'extra']])
  assert.deepEqual(await ran(), [1, -2, 2, -4])
  assert.ok((await infer.graphFor()).kernels.length > 0)
  const failed = await train.step({ x: new Float32Array(3) })
  assert.ok(failed.kind === 'failed' && /x/.test(failed.error.message))
  await assert.rejects(train.attach({ forward: (m) => argmax(m.w), inputs: {} }), /output: 'i32'/)
  train.destroy()
  assert.deepEqual(await train.step({ x: new Float32Array(2) }), { kind: 'aborted' })
  assert.deepEqual(await infer.run({ x: new Float32Array(2) }), { kind: 'aborted' })
  const now = await compileModule(() => new Line(), loss, { inputs: { x: { shape: [2] } }, device: 'cpu' }), attached = await attach(now, { forward: (m) => sub(m.w, 1), inputs: {} })
  const got = await attached.run({})
  assert.deepEqual(got.kind === 'completed' && [...got.output], [0, -3])
  await now.destroy()
})

test('a seed that nobody gave is told, and gives the same again', async () => {
  class One extends Module {
    w = this.param([4])
  }
  const spec = { loss: (m: One) => sum(relu(m.w)), inputs: {}, optimizer: { kind: 'adam', lr: 0.1 } } as const
  const a = await compile({ model: new One(), ...spec }), b = await compile({ model: new One(), ...spec, seed: a.seed }), c = await compile({ model: new One(), ...spec })
  assert.deepEqual(await a.downloadParams(), await b.downloadParams())
  assert.notDeepEqual(await a.downloadParams(), await c.downloadParams())
  for (const each of [a, b, c]) each.destroy()
})

test('singleFlight', async () => {
  const begun: number[] = [], call = singleFlight(async (n: number) => {
    begun.push(n)
    await new Promise((resolve) => setTimeout(resolve, 5))
    if (n === 4) throw new Error('four')
    return n * 10
  })
  assert.deepEqual(await Promise.all([call(1), call(2), call(3)]), [{ kind: 'completed', value: 10 }, { kind: 'aborted' }, { kind: 'completed', value: 30 }])
  await assert.rejects(call(4), /four/)
  assert.deepEqual(begun, [1, 3, 4])
})

test('checkWebGPU', async () => {
  const saved = Object.getOwnPropertyDescriptor(globalThis, 'navigator')
  const here = (gpu: unknown) => Object.defineProperty(globalThis, 'navigator', { value: gpu === undefined ? {} : { gpu }, configurable: true })
  try {
    here(undefined)
    const none = await checkWebGPU()
    assert.ok(!isWebGPUAvailable() && !none.ok && none.reason === 'no-webgpu' && none.message.length > 20)
    for (const requestAdapter of [async () => null, async () => Promise.reject(new Error('no'))]) {
      here({ requestAdapter })
      const kept = await checkWebGPU()
      assert.ok(isWebGPUAvailable() && !kept.ok && kept.reason === 'no-adapter')
    }
    here({ requestAdapter: async () => ({}) })
    assert.deepEqual(await checkWebGPU(), { ok: true })
  } finally {
    if (saved !== undefined) Object.defineProperty(globalThis, 'navigator', saved)
    else delete (globalThis as { navigator?: unknown }).navigator
  }
})

// ---------------------------------------------------------------- safetensors

function file(header: object | string, data: ArrayLike<number>, length?: number): Uint8Array {
  const text = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header)), bytes = new Uint8Array(8 + text.length + data.length)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length ?? text.length), true)
  bytes.set(text, 8)
  bytes.set(Uint8Array.from(data), 8 + text.length)
  return bytes
}
const bytesOf = (array: ArrayBufferView): number[] => [...new Uint8Array(array.buffer, array.byteOffset, array.byteLength)]

test('loadSafetensors: every dtype it reads, at any alignment', () => {
  const parts: [string, string, number[], number[]][] = [
    ['odd', 'U8', [1], [200]],
    ['f', 'F32', [2, 1], bytesOf(new Float32Array([1.5, -2]))],
    ['h', 'F16', [8], bytesOf(new Uint16Array([0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000, 0x3555, 0x7e00]))],
    ['b', 'BF16', [3], bytesOf(new Uint16Array([0x3f80, 0xc049, 0x7f80]))],
    ['d', 'F64', [1], bytesOf(new Float64Array([0.1]))],
    ['i', 'I32', [2], bytesOf(new Int32Array([-5, 2 ** 31 - 1]))],
    ['s', 'I16', [1], bytesOf(new Int16Array([-3]))],
    ['n', 'I64', [1], bytesOf(new BigInt64Array([3n]))],
    ['scalar', 'F32', [], bytesOf(new Float32Array([9]))],
    ['none', 'F32', [0, 3], []],
  ]
  let at = 0
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } }
  for (const [name, dtype, shape, data] of parts) header[name] = { dtype, shape, data_offsets: [at, (at += data.length)] }
  const bytes = file(header, parts.flatMap(([, , , data]) => data))
  const shifted = new Uint8Array(bytes.length + 3)
  shifted.set(bytes, 3)
  for (const source of [bytes, bytes.buffer as ArrayBuffer, shifted.subarray(3)]) {
    const { tensors, integers, shapes, skipped, metadata } = loadSafetensors(source)
    assert.deepEqual(tensors, {
      f: new Float32Array([1.5, -2]), h: new Float32Array([1, -2, 2 ** -24, 65504, Infinity, -0, 0.333251953125, NaN]), b: new Float32Array([1, -3.140625, Infinity]),
      d: new Float32Array([0.1]), scalar: new Float32Array([9]), none: new Float32Array(0),
    })
    assert.deepEqual([integers, skipped, metadata], [{ odd: new Int32Array([200]), i: new Int32Array([-5, 2 ** 31 - 1]), s: new Int32Array([-3]) }, { n: 'I64' }, { format: 'pt' }])
    assert.deepEqual([shapes['f'], shapes['n'], shapes['none'], shapes['scalar']], [[2, 1], [1], [0, 3], []])
  }
})

test('loadSafetensors refuses what is malformed', () => {
  const one = (entry: object) => file({ w: { dtype: 'F32', shape: [1], data_offsets: [0, 4], ...entry }, }, [0, 0, 128, 63])
  assert.deepEqual(loadSafetensors(one({})).tensors, { w: new Float32Array([1]) })
  const bad: Uint8Array[] = [
    new Uint8Array(7), file('{}', [], 3), file('{}', [], 2 ** 52), file('[]', []), file('{', []), file('null', []), file({ w: 3 }, []), one({ dtype: 4 }), one({ shape: 'x' }),
    one({ shape: [-1] }), one({ shape: [0.5] }), one({ shape: [2] }), one({ shape: [2 ** 40, 2 ** 40] }), one({ data_offsets: [0, 8] }), one({ data_offsets: [4, 0] }),
    one({ data_offsets: [-4, 0] }), one({ data_offsets: [0] }), one({ data_offsets: [0, 2 ** 60] }), one({ data_offsets: null }), one({ dtype: 'F64' }), one({ dtype: 'I64', data_offsets: [0, 99] }),
  ]
  for (const [i, bytes] of bad.entries()) {
    const error = thrown(() => loadSafetensors(bytes))
    assert.ok(error instanceof FormatError, `${i}: ${error}`)
    assert.match(error.message, /^loadSafetensors: /)
  }
  assert.match(thrown(() => loadSafetensors('x' as never)).message, /takes an ArrayBuffer or a Uint8Array/)
  assert.deepEqual(Object.keys(loadSafetensors(file('{"__proto__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', [0, 0, 128, 63])).tensors), ['__proto__'])
})

test('a file goes into a model', async () => {
  const bytes = file({ w: { dtype: 'F32', shape: [2], data_offsets: [0, 8] } }, bytesOf(new Float32Array([5, 6])))
  const model = await compileForward({ model: new Line(), forward: (m) => add(m.w, m.b), inputs: {} })
  await model.uploadParams(loadSafetensors(bytes).tensors)
  const r = await model.run({})
  assert.deepEqual(r.kind === 'completed' && [...r.output], [5.5, 6.5])
  model.destroy()
})
