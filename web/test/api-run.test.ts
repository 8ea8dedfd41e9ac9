// The whole package in Node, on the CPU in a real worker: numbers, training, state, and errors at
// run time.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import * as mlp from '../examples/mlp-sin.js'
import * as transformer from '../examples/transformer-add.js'
import {
  abs,
  add,
  appendAdam,
  appendGrad,
  ArgumentError,
  capture,
  cast,
  compileForward,
  compileGraph,
  compileModule,
  embedding,
  GradientError,
  IndexError,
  init,
  log,
  lr,
  matmul,
  mean,
  Module,
  mul,
  nn,
  NotFiniteError,
  NotFoundError,
  paramInput,
  reshape,
  resolveLR,
  ShapeError,
  type Site,
  square,
  StateError,
  stateInput,
  sub,
  sum,
  sumAll,
  tanh,
  tensorInput,
  trace,
  transpose,
  WorkerError,
  writeback,
  type LR,
  type Tensor,
} from '../src/node.js'
import { cases, runCases } from './cases.js'
import { firstLine, rejection, topFile } from './api-support.js'
// api-support brings a fake platform's tools, not the platform: src/node.js has set its own.

const device = 'cpu'

class Line extends Module {
  W = this.param([2, 3], { init: init.literal(new Float32Array([1, 2, 3, 4, 5, 6])) })
  b = this.param([3], { init: 'zeros' })
}
const fwd = (m: Line, x: Tensor) => add(matmul(x, m.W), m.b)
const options = { inputs: { x: { shape: [4, 2] }, y: { shape: [4, 3] } }, device } as const
const lineLoss = (m: Line, { x, y }: { x: Tensor; y: Tensor }) => nn.mse(capture('h', fwd(m, x)), y)
const line = () => compileModule(() => new Line(), lineLoss, { ...options, adam: { lr: 0.1 } })
const x = new Float32Array([1, 0, 0, 1, 1, 1, -1, 2])
const y = new Float32Array(12).fill(1)

// ---------------------------------------------------------------- numbers

test(`values of ${cases.length} cases`, async () => {
  assert.deepEqual(await runCases(device), [])
})

function curve(name: string): number[] {
  const text = readFileSync(path.join(process.env['TENSORGRAD_ROOT'] as string, 'tests/curves/curves.h'), 'utf8')
  const body = new RegExp(`${name}\\[CURVE_STEPS\\] = \\{([^}]*)\\}`).exec(text)?.[1] as string
  return body
    .split(',')
    .map((number) => parseFloat(number))
    .filter((number) => !Number.isNaN(number))
}
const worst = (got: number[], want: number[]) =>
  Math.max(...got.map((value, n) => Math.abs(value - (want[n] as number)) / Math.abs(want[n] as number)))
const SEED = 5 // of the stored curves

test('mlp-sin: the stored curve, then what it has learned', async () => {
  const { model, forward } = await mlp.compile({ seed: SEED, device })
  const losses: number[] = []
  for (let t = 1; t <= 50; t++) losses.push(await model.step(mlp.batch(SEED, t)))
  assert.ok(worst(losses, curve('curve_mlp_sin_adam')) <= 1e-4)
  for (let t = 51; t <= 600; t++) await model.step(mlp.batch(SEED, t))
  const { x, truth } = mlp.fitPoints()
  const fit = await forward.run({ x })
  assert.ok(Math.max(...fit.map((value, n) => Math.abs(value - (truth[n] as number)))) < 0.1)
  await model.destroy()
})

test('transformer-add: the stored curve, captures, predictions', async () => {
  const { model, forward } = await transformer.compile({ seed: SEED, device })
  const losses: number[] = []
  for (let t = 1; t <= 50; t++) losses.push(await model.step(transformer.batch(SEED, t)))
  assert.ok(worst(losses, curve('curve_transformer_add_adamw')) <= 1e-4)
  const { captures } = await model.step(transformer.batch(SEED, 51), { withCaptures: true })
  assert.deepEqual(captures.names(), ['layers.0.attn', 'layers.1.attn', 'layers.2.attn'])
  assert.deepEqual(captures.shapeOf('layers.1.attn'), [128, 4, 8, 8])
  const row = captures.get('layers.0.attn').subarray(56, 64)
  assert.ok(Math.abs(row.reduce((a, b) => a + b) - 1) < 1e-5)
  const digits = await transformer.answer((tokens) => forward.run<Int32Array>({ tokens }), [1234, 9999])
  assert.deepEqual(
    digits.map((each) => each.length),
    [3, 3],
  )
  assert.equal(forward.outputDtype, 'i32')
  await model.destroy()
})

test('batches of the examples: every sum once, the held-out ones never', () => {
  const sums = Array.from({ length: 10000 }, (_, place) => transformer.sumAt(SEED, place))
  assert.equal(new Set(sums).size, 10000)
  assert.equal(transformer.characters(transformer.spell(1234)), '12+34=046')
  assert.ok(mlp.batch(1, 1).x.every((value) => Math.abs(value) <= Math.PI))
})

// ---------------------------------------------------------------- state

test('the properties of a model', async () => {
  const model = await line()
  assert.deepEqual([model.outputShape, model.paramNames, model.outputDtype], [[], ['W', 'b'], 'f32'])
  assert.ok(model.kernelCount >= 1 && model.dispatchCount >= 1 && model.peakBytes > 0)
  assert.match(model.ir.text, /param/)
  assert.match(model.device, /^cpu \(/)
  assert.match(await model.inspect('wgsl'), /@compute/)
  await model.destroy()
})

test('step, run, captures, gradients', async () => {
  const model = await line()
  assert.equal(firstLine(await rejection(model.downloadParamGrads())).length > 0, true)
  assert.ok((await rejection(model.downloadParamGrads())) instanceof StateError)
  const before = await model.run({ x, y })
  const { output, captures } = await model.run({ x, y }, { withCaptures: true })
  assert.deepEqual(output, before)
  assert.deepEqual(captures.get('h'), new Float32Array([1, 2, 3, 4, 5, 6, 5, 7, 9, 7, 8, 9]))
  const stepped = await model.step({ x, y }, { withCaptures: true })
  assert.equal(Math.fround(stepped.loss), before[0])
  assert.deepEqual(stepped.captures.get('h'), captures.get('h')) // as they were before the update
  const grads = await model.downloadParamGrads()
  const error = [0, 1, 2, 3, 4, 5, 4, 6, 8, 6, 7, 8]
  const db = [0, 1, 2].map((column) => error.filter((_, n) => n % 3 === column).reduce((a, b) => a + b) / 6)
  assert.ok(grads['b']?.every((value, n) => Math.abs(value - (db[n] as number)) < 1e-5))
  assert.ok((await model.step({ x, y })) < stepped.loss)
  await model.destroy()
})

test('reset gives the same values and the same curve', async () => {
  const { model } = await mlp.compile({ seed: 3, device })
  const first = await model.downloadParams()
  const losses = [await model.step(mlp.batch(3, 1)), await model.step(mlp.batch(3, 2))]
  await model.reset()
  assert.deepEqual(await model.downloadParams(), first)
  assert.deepEqual([await model.step(mlp.batch(3, 1)), await model.step(mlp.batch(3, 2))], losses)
  await model.uploadParams(first)
  await model.resetOptimizerState()
  assert.deepEqual([await model.step(mlp.batch(3, 1)), await model.step(mlp.batch(3, 2))], losses)
  await model.destroy()
})

test('uploads: everything is checked before anything is written', async () => {
  const model = await line()
  const before = await model.downloadParams()
  const W = new Float32Array(6).fill(9)
  const refused: [Record<string, unknown>, new (message: string) => Error, string][] = [
    [{ W, bias: W }, NotFoundError, 'uploadParams: unknown parameter bias (parameters: W, b)'],
    [{ W }, NotFoundError, 'uploadParams: '],
    [{ W, b: W }, ShapeError, 'uploadParams: parameter b[3] has 3 elements, given 6'],
    [{ W: new Int32Array(6), b: new Float32Array(3) }, ShapeError, 'uploadParams: parameter W is f32, given i32'],
  ]
  for (const [params, type, message] of refused) {
    const error = await rejection(model.uploadParams(params as never))
    assert.ok(error instanceof type, `${error.name}: ${error.message}`)
    assert.equal(message.endsWith(': ') ? error.message.slice(0, message.length) : error.message, message)
    assert.equal(topFile(error), 'api-run.test.js')
  }
  assert.deepEqual(await model.downloadParams(), before)
  await model.uploadParams({ W }, { partial: true })
  assert.deepEqual(await model.downloadParams(), { ...before, W })
  await model.destroy()
})

test('a rejected call changes nothing', async () => {
  const model = await line()
  const twin = await line()
  await model.step({ x, y })
  await twin.step({ x, y })
  const refused: [Record<string, unknown>, RegExp][] = [
    [{ x }, /\by\b/],
    [{ x, y, z: x }, /\bz\b.*x, y/],
    [{ x, y: x }, /8.*12|12.*8/],
    [{ x: new Int32Array(8), y }, /i32/],
    [{}, /\bx\b/],
  ]
  for (const [feeds, message] of refused)
    for (const call of [model.step(feeds as never), model.run(feeds as never)]) assert.match((await rejection(call)).message, message)
  assert.equal(await model.step({ x, y }), await twin.step({ x, y }))
  assert.deepEqual(await model.downloadParams(), await twin.downloadParams())
  await Promise.all([model.destroy(), twin.destroy()])
})

test('50 calls without await resolve in order, with the values of calls one by one', async () => {
  const [model, twin] = await Promise.all([line(), line()])
  const calls: Promise<unknown>[] = [],
    order: number[] = []
  for (let n = 0; n < 50; n++) {
    const call = n % 5 === 3 ? model.run({ x, y }).then((out) => out[0]) : n % 5 === 4 ? model.downloadParams() : model.step({ x, y })
    calls.push(call.then((value) => (order.push(n), value)))
  }
  const together = await Promise.all(calls)
  const apart: unknown[] = []
  for (let n = 0; n < 50; n++)
    apart.push(n % 5 === 3 ? (await twin.run({ x, y }))[0] : n % 5 === 4 ? await twin.downloadParams() : await twin.step({ x, y }))
  assert.deepEqual(together, apart)
  assert.deepEqual(
    order,
    order.map((_, n) => n),
  )
  await Promise.all([model.destroy(), twin.destroy()])
})

test('siblings share parameters, whichever handle changes them', async () => {
  const model = await line()
  const sibling = await model.compileForward((m, { x }) => fwd(m, x), { inputs: { x: { shape: [1, 2] } } })
  const again = await sibling.compileForward((m) => sumAll(m.W))
  const one = new Float32Array([1, 1])
  assert.deepEqual(await sibling.run({ x: one }), new Float32Array([5, 7, 9]))
  await model.step({ x, y })
  assert.notDeepEqual(await sibling.run({ x: one }), new Float32Array([5, 7, 9]))
  await again.uploadParams({ W: new Float32Array(6).fill(1), b: new Float32Array(3) })
  assert.deepEqual(await sibling.run({ x: one }), new Float32Array([2, 2, 2]))
  assert.deepEqual(await again.run({}), new Float32Array([6]))
  await sibling.destroy()
  assert.ok((await rejection(sibling.run({ x: one }))) instanceof StateError)
  assert.deepEqual(await again.run({}), new Float32Array([6]))
  await model.destroy()
})

test('a model object may be compiled twice', async () => {
  const only = new Line()
  const [a, b] = [
    await compileForward(
      () => only,
      (m, { x }) => fwd(m, x),
      { inputs: { x: { shape: [1, 2] } }, device },
    ),
    await compileForward(
      () => only,
      (m, { x }) => fwd(m, x),
      { inputs: { x: { shape: [1, 2] } }, device },
    ),
  ]
  const one = new Float32Array([1, 1])
  assert.deepEqual(await a.run({ x: one }), await b.run({ x: one }))
  await Promise.all([a.destroy(), b.destroy()])
})

test('schedules, setLR, a rate of 0 stops decay too', async () => {
  class One extends Module {
    p = this.param([1], { init: init.literal(new Float32Array([1])) })
  }
  const model = await compileModule(
    () => new One(),
    (m) => sum(mul(m.p, 2)),
    {
      sgd: { lr: lr.linearDecay({ peak: 1, final: 0, steps: 4 }), weightDecay: 0.5 },
      device,
    },
  )
  const p = async () => (await model.downloadParams())['p']?.[0] as number
  await model.step({}) // the first rate is a step below the peak: 0.75
  assert.ok(Math.abs((await p()) - ((1 - 0.75 * 0.5) * 1 - 0.75 * 2)) < 1e-6)
  await model.setLR(0)
  const before = await p()
  await model.step({})
  assert.equal(await p(), before)
  assert.ok((await rejection(model.setLR(lr.linearDecay({ peak: 1, final: 0, steps: 0 })))) instanceof ArgumentError)
  await model.destroy()
})

test('every optimiser learns, every schedule runs', async () => {
  const schedules = [
    lr.staircase({ peak: 0.05, factor: 0.9, steps: 4 }),
    lr.multiStep({ peak: 0.05, factor: 0.5, milestones: [6, 9] }),
    lr.oneCycle({ peak: 0.05, steps: 12 }),
    lr.warmup({ peakLr: 0.05, warmupSteps: 3, after: lr.staircase({ peak: 0.05, factor: 0.5, steps: 8 }) }),
  ]
  const kinds = ['sgd', 'adam', 'adamw', 'lion', 'rmsprop', 'adagrad', 'muon'] as const
  for (const [i, kind] of kinds.entries()) {
    const model = await compileModule(() => new Line(), lineLoss, { ...options, [kind]: { lr: schedules[i % 4] as LR, clipValue: 5 } })
    const losses: number[] = []
    for (let n = 0; n < 12; n++) losses.push(await model.step({ x, y }))
    assert.ok((losses[11] as number) < (losses[0] as number), `${kind}: ${losses.join(' ')}`)
    await model.destroy()
  }
  const rates = [1, 2, 3, 4].map((t) => resolveLR(lr.multiStep({ peak: 1, factor: 0.5, milestones: [1, 3] }), t))
  assert.deepEqual(rates, [1, 0.5, 0.5, 0.25])
  const bad = lr.multiStep({ peak: 1, factor: 0.5, milestones: [1, 2, 3, 4, 5, 6, 7] })
  assert.throws(() => resolveLR(bad, 1), /a multi-step schedule has 1 to 6 milestones, got 7/)
})

test('parameter groups, accumulation, averages', async () => {
  class Two extends Module {
    a = this.param([1], { init: 'ones' })
    b = this.param([1], { init: 'ones' })
  }
  const loss = (m: Two) => sum(add(mul(m.a, 2), m.b))
  const groups = [{ match: 'b', rate: 0.5 }]
  const model = await compileModule(() => new Two(), loss, { sgd: { lr: 0.1, accumulate: 2, average: 0.5, groups }, device })
  const averages = await model.compileForward((m) => add(m.a, mul(m.b, 0)), { average: true })
  const values = async (average: boolean) => {
    const { a, b } = await model.downloadParams({ average })
    return [a, b].map((each) => Math.round((each?.[0] as number) * 1e5) / 1e5)
  }
  await model.step({})
  assert.deepEqual(await values(false), [1, 1])
  await model.step({})
  assert.deepEqual([await values(false), await values(true)], [[0.8, 0.95], [0.8, 0.95]])
  for (let n = 0; n < 2; n++) await model.step({})
  assert.deepEqual([await values(false), await values(true)], [[0.6, 0.9], [0.7, 0.925]])
  assert.ok(Math.abs(((await averages.run({}))[0] as number) - 0.7) < 1e-6)
  await model.destroy()

  const frozen = await compileModule(() => new Two(), loss, { sgd: { lr: 0.1, groups: [{ match: 'a', frozen: true }] }, device })
  await frozen.step({})
  assert.equal((await frozen.downloadParams())['a']?.[0], 1)
  assert.match((await rejection(frozen.downloadParams({ average: true }))).message, /^downloadParams: the model keeps no average/)
  assert.match((await rejection(frozen.compileForward(loss, { average: true }))).message, /keeps no average/)
  await frozen.destroy()
  // a decay of 0 is none, not the optimiser's
  const kept = { adamw: { lr: 0.1, weightDecay: 0 }, sgd: { lr: 0.1, weightDecay: 1, groups: [{ match: '*', weightDecay: 0 }] } }
  for (const [kind, config] of Object.entries(kept)) {
    const model = await compileModule(() => new Two(), (m) => mul(loss(m), 0), { [kind]: config, device })
    await model.step({})
    assert.equal((await model.downloadParams())['a']?.[0], 1, kind)
    await model.destroy()
  }
  const none = await rejection(compileModule(() => new Two(), loss, { sgd: { lr: 0.1, groups: [{ match: 'c*' }] }, device }))
  assert.equal(none.message, 'optimizer: group "c*" matches no parameter (parameters: a, b)')
})

test('without an optimiser a step changes nothing', async () => {
  const model = await compileModule(() => new Line(), lineLoss, options)
  const before = await model.downloadParams()
  assert.equal(await model.step({ x, y }), await model.step({ x, y }))
  assert.deepEqual(await model.downloadParams(), before)
  assert.ok((await model.downloadParamGrads())['W']?.some((value) => value !== 0))
  assert.ok((await rejection(model.setLR(0.1))) instanceof StateError)
  await model.destroy()
})

test('an optimiser by hand: the same curve as the built-in one', async () => {
  const build = (own: boolean) =>
    trace(() => {
      const W = paramInput('W', [2, 3], { init: init.literal(new Float32Array([1, 2, 3, 4, 5, 6])) })
      const loss = nn.mse(matmul(tensorInput('x', [4, 2]), W), tensorInput('y', [4, 3]))
      if (own) appendAdam(loss, { lr: 0.1 })
      return loss
    })
  const [own, built] = [await compileGraph(build(true), { device }), await compileGraph(build(false), { adam: { lr: 0.1 }, device })]
  for (let n = 0; n < 5; n++) assert.equal(await own.step({ x, y }), await built.step({ x, y }))
  await Promise.all([own.destroy(), built.destroy()])
})

test('O03: a writeback that reads its own transpose', async () => {
  const model = await compileGraph(
    trace(() => {
      const p = paramInput('p', [3, 3], { init: init.literal(new Float32Array([1, 2, 3, 4, 5, 6, 7, 8, 10])) })
      writeback(p, add(p, mul(transpose(p, [1, 0]), 0.5)))
      return sum(square(p))
    }),
    { device },
  )
  await model.step({})
  assert.deepEqual([...((await model.downloadParams())['p'] as Float32Array)], [1.5, 4, 6.5, 5, 7.5, 10, 8.5, 11, 15])
  await model.step({})
  assert.deepEqual([...((await model.downloadParams())['p'] as Float32Array)], [2.25, 6.5, 10.75, 7, 11.25, 15.5, 11.75, 16, 22.5])
  await model.destroy()
})

test('a decayFilter and a sibling of a model by hand', async () => {
  const model = await compileGraph(
    trace(() => add(sum(paramInput('a', [1], { init: 'ones' })), sum(paramInput('b', [1], { init: 'ones' })))),
    {
      sgd: { lr: 0.1, weightDecay: 1, decayFilter: (name) => name === 'b' },
      device,
    },
  )
  await model.step({})
  const { a, b } = await model.downloadParams()
  assert.ok(Math.abs((a?.[0] as number) - 0.9) < 1e-6 && Math.abs((b?.[0] as number) - 0.8) < 1e-6)
  const sibling = await model.compileGraph(trace(() => mul(paramInput('b', [1]), 2)))
  assert.ok(Math.abs(((await sibling.run({}))[0] as number) - 1.6) < 1e-6)
  assert.match(
    (await rejection(model.compileForward(() => paramInput('b', [1])))).message,
    /^compileForward: the model was compiled from a graph/,
  )
  await model.destroy()
})

test('momentum as a state of the user', async () => {
  const model = await compileGraph(
    trace(() => {
      const p = paramInput('p', [1], { init: init.literal(new Float32Array([1])) })
      const v = stateInput('v', [1])
      const loss = sum(square(p))
      const next = add(mul(v, 0.5), appendGrad(loss).paramGrads['p'] as Tensor)
      writeback(v, next)
      writeback(p, sub(p, mul(next, 0.1)))
      return loss
    }),
    { device },
  )
  for (const want of [1, 0.64, 0.2916]) assert.ok(Math.abs((await model.step({})) - want) < 1e-6)
  await model.reset()
  assert.equal(await model.step({}), 1)
  await model.destroy()
})

// ---------------------------------------------------------------- what goes wrong where it runs

test('a loss that is not rank 0', async () => {
  const error = await rejection(
    compileModule(
      () => new Line(),
      (m, { x }) => fwd(m, x),
      options,
    ),
  )
  assert.ok(error instanceof GradientError)
  assert.match(error.message, /rank 0/)
  assert.match(error.stack ?? '', /api-run\.test\.js/)
})

test('an index outside its table: named, and nothing changes', async () => {
  class Table extends Module {
    t = this.param([4, 2])
  }
  const model = await compileModule(
    () => new Table(),
    (m, { i }) => mean(embedding(m.t, i)),
    {
      inputs: { i: { shape: [3], dtype: 'i32' } },
      adam: { lr: 0.1 },
      device,
    },
  )
  const before = await model.downloadParams()
  const error = await rejection(model.step({ i: new Int32Array([0, 4, -1]) }))
  assert.ok(error instanceof IndexError)
  assert.match(error.message, /embedding.*4/)
  const { file, line, column } = error.site as Site
  assert.ok(file.endsWith('api-run.test.js') && line > 1 && column > 1, JSON.stringify(error.site))
  assert.ok(error.stack?.split('\n').some((frame) => frame.endsWith(`api-run.test.js:${line}:${column}`)), error.stack)
  const places = (await model.inspect('ir')).match(/; \S+/g) ?? []
  assert.ok(places.length > 2 && places.every((place) => /^; api-run\.test\.js:\d+:\d+$/.test(place)), places.join())
  assert.deepEqual(await model.downloadParams(), before)
  await model.step({ i: new Int32Array([0, 3, 1]) })
  await model.destroy()
})

test('a loss that is not finite is said, with its captures', async () => {
  const model = await compileModule(
    () => new Line(),
    (m, { x }) => sum(capture('log', log(matmul(x, m.W)))),
    {
      inputs: { x: { shape: [1, 2] } },
      adam: { lr: 0.1 },
      device,
    },
  )
  const error = await rejection(model.step({ x: new Float32Array([-1, 0]) }, { withCaptures: true }))
  assert.ok(error instanceof NotFiniteError)
  assert.ok(Number.isNaN(error.loss))
  assert.ok(Number.isNaN((error.captures as { get(name: string): Float32Array }).get('log')[0]))
  await model.destroy()
})

test('captures asked for where there are none', async () => {
  const model = await compileForward(
    () => new Line(),
    (m, { x }) => fwd(m, x),
    { inputs: { x: { shape: [1, 2] } }, device },
  )
  const { captures } = await model.run({ x: new Float32Array(2) }, { withCaptures: true })
  assert.deepEqual(captures.names(), [])
  assert.throws(() => captures.get('h'), /the graph captures nothing/)
  await model.destroy()
})

test('a sibling with a parameter that its parent has not', async () => {
  let extra = false
  class Grown extends Line {
    more = extra ? this.param([3]) : null
  }
  const model = await compileModule(() => new Grown(), lineLoss, options)
  extra = true
  const error = await rejection(model.compileForward((m) => sum(m.more as Tensor)))
  assert.ok(error instanceof NotFoundError, `${error.name}: ${error.message}`)
  assert.match(error.message, /more/)
  assert.equal((await model.step({ x, y })) > 0, true)
  await model.destroy()
})

test('destroy with calls in flight', async () => {
  const model = await line()
  const calls = Array.from({ length: 20 }, () => rejection(model.step({ x, y })))
  const gone = model.destroy()
  for (const error of await Promise.all(calls)) {
    assert.ok(error instanceof StateError && !(error instanceof WorkerError))
    assert.equal(error.message, 'step: the model is destroyed')
  }
  await gone
})

test('a layer made frozen is not trained: no parameter of it changes or has a gradient', async () => {
  const x = Float32Array.from({ length: 32 }, (_, k) => ((k * 7) % 11) * 0.5 - 2)
  const layers: Record<string, [count: number, make: (frozen: boolean) => { fwd(x: Tensor): Tensor }, input?: (x: Tensor) => Tensor]> = {
    Linear: [2, (frozen) => new nn.Linear(4, 3, { frozen })],
    Embedding: [1, (frozen) => new nn.Embedding(9, 3, { frozen }), (at) => cast(abs(at), 'i32')],
    LayerNorm: [2, (frozen) => new nn.LayerNorm(4, { frozen })],
    RMSNorm: [1, (frozen) => new nn.RMSNorm(4, { frozen })],
    GroupNorm: [2, (frozen) => new nn.GroupNorm(2, 4, { frozen })],
    BatchNorm: [2, (frozen) => new nn.BatchNorm(4, { frozen })],
    Conv1d: [2, (frozen) => new nn.Conv1d(4, 3, 2, { frozen })],
    Conv2d: [2, (frozen) => new nn.Conv2d(4, 3, 2, { frozen }), (at) => reshape(at, [2, 4, 2, 2])],
    ConvTranspose2d: [2, (frozen) => new nn.ConvTranspose2d(4, 3, 2, { frozen }), (at) => reshape(at, [2, 4, 2, 2])],
    RNN: [4, (frozen) => new nn.RNN(4, 3, { frozen })],
    GRU: [4, (frozen) => new nn.GRU(4, 3, { frozen })],
    Attention: [8, (frozen) => new nn.Attention(4, 2, { frozen })],
    MLP: [4, (frozen) => new nn.MLP([4, 5, 3], { activation: tanh, frozen })],
  }
  class Lstm extends Module {
    layer: nn.LSTM
    constructor(frozen: boolean) {
      super()
      this.layer = new nn.LSTM(4, 3, { frozen })
    }
    fwd(at: Tensor): Tensor { return this.layer.fwd(at).h }
  }
  layers['LSTM'] = [4, (frozen) => new Lstm(frozen)]
  for (const [name, [count, make, input = (at: Tensor) => at]] of Object.entries(layers))
    for (const frozen of [false, true]) {
      class Both extends Module {
        free = this.param([], { init: 'ones' })
        layer = make(frozen)
      }
      const model = await compileModule(() => new Both(), (m, { x: at }) => mean(mul(m.free, square(add(m.layer.fwd(input(at)), 0.5)))),
        { adamw: { lr: 0.1 }, inputs: { x: { shape: [2, 4, 4] } }, device })
      const before = await model.downloadParams()
      await model.step({ x })
      const after = await model.downloadParams(), gradients = await model.downloadParamGrads()
      const own = Object.keys(after).filter((each) => each !== 'free')
      assert.equal(own.length, count, name)
      assert.ok(after['free']?.[0] !== before['free']?.[0])
      for (const each of own) {
        assert.equal(after[each]!.every((value, k) => value === before[each]![k]), frozen, `${name}: ${each} moved`)
        assert.equal(gradients[each]!.every((value) => value === 0), frozen, `${name}: ${each} has a gradient`)
      }
      await model.destroy()
    }
})

test('a target of 0 is one: training ends at the first loss that is no more', async () => {
  class One extends Module {
    w = this.param([1], { init: 'ones' })
  }
  const model = await compileModule(() => new One(), (m, { x }) => sum(mul(m.w, x)), { sgd: { lr: 0.3 }, inputs: { x: { shape: [1] } }, device })
  const data = { x: new Float32Array([1]) }
  const losses = await model.train({ data, steps: 9, targetLoss: 0 })
  assert.equal(losses.length, 5) // 1, .7, .4, .1, -.2
  assert.ok((losses[4] as number) < 0)
  assert.equal((await model.train({ data, steps: 3 })).length, 3)
  for (const targetLoss of [Infinity, -Infinity])
    assert.equal((await rejection(model.train({ data, steps: 1, targetLoss }))).message, `train: targetLoss is ${targetLoss}, not a finite number`)
  await model.destroy()
})
