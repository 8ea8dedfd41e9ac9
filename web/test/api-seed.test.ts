// Programs written for version 0.0.17 run: names, forms of options, and their meaning. Their types
// are in api-types.ts.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  capture, Captures, cast, compileForward, compileModule, init, lr, Module, mul, nn, resolveLR, ShapeError, sum, trace, oneHot, add, paramInput, tensorInput,
  type AdamConfig, type CompiledModule, type InitSpec, type LRSchedule, type Tensor,
} from '../src/node.js'
import { opError } from './api-support.js'

class Line extends Module {
  w: Tensor = this.param([2], { init: init.literal(new Float32Array([1, -2])) })
}
const lossOf = (m: Line, { x }: { x: Tensor }): Tensor => sum(mul(m.w, x))
const inputs = { x: { shape: [2] } } as const
const near = (got: ArrayLike<number>, want: readonly number[]): void => {
  assert.equal(got.length, want.length)
  want.forEach((value, i) => assert.ok(Math.abs((got[i] as number) - value) <= 1e-6 * Math.max(1, Math.abs(value)), `${String(got[i])}, not ${value}`))
}

const GRADIENTS = [[1, 1e-9], [-2, 3e-9], [0.5, -1e-9]] as const

/** w after each step with these gradients. */
async function trained(adam: AdamConfig): Promise<number[]> {
  const model = await compileModule(() => new Line(), lossOf, { adam, inputs, device: 'cpu' }), seen: number[] = []
  for (const x of GRADIENTS) {
    await model.step({ x: new Float32Array(x) })
    seen.push(...((await model.downloadParams())['w'] as Float32Array))
  }
  await model.destroy()
  return seen
}
/** The same by the formula. */
function wanted({ b1 = 0.9, b2 = 0.999, eps = 1e-8 }: Partial<AdamConfig>, rate: number): number[] {
  const w = [1, -2], m = [0, 0], v = [0, 0]
  return GRADIENTS.flatMap((gradient, step) => gradient.map((g, i) => {
    m[i] = b1 * m[i]! + (1 - b1) * g
    v[i] = b2 * v[i]! + (1 - b2) * g * g
    return (w[i]! -= rate * Math.sqrt(1 - b2 ** (step + 1)) / (1 - b1 ** (step + 1)) * m[i]! / (Math.sqrt(v[i]!) + eps))
  }))
}

test('a model kept in a variable of a plain type takes batches of a plain type', async () => {
  let model: CompiledModule<Line>
  model = await compileModule(() => new Line(), (m, { x, n }) => add(lossOf(m, { x }), cast(sum(n), 'f32')), {
    adam: { lr: 0.1 }, inputs: { x: { shape: [2] }, n: { shape: [3], dtype: 'i32' } }, device: 'cpu',
  })
  const batch: Record<string, Float32Array | Int32Array> = { x: new Float32Array([1, 3]), n: new Int32Array([1, 2, 3]) }
  near([await model.step(batch)], [1])
  near(await model.run(batch), [1 + 0.1 * -1 + 0.1 * -3])
  await assert.rejects(model.step({ ...batch, m: new Float32Array(1) }), /m/)
  await model.destroy()
})

const schedules: [LRSchedule, number[]][] = [
  [0.005, [0.005, 0.005]],
  [{ kind: 'constant', value: 0.5 }, [0.5, 0.5]],
  [{ kind: 'linearDecay', peak: 1, final: 0, steps: 4 }, [0.75, 0.5, 0.25, 0, 0]],
  [{ kind: 'cosineDecay', peak: 1, final: 0, steps: 2 }, [0.5, 0, 0]],
  [{ kind: 'warmup', peakLr: 0.4, warmupSteps: 2, after: { kind: 'linearDecay', peak: 0.4, final: 0, steps: 2 } }, [0.2, 0.4, 0.2, 0, 0]],
  [{ kind: 'warmup', peakLr: 0.4, warmupSteps: 2, after: 0.3 }, [0.2, 0.4, 0.3]],
  [
    { kind: 'warmup', peakLr: 0.4, warmupSteps: 2, after: { kind: 'warmup', peakLr: 0.9, warmupSteps: 3, after: { kind: 'constant', value: 0.1 } } },
    [0.2, 0.4, 0.3, 0.6, 0.9, 0.1],
  ],
]
for (const [schedule, rates] of schedules)
  test(`the schedule ${JSON.stringify(schedule)}: the same rates on the host and in steps`, async () => {
    near(rates.map((_, i) => resolveLR(schedule, i + 1)), rates)
    const sgd = await compileModule(() => new Line(), lossOf, { sgd: { lr: schedule }, inputs, device: 'cpu' })
    const want = [1, -2], x = [1, 3] // w -= rate x
    for (const rate of rates) {
      await sgd.step({ x: new Float32Array(x) })
      want.forEach((w, i) => (want[i] = w - rate * (x[i] as number)))
      near((await sgd.downloadParams())['w'] as Float32Array, want)
    }
    await sgd.destroy()
  })

test('lr.* makes these objects', () => {
  const after = lr.linearDecay({ peak: 1, final: 0, steps: 4 })
  assert.deepEqual(after, { kind: 'linearDecay', peak: 1, final: 0, steps: 4 })
  assert.deepEqual(lr.cosineDecay({ peak: 1, final: 0, steps: 4 }), { kind: 'cosineDecay', peak: 1, final: 0, steps: 4 })
  assert.deepEqual(lr.constant(2), { kind: 'constant', value: 2 })
  assert.deepEqual(lr.warmup({ peakLr: 3, warmupSteps: 5, after }), { kind: 'warmup', peakLr: 3, warmupSteps: 5, after })
})

test('initial values by name, and with what they leave out', async () => {
  const specs: [InitSpec, (values: Float32Array) => boolean][] = [
    ['zeros', (values) => values.every((v) => v === 0)],
    ['ones', (values) => values.every((v) => v === 1)],
    [init.randn({ scale: 0 }), (values) => values.every((v) => v === 0)],
    [{ kind: 'randn', scale: 0 }, (values) => values.every((v) => v === 0)],
    [init.kaiming({ gain: 0 }), (values) => values.every((v) => v === 0)],
    [{ kind: 'kaiming' }, (values) => Math.abs(Math.hypot(...values) / Math.sqrt(values.length) - Math.SQRT2 / 8) < 0.02],
    [{ kind: 'randn' }, (values) => Math.abs(Math.hypot(...values) / Math.sqrt(values.length) - 0.02) < 0.002],
    ['randn', (values) => Math.abs(Math.hypot(...values) / Math.sqrt(values.length) - 0.02) < 0.002],
  ]
  for (const [spec, fits] of specs) {
    class One extends Module {
      w: Tensor = this.param([64, 16], { init: spec })
    }
    const model = await compileForward(() => new One(), (m) => sum(m.w), { device: 'cpu' })
    const values = (await model.downloadParams())['w'] as Float32Array
    assert.ok(fits(values), `${JSON.stringify(spec)}: ${values.slice(0, 4).join(' ')}`)
    await model.destroy()
  }
})

test('randn decays, whatever its scale; zeros do not', () => {
  const { params } = trace(() => {
    const a = paramInput('a', [2], { init: init.randn({ scale: 0 }) }), b = paramInput('b', [2], { init: 'zeros' })
    return add(a, add(b, paramInput('c', [2], { init: init.randn({ scale: 0 }), decay: false })))
  })
  assert.deepEqual(params.map(({ decay }) => decay), [true, false, false])
})

test('heads of tensors of any rank from 2 on', async () => {
  class None extends Module {}
  const x = Float32Array.from({ length: 6 }, (_, i) => i + 1)
  const rows: [number[], (t: Tensor) => Tensor, number[], number[]][] = [
    [[3, 2], (t) => nn.splitHeads(t, 2), [2, 3, 1], [1, 3, 5, 2, 4, 6]],
    [[1, 3, 2], (t) => nn.splitHeads(t, 2), [1, 2, 3, 1], [1, 3, 5, 2, 4, 6]],
    [[1, 1, 3, 2], (t) => nn.splitHeads(t, 2), [1, 1, 2, 3, 1], [1, 3, 5, 2, 4, 6]],
    [[2, 3, 1], nn.mergeHeads, [3, 2], [1, 4, 2, 5, 3, 6]],
    [[1, 2, 3, 1], nn.mergeHeads, [1, 3, 2], [1, 4, 2, 5, 3, 6]],
    [[1, 1, 2, 3, 1], nn.mergeHeads, [1, 1, 3, 2], [1, 4, 2, 5, 3, 6]],
  ]
  for (const [shape, op, out, want] of rows) {
    const model = await compileForward(() => new None(), (_, { x: t }) => op(t), { inputs: { x: { shape } }, device: 'cpu' })
    assert.deepEqual([model.outputShape, [...await model.run({ x })]], [out, want])
    await model.destroy()
  }
})

test('layers say their sizes', () => {
  const linear = new nn.Linear(2, 3), norm = new nn.LayerNorm(4), rms = new nn.RMSNorm(5), table = new nn.Embedding(6, 7)
  assert.deepEqual([linear.inDim, linear.outDim, norm.d, rms.d, table.vocab, table.dim], [2, 3, 4, 5, 6, 7])
})

test('captures: sorted names, and nothing outside a trace', async () => {
  const item = (name: string) => ({ name, shape: [1], dtype: 'f32' as const, data: new Float32Array(1) })
  assert.deepEqual(new Captures([item('b'), item('a'), item('a.0')]).names(), ['a', 'a.0', 'b'])
  let kept: Tensor | undefined
  trace(() => (kept = tensorInput('x', [2])))
  assert.equal(capture('h', kept as Tensor), kept)
  assert.equal(capture('h', kept as Tensor), kept)
  const model = await compileModule(() => new Line(), (m, { x }) => capture('z', sum(capture('a', mul(capture('m', m.w), x)))), { inputs, device: 'cpu' })
  const { captures } = await model.run({ x: new Float32Array([1, 3]) }, { withCaptures: true })
  assert.deepEqual([captures.names(), [...captures.get('a')]], [['a', 'm', 'z'], [1, -6]])
  await model.destroy()
})

test('oneHot of depth 0 is a ShapeError', () => {
  for (const depth of [0, -1]) {
    const error = opError(() => oneHot(tensorInput('x', [3], 'i32'), depth))
    assert.ok(error instanceof ShapeError)
    assert.match(error.message, /^oneHot: the depth -?\d is not at least 1/)
  }
})

for (const config of [{}, { b1: 0 }, { b2: 0 }, { eps: 0 }, { b1: 0, b2: 0 }, { b1: 0, b2: 0, eps: 0 }])
  test(`Adam with ${JSON.stringify(config)}`, async () => {
    const got = await trained({ lr: 0.1, ...config }), want = wanted(config, 0.1)
    want.forEach((value, i) => assert.ok(Math.abs((got[i] as number) - value) < 2e-6, `${String(got)}, not ${String(want)}`))
  })
