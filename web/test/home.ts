// Tests of what the package must do on every platform, and of its messages. Run by node.mjs
// (threads; CPU and WebGPU) and by browser.mjs (a page; CPU and WebGPU). Imports the package as a
// user does.

import {
  add, argmax, bernoulli, capture, cast, categorical, compileForward, compileModule, div, embedding, exp, IndexError, matmul, mean, Module, mul, nn, NotFiniteError,
  NotFoundError, ones, rand, randInt, randn, relu, ShapeError, StateError, stopGradient, sumAll, TensorgradError, TraceError, UnsupportedError, where, WorkerError, type CompiledModule, type Device, type Tensor,
  type Warning,
} from 'tensorgrad'
import { lifeTests } from './life.js'
import { check, equal, near, refused, same, type Test } from './checks.js'
import * as charGru from '../examples/char-gru.js'
import * as digitsCnn from '../examples/digits-cnn.js'
import * as makemore from '../examples/makemore.js'
import * as mlpSin from '../examples/mlp-sin.js'
import * as transformerAdd from '../examples/transformer-add.js'

// ---------------------------------------------------------------- a small model

class Line extends Module {
  W = this.param([3, 2])
  b = this.param([2], { init: 'zeros' })
  drop = new nn.Dropout(0.5)
}
/** randInt([4], 0, 1000) of the first two runs with seed 3, worked out apart from this library. */
const RUN_0 = [819, 455, 501, 512], RUN_1 = [723, 620, 697, 619]
const lineLoss = (m: Line, { x, y }: { x: Tensor; y: Tensor }): Tensor => nn.mse(add(matmul(x, m.W), m.b), y)
const lineInputs = { x: { shape: [4, 3] }, y: { shape: [4, 2] } } as const
const compileLine = (device: Device) => compileModule(() => new Line(), lineLoss, { adam: { lr: 0.1 }, inputs: lineInputs, seed: 3, device })
const lineBatch = (t: number) => ({
  x: Float32Array.from({ length: 12 }, (_, i) => Math.sin(i + 12 * t)), y: Float32Array.from({ length: 8 }, (_, i) => Math.cos(i + 8 * t)),
})
const flat = (record: Record<string, Float32Array>): number[] => Object.values(record).flatMap((array) => [...array])

const lineRows = 7
const lineData = () => ({
  x: Float32Array.from({ length: lineRows * 3 }, (_, i) => Math.sin(i)), y: Float32Array.from({ length: lineRows * 2 }, (_, i) => Math.cos(i)),
})
/** What step t, counted from 0, takes of it in the sequential order. */
function lineRowsOf(t: number) {
  const { x, y } = lineData(), rows = [0, 1, 2, 3].map((i) => (t * 4 + i) % lineRows)
  const pick = (from: Float32Array, width: number) => Float32Array.from(rows.flatMap((row) => [...from.subarray(row * width, (row + 1) * width)]))
  return { x: pick(x, 3), y: pick(y, 2) }
}

export const tests: Record<string, Test> = {
  ...lifeTests,

  async 'what does not learn is said, when it is known'({ device }) {
    class Odd extends Module {
      W = this.param([3, 2])
      stopped = this.param([3, 2])
      chosen = this.param([3, 2])
      spare = new nn.Linear(2, 2)
    }
    const told: string[] = []
    const options = { inputs: lineInputs, device, onWarning: ({ message, site }: Warning) => void told.push(`${site?.file}:${site?.line}: ${message}`) }
    const loss = (m: Odd, { x, y }: { x: Tensor; y: Tensor }): Tensor => {
      const extra = add(mean(stopGradient(matmul(x, m.stopped))), mean(cast(argmax(matmul(x, m.chosen), 1), 'f32')))
      return add(nn.mse(matmul(x, m.W), y), extra)
    }
    const model = await compileModule(() => new Odd(), loss, { ...options, sgd: { lr: 0.1 } })
    const heard = (...patterns: RegExp[]): void => {
      const said = told.splice(0)
      check(said.length === patterns.length && patterns.every((pattern) => said.some((each) => pattern.test(each))), said.join('; '))
    }
    // `stopped` is so on purpose
    heard(/home\.\w+:\d+: compile: argmax.* has no gradient, so this does not learn: chosen$/,
      /home\.\w+:\d+: compile: made, but never used, so it does not learn: spare\.W, spare\.b$/)
    await model.step(lineBatch(0))
    heard()
    await model.destroy()
    const still = await compileModule(() => new Line(), (m, feeds) => stopGradient(lineLoss(m, feeds)), { ...options, sgd: { lr: 0.1 } })
    heard(/home\.\w+:\d+: compile: stop.?gradient.* has no gradient, and no other way leads from the loss to a parameter: nothing learns$/i)
    await still.destroy()
    // no optimizer: said when compiled, and where steps go on without anybody reading gradients
    const idle = await compileModule(() => new Line(), lineLoss, options)
    heard(/there is no optimizer/)
    for (let t = 0; t < 3; t++) await idle.step(lineBatch(t))
    heard(/step: the model was compiled without an optimizer/)
    await idle.destroy()
  },

  async 'many steps in one call are those steps'({ device }) {
    const [stepped, trained] = await Promise.all([compileLine(device), compileLine(device)])
    const data = await trained.dataset(lineData()), want: number[] = [], got: number[] = []
    for (let t = 0; t < 20; t++) want.push(await stepped.step(lineRowsOf(t)))
    got.push(await trained.step(lineRowsOf(0)))
    got.push(...await trained.train({ data: lineData(), steps: 6, order: 'sequential' }))
    got.push(...await trained.train({ data, steps: 5, order: 'sequential', stepsPerSubmission: 3 }))
    got.push(await trained.step(lineRowsOf(12)))
    got.push(...await trained.train({ data, steps: 7, order: 'sequential', stepsPerSubmission: 1 }))
    same(got, want, 'losses')
    same(flat(await trained.downloadParams()), flat(await stepped.downloadParams()), 'parameters')
    equal((await trained.train({ data, steps: 0 })).length, 0, 'no steps')
    // a run of the model between two submissions feeds it otherwise: the steps do not notice
    await stepped.reset()
    await trained.reset()
    const alone = await stepped.train({ data: lineData(), steps: 40, order: 'sequential', stepsPerSubmission: 1 })
    const runs: Promise<unknown>[] = [], onProgress = () => void runs.push(trained.run(lineRowsOf(3)))
    same(await trained.train({ data, steps: 40, order: 'sequential', stepsPerSubmission: 1, onProgress }), alone, 'losses beside runs')
    await Promise.all(runs)
    await stepped.reset()
    await trained.reset()
    const random = await trained.train({ data, steps: 30, seed: 5n })
    same(await stepped.train({ data: lineData(), steps: 30, seed: 5, stepsPerSubmission: 7 }), random, 'random batches of the same seed')
    await trained.reset()
    const other = await trained.train({ data, steps: 30, seed: 6 })
    check(random.some((loss, i) => loss !== other[i]), 'another seed is another order')
    await data.destroy()
    await data.destroy()
    await refused(trained.train({ data, steps: 1 }), StateError, /^train: the data set is destroyed/)
    await Promise.all([stepped.destroy(), trained.destroy()])
  },

  async 'training tells of every step and ends when it should'({ device }) {
    const model = await compileLine(device), data = await model.dataset(lineData())
    const told: [number, number][] = []
    const losses = await model.train({ data, steps: 25, onProgress: (step, loss) => void told.push([step, loss]) })
    same(told.map(([step]) => step), Array.from({ length: 25 }, (_, i) => i + 1), 'steps told')
    same(told.map(([, loss]) => loss), losses, 'losses told')
    let last = 0
    const some = await model.train({ data, steps: 1e6, stepsPerSubmission: 1, onProgress: (step) => (last = step) < 30 })
    equal(last, 30, 'the last step told')
    check(some.length >= 5 && some.length < 1e6, `${some.length} steps`)
    await model.reset()
    const target = losses.findIndex((loss) => loss < (losses[0] as number))
    const until = await model.train({ data, steps: 25, stepsPerSubmission: 1, targetLoss: losses[target] as number })
    equal(until.length, target + 1, 'steps to the target')
    await model.setLR(0)
    const patient = await model.train({ data: { x: lineData().x.subarray(0, 12), y: lineData().y.subarray(0, 8) }, steps: 25, order: 'sequential', stepsPerSubmission: 1, patience: 3 })
    equal(patient.length, 4, 'steps of patience at rate 0')
    const abort = new AbortController()
    const aborted = model.train({ data, steps: 1e6, stepsPerSubmission: 1, signal: abort.signal, onProgress: () => abort.abort(new Error('enough')) })
    await refused(aborted, Error, /^enough$/)
    await refused(model.train({ data, steps: 1, signal: abort.signal }), Error, /^enough$/)
    equal((await model.train({ data, steps: 2 })).length, 2, 'steps after an abort')
    const bad = lineData()
    bad.y.fill(NaN)
    const error = await refused(model.train({ data: bad, steps: 3, stepsPerSubmission: 1 }), NotFiniteError, /^step \d+: loss is nan/)
    check(Number.isNaN((error as NotFiniteError).loss), 'the loss is with the error')
    await model.reset()
    check(Number.isFinite((await model.train({ data, steps: 2 })).at(-1)), 'it can be trained again')
    await model.destroy()
  },

  async 'a step that is not finite is skipped, or told where it came from'({ device }) {
    const far = { x: lineBatch(0).x, y: new Float32Array(8).fill(1e30) }, nan = { x: lineBatch(0).x, y: new Float32Array(8).fill(NaN) } // (W x + b - y)^2 overflows
    for (const options of [{ clipNorm: 1 }, { accumulate: 2, average: 0.5 }]) {
      const adam = { lr: 0.1, skipNonFinite: true, ...options }
      const model = await compileModule(() => new Line(), lineLoss, { adam, inputs: lineInputs, seed: 3, device })
      const plain = await compileModule(() => new Line(), lineLoss, { adam, inputs: lineInputs, seed: 3, device })
      for (let t = 0; t < 4; t++) {
        const before = await model.downloadParams()
        const error = await refused(model.step(t % 2 === 0 ? far : nan), NotFiniteError, /^step \d+: loss is (inf|nan); it was skipped: parameters and optimizer are as they were/)
        check(!Number.isFinite((error as NotFiniteError).loss), 'the loss is with the error')
        const after = await model.downloadParams()
        for (const name of ['W', 'b']) same(after[name] as Float32Array, before[name] as Float32Array, `${name} behind a skipped step`)
        equal(await model.step(lineBatch(t)), await plain.step(lineBatch(t)), 'the loss behind it')
      }
      await model.destroy()
      await plain.destroy()
    }
    const looking = await compileModule(() => new Line(), lineLoss, { adam: { lr: 0.1 }, inputs: lineInputs, seed: 3, device, checkFinite: true })
    const before = await looking.downloadParams()
    const error = await refused(looking.step(far), NotFiniteError, /^step 1: mul\[4, 2\] made inf, the first value that is not finite: nothing was changed/)
    check(Number.isNaN((error as NotFiniteError).loss), 'the loss is NaN')
    await refused(looking.step(nan), NotFiniteError, /^step 1: y\[4, 2\] holds nan/)
    await refused(looking.train({ data: nan, steps: 3 }), NotFiniteError, /^step 1: y\[4, 2\] holds nan/)
    const after = await looking.downloadParams()
    same(after.W as Float32Array, before.W as Float32Array, 'W')
    check(Number.isFinite(await looking.step(lineBatch(0))), 'it can be trained again')
    await looking.destroy()
  },

  async 'training waits its turn, and others theirs'({ device }) {
    const model = await compileLine(device), alone = await compileLine(device), data = await model.dataset(lineData()), want: number[] = []
    const sibling = await model.compileForward((m, { x }) => matmul(x, m.W), { inputs: { x: { shape: [4, 3] } } })
    for (let t = 0; t < 10; t++) want.push(await alone.step(lineRowsOf(t)))
    const order = 'sequential' as const, ended: string[] = []
    const note = <T>(name: string, promise: Promise<T>): Promise<T> => promise.finally(() => ended.push(name))
    const [one, step, two, last] = await Promise.all([
      note('train', model.train({ data, steps: 5, order })), note('step', model.step(lineRowsOf(5))),
      note('train again', model.train({ data: lineData(), steps: 3, order })), note('last', model.step(lineRowsOf(9))), sibling.run({ x: lineRowsOf(0).x }),
    ])
    same([...one, step, ...two, last], want, 'losses')
    equal(ended.join(), 'train,step,train again,last', 'the order in which they ended')
    let ran = 0, runs: Promise<unknown> = Promise.resolve()
    await model.train({ data, steps: 1e6, stepsPerSubmission: 1, onProgress: () => {
      if (ran === 0) runs = sibling.run({ x: lineRowsOf(0).x }).then(() => (ran = 2))
      ran = Math.max(ran, 1)
      return ran !== 2
    } })
    await runs
    const flying = model.train({ data, steps: 1e6 }), queued = model.step(lineRowsOf(0)), next = model.train({ data, steps: 1 })
    await new Promise((resolve) => setTimeout(resolve, 30))
    const destroyed = model.destroy()
    await refused(flying, StateError, /^train: the model is destroyed/)
    await refused(queued, StateError, /^step: the model is destroyed/)
    await refused(next, StateError, /^train: the model is destroyed/)
    await destroyed
    await refused(model.train({ data, steps: 1 }), StateError, /^train: the model is destroyed/)
    await alone.destroy()
  },

  async 'bad data and bad options change nothing'({ device }) {
    const model = await compileLine(device), other = await compileLine(device), { x, y } = lineData()
    await model.step(lineBatch(0))
    const before = flat(await model.downloadParams()), data = await model.dataset({ x, y }), others = await other.dataset({ x, y })
    const train = (change: object) => model.train({ data, steps: 2, ...change })
    const wrong: [object, abstract new (...args: never[]) => Error, RegExp][] = [
      [{ data: { x, y: y.subarray(1) } }, ShapeError, /^dataset: 7 rows for input y\[4, 2\] are 7 x 2 elements, given 13/],
      [{ data: { x, z: y } }, NotFoundError, /^dataset: unknown input z \(inputs: x, y\)/],
      [{ data: { x: [1, 2, 3], y } }, TensorgradError, /^train: the input x is .*not a Float32Array/],
      [{ data: { x } }, NotFoundError, /^train: inputs not fed: y/],
      [{ data: {} }, TensorgradError, /^dataset: no arrays/],
      [{ data: 5 }, TensorgradError, /^train: data is the number 5, not arrays by name or a data set/],
      [{ data: others }, TensorgradError, /^train: the data set is another model's/],
      [{ inputs: { x: x.subarray(0, 12) } }, TensorgradError, /^train: input x is fed twice/],
      [{ steps: -1 }, TensorgradError, /^train: steps is -1, not a whole number from 0 to 2147483647/],
      [{ steps: 1.5 }, TensorgradError, /^train: steps is 1.5/],
      [{ stepsPerSubmission: 4097 }, TensorgradError, /^train: stepsPerSubmission is 4097/],
      [{ order: 'shuffled' }, TensorgradError, /^train: order is .*, not 'random' or 'sequential'/],
      [{ seed: -1 }, TensorgradError, /^train: the seed is -1/],
      [{ patience: -2 }, TensorgradError, /^train: patience is -2/],
      [{ targetLoss: NaN }, TensorgradError, /^train: targetLoss is NaN/],
      [{ onProgress: 3 }, TensorgradError, /^train: onProgress is 3, not a function/],
    ]
    for (const [change, type, message] of wrong) await refused(train(change), type, message)
    same(flat(await model.downloadParams()), before, 'parameters')
    const still = await compileModule(() => new Line(), lineLoss, { inputs: lineInputs, device })
    await refused(still.train({ data: { x, y }, steps: 1 }), StateError, /^train: the model has no optimizer and writes nothing back/)
    same(await model.train({ data, steps: 2, order: 'sequential' }), await model.train({ data, steps: 0 }).then(async () => {
      await other.step(lineBatch(0))
      return [await other.step(lineRowsOf(1)), await other.step(lineRowsOf(2))]
    }), 'losses afterwards')
    await Promise.all([model.destroy(), other.destroy(), still.destroy()])
  },

  async 'the device says what it is'({ device }) {
    const model = await compileLine(device)
    check(device === 'cpu' ? /^cpu \(simd128/.test(model.device) : /^webgpu \(.+\)$/.test(model.device), `device: ${model.device}`)
    check(model.kernelCount > 0 && model.dispatchCount > 0 && model.ir.text.length > 0 && model.ir.kernels.length > 0, 'kernels and IR')
    check(device === 'cpu' || model.dispatchCount < model.kernelCount, 'kernels share launches')
    equal(model.paramNames.join(), 'W,b', 'names')
    equal(model.outputShape.length, 0, 'rank of the loss')
    await model.destroy()
  },

  async 'steps are reproducible; reset begins again'({ device }) {
    const [a, b] = await Promise.all([compileLine(device), compileLine(device)])
    const initial = await a.downloadParams()
    for (let t = 0; t < 4; t++) equal(await a.step(lineBatch(t)), await b.step(lineBatch(t)), `loss of step ${t}`)
    same(flat(await a.downloadParams()), flat(await b.downloadParams()), 'parameters')
    await a.reset()
    same(flat(await a.downloadParams()), flat(initial), 'parameters after reset')
    await b.reset()
    equal(await a.step(lineBatch(0)), await b.step(lineBatch(0)), 'loss after reset')
    await b.resetOptimizerState()
    await Promise.all([a.destroy(), b.destroy()])
  },

  async 'parameters, gradients, learning rate'({ device }) {
    const model = await compileLine(device)
    await refused(model.downloadParamGrads(), StateError, /no step|before|step/)
    const W = Float32Array.from({ length: 6 }, (_, i) => i / 4)
    await model.uploadParams({ W }, { partial: true })
    same((await model.downloadParams())['W'] as Float32Array, W, 'W')
    await refused(model.uploadParams({ W }), NotFoundError, /b/)
    await refused(model.uploadParams({ W, c: W }, { partial: true }), NotFoundError, /c.*W, b/s)
    await refused(model.uploadParams({ W: new Float32Array(5) }, { partial: true }), TensorgradError, /W.*6.*5/s)
    await model.setLR(0)
    await model.step(lineBatch(1))
    same((await model.downloadParams())['W'] as Float32Array, W, 'W at rate 0')
    const grads = await model.downloadParamGrads()
    const { x, y } = lineBatch(1)
    let db = 0 // of b[0]: 2 / 8 of the summed error
    for (let row = 0; row < 4; row++) {
      let out = 0
      for (let k = 0; k < 3; k++) out += (x[row * 3 + k] as number) * (W[k * 2] as number)
      db += (2 / 8) * (out - (y[row * 2] as number))
    }
    near((grads['b'] as Float32Array)[0] as number, db, 1e-5, 'gradient of b[0]')
    await model.destroy()
  },

  async 'captures, where there are some and where there are none'({ device }) {
    const make = (named: boolean) => compileModule(() => new Line(), (m, { x, y }) => {
      const h = matmul(x, m.W)
      return nn.mse(add(named ? capture('h', h) : h, m.b), y)
    }, { adam: { lr: 0.1 }, inputs: lineInputs, seed: 3, device })
    const [model, bare] = await Promise.all([make(true), make(false)])
    const { loss, captures } = await model.step(lineBatch(0), { withCaptures: true })
    const none = await bare.step(lineBatch(0), { withCaptures: true })
    equal(loss, none.loss, 'loss')
    equal(captures.names().join(), 'h', 'names')
    equal(captures.shapeOf('h').join(), '4,2', 'shape')
    equal(captures.get('h').length, 8, 'length')
    equal(none.captures.names().length, 0, 'number of captures')
    await refused((async () => none.captures.get('h'))(), NotFoundError, /^captures: there is no "h" \(captures: none: the graph captures nothing\)/)
    await refused((async () => captures.get('g'))(), NotFoundError, /^captures: there is no "g" \(captures: h\)/)
    await Promise.all([model.destroy(), bare.destroy()])
  },

  async 'random numbers: the same on every home, anew in each call, replayed by a reset'({ device }) {
    const model = await compileForward(() => new Module_(), () => randInt([4], 0, 1000), { seed: 3, device })
    const drawn: Int32Array[] = []
    for (let t = 0; t < 3; t++) drawn.push(await model.run<Int32Array>({}))
    same(drawn[0] as Int32Array, RUN_0, 'the first run of seed 3')
    same(drawn[1] as Int32Array, RUN_1, 'the second')
    check((drawn[1] as Int32Array).join() !== (drawn[2] as Int32Array).join(), 'the third draws anew')
    await model.reset()
    for (const want of drawn) same(await model.run<Int32Array>({}), want, 'after a reset')
    await model.destroy()
  },

  async 'random numbers: what steps draw does not depend on runs, siblings or refused calls'({ device }) {
    const forward = (m: Line, { x, y }: { x: Tensor; y: Tensor }) => {
      capture('mask', cast(bernoulli([4, 2], 0.5), 'f32'))
      return nn.mse(m.drop.fwd(add(matmul(x, m.W), m.b)), y)
    }
    const make = () => compileModule(() => new Line(), forward, { adam: { lr: 0.1 }, inputs: lineInputs, seed: 3, device })
    const [model, twin] = await Promise.all([make(), make()])
    const predict = await twin.compileForward((m, { x }) => m.drop.fwd(matmul(x, m.W)), { inputs: { x: { shape: [4, 3] } } })
    const noisy = await twin.compileForward(() => randn([8]))
    const masks: string[] = []
    for (let t = 0; t < 4; t++) {
      const batch = lineBatch(t)
      const { loss, captures } = await model.step(batch, { withCaptures: true })
      masks.push([...captures.get('mask')].join())
      await twin.run(batch)
      await refused(twin.step({ ...batch, x: new Float32Array(3) }), ShapeError, /^step: /)
      const [one, other] = [await noisy.run({}), await noisy.run({})]
      check([...one].every(Number.isFinite) && one.join() !== other.join(), 'a sibling draws anew')
      same(await predict.run({ x: batch.x }), await predict.run({ x: batch.x }), 'nn.Dropout passes when predicting')
      equal(await twin.step(batch), loss, `loss ${t}`)
    }
    check(new Set(masks).size > 1, 'masks differ')
    const { captures } = await model.step(lineBatch(0), { withCaptures: true })
    await model.reset()
    equal([...(await model.step(lineBatch(0), { withCaptures: true })).captures.get('mask')].join(), masks[0], 'the first mask again')
    equal(captures.get('mask').length, 8, 'length of a mask')
    await Promise.all([model.destroy(), twin.destroy()])
  },

  async 'batch norm: steps keep its statistics, a sibling predicts by them, runs change none, a reset forgets them'({ device }) {
    class Normed extends Module { bn = new nn.BatchNorm(1) }
    const x = new Float32Array([1, 2, 6, -1]), inputs = { x: { shape: [4, 1] } } as const
    const model = await compileModule(() => new Normed(), (m, { x }) => nn.mse(m.bn.fwd(x), x), { sgd: { lr: 1e-9 }, inputs, device })
    const predict = await model.compileForward((m, { x }) => m.bn.fwd(x), { inputs })
    // the batch: mean 2, unbiased variance 26 / 3
    const after = async (steps: number) => {
      const m = 2 * (1 - 0.9 ** steps), v = 0.9 ** steps + (26 / 3) * (1 - 0.9 ** steps)
      const y = await predict.run({ x })
      x.forEach((each, i) => near(y[i] as number, (each - m) / Math.sqrt(v + 1e-5), 1e-5, `after ${steps} steps`))
    }
    await after(0)
    await model.step({ x })
    await model.run({ x })
    await after(1)
    await model.step({ x })
    await after(2)
    equal(model.paramNames.join(), 'bn.g,bn.b', 'parameters')
    await model.reset()
    await after(0)
    await model.destroy()
  },

  async 'random numbers: moments, frequencies, dropout'({ device }) {
    const N = 4096
    class Weight extends Module { w = this.param([N], { init: 'ones' }); drop = new nn.Dropout(0.25) }
    const model = await compileModule(() => new Weight(), (m) => {
      capture('rand', rand([N]))
      capture('randn', randn([N]))
      capture('best', cast(categorical(mul(ones([N, 2]), 0)), 'f32'))
      return sumAll(capture('kept', m.drop.fwd(m.w)))
    }, { seed: 5, device })
    const { captures } = await model.step({}, { withCaptures: true })
    const w = (await model.downloadParamGrads())['w'] as Float32Array
    const mean = (name: string, power = 1) => [...captures.get(name)].reduce((sum, x) => sum + x ** power, 0) / N
    near(mean('rand'), 0.5, 5 * Math.sqrt(1 / 12 / N), 'mean of rand')
    near(mean('randn'), 0, 5 / Math.sqrt(N), 'mean of randn')
    near(mean('randn', 2), 1, 5 * Math.sqrt(2 / N), 'square of randn')
    near(mean('best'), 0.5, 2.5 / Math.sqrt(N), 'categories')
    near(mean('kept'), 1, 5 * Math.sqrt(1 / 3 / N), 'mean of dropout')
    same(w, captures.get('kept'), 'the gradient is the mask')
    await model.destroy()
  },

  async 'a run whose drawn index is refused draws nothing'({ device }) {
    class Table extends Module { E = this.param([8, 1]) }
    const make = () => compileForward(() => new Table(), (m, { push }) => embedding(m.E, add(randInt([6], 0, 8), push)),
      { inputs: { push: { shape: [], dtype: 'i32' } }, seed: 4, device })
    const [model, twin] = await Promise.all([make(), make()])
    for (let t = 0; t < 3; t++) {
      await refused(model.run({ push: Int32Array.of(100) }), IndexError, /embedding: a computed index is outside \[0, 8\)/)
      same(await model.run({ push: Int32Array.of(0) }), await twin.run({ push: Int32Array.of(0) }), `run ${t}`)
    }
    await Promise.all([model.destroy(), twin.destroy()])
  },

  async 'integers, bools, indices'({ device }) {
    class Table extends Module { E = this.param([5, 2], { init: 'ones' }) }
    const inputs = { i: { shape: [3], dtype: 'i32' }, keep: { shape: [3, 1], dtype: 'bool' } } as const
    const model = await compileModule(() => new Table(), (m, { i, keep }) => sumAll(where(keep, embedding(m.E, i), 0)), { inputs, device })
    const i = Int32Array.of(0, 4, 4), keep = Uint8Array.of(1, 0, 1)
    equal(await model.step({ i, keep }), 4, 'loss')
    same((await model.downloadParamGrads())['E'] as Float32Array, [1, 1, 0, 0, 0, 0, 0, 0, 1, 1], 'gradient of E')
    await refused(model.step({ i: Int32Array.of(0, 5, 4), keep }), IndexError, /embedding: index 5 at position 1 is outside \[0, 5\)/)
    await refused(model.step({ i, keep: Uint8Array.of(1, 2, 1) }), TensorgradError, /keep: 2 at position 1 is neither 0 nor 1/)
    const best = await compileForward(() => new Module_(), (_, { x }) => argmax(x, -1), { inputs: { x: { shape: [2, 3] } }, device })
    const output = await best.run<Int32Array>({ x: Float32Array.of(1, 3, 2, 9, 8, 7) })
    check(output instanceof Int32Array, 'argmax is i32')
    same(output, [1, 0], 'argmax')
    await Promise.all([model.destroy(), best.destroy()])
  },

  async 'a computed index is refused before the step'({ device }) {
    class Table extends Module { E = this.param([5, 2], { init: 'ones' }) }
    const model = await compileModule(() => new Table(), (m, { x }) => sumAll(embedding(m.E, argmax(x, -1))),
      { adam: { lr: 0.1 }, inputs: { x: { shape: [2, 7] } }, device })
    const good = Float32Array.of(0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0), bad = Float32Array.of(0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0)
    await refused(model.step({ x: bad }), IndexError, /embedding: a computed index is outside \[0, 5\)/)
    equal(await model.step({ x: good }), 4, 'loss: the refused step changed nothing')
    await model.destroy()
  },

  async 'a loss that is not finite says so, the step made'({ device }) {
    const model = await compileModule(() => new Line(), (m, { x, y }) => div(capture('sum', sumAll(mul(matmul(x, m.W), y))), 0),
      { inputs: lineInputs, device })
    const error = await refused(model.step(lineBatch(0), { withCaptures: true }), NotFiniteError, /^step 1: loss is (nan|-?inf)/)
    check(!Number.isFinite((error as NotFiniteError).loss), 'its loss')
    check((error as NotFiniteError).captures !== null, 'its captures')
    await model.destroy()
  },

  async 'a loss that is not finite under a factor of 0 says so'({ device }) {
    class Weight extends Module {
      w = this.param([1], { init: 'ones' })
    }
    const model = await compileModule(() => new Weight(),
      (m, { x }) => add(mean(mul(m.w, m.w)), mul(0, mean(exp(mul(m.w, x))))), { inputs: { x: { shape: [3] } }, sgd: { lr: 0.1 }, device })
    await refused(model.step({ x: Float32Array.of(100, 1, 1) }), NotFiniteError, /^step 1: loss is nan/)
    await model.destroy()
  },

  async 'wrong inputs change nothing'({ device }) {
    const [model, twin] = await Promise.all([compileLine(device), compileLine(device)])
    const { x, y } = lineBatch(0)
    equal(await model.step({ x, y }), await twin.step({ x, y }), 'loss')
    await refused(model.step({ x } as never), NotFoundError, /^step: inputs not fed: y/)
    await refused(model.step({ x, y, z: x } as never), NotFoundError, /^step: unknown input z \(inputs: x, y\)/)
    await refused(model.step({ x: y, y }), ShapeError, /^step: input x\[4, 3\] takes 12 elements, fed 8/)
    await refused(model.step({ x: new Int32Array(12), y } as never), ShapeError, /^step: input x is f32, fed as i32/)
    await refused(model.step({ x: [1, 2], y } as never), TensorgradError, /^step: the input x is an? Array/)
    same(flat(await model.downloadParams()), flat(await twin.downloadParams()), 'parameters')
    equal(await model.step({ x, y }), await twin.step({ x, y }), 'next loss')
    await Promise.all([model.destroy(), twin.destroy()])
  },

  async 'concurrent steps, results in order; arrays stay the caller\'s'({ device }) {
    const [model, twin] = await Promise.all([compileLine(device), compileLine(device)])
    const batches = [0, 1, 2, 3, 4, 5, 6, 7].map(lineBatch)
    const reused = lineBatch(0)
    const together = await Promise.all(batches.map(({ x, y }) => {
      reused.x.set(x)
      reused.y.set(y)
      return model.step(reused) // the same arrays, overwritten right after the call
    }))
    equal(reused.x.length, 12, 'the array is still there')
    for (const [t, batch] of batches.entries()) equal(together[t], await twin.step(batch), `loss ${t}`)
    const answers = await Promise.allSettled(batches.map((batch, t) => model.step(t === 2 ? { ...batch, x: new Float32Array(3) } : batch)))
    for (const [t, batch] of batches.entries()) {
      const answer = answers[t] as PromiseSettledResult<number>
      if (t === 2) check(answer.status === 'rejected' && answer.reason instanceof ShapeError, 'the one that is refused')
      else equal(answer.status === 'fulfilled' && answer.value, await twin.step(batch), `loss ${t} of those around one that is refused`)
    }
    const forward = await twin.compileForward((m, { x }) => matmul(x, m.W), { inputs: { x: { shape: [1, 3] } } })
    const W = (await twin.downloadParams())['W'] as Float32Array
    const rows = await Promise.all([0, 1, 2].map((k) => forward.run({ x: Float32Array.from({ length: 3 }, (_, i) => Number(i === k)) })))
    rows.forEach((row, k) => same(row, W.subarray(2 * k, 2 * k + 2), `row ${k}`))
    await Promise.all([model.destroy(), twin.destroy()])
  },

  async 'destroy with calls in flight; siblings go along'({ device }) {
    const model = await compileLine(device)
    const sibling = await model.compileForward((m, { x }) => matmul(x, m.W), { inputs: { x: { shape: [1, 3] } } })
    const x = new Float32Array(3)
    const inFlight = [model.step(lineBatch(0)), sibling.run({ x })].map((call) => refused(call, StateError, /^(step|run): the model is destroyed/))
    const destroyed = model.destroy()
    await Promise.all(inFlight)
    await destroyed
    await model.destroy()
    await refused(model.step(lineBatch(0)), StateError, /^step: the model is destroyed/)
    await refused(sibling.run({ x }), StateError, /^run: the model is destroyed/)
    const parent = await compileLine(device)
    const child = await parent.compileForward((m, { x }) => matmul(x, m.W), { inputs: { x: { shape: [1, 3] } } })
    await child.destroy()
    await refused(child.run({ x }), StateError, /^run: the model is destroyed/)
    check(Number.isFinite(await parent.step(lineBatch(0))), 'the parent lives on')
    await parent.destroy()
  },

  async 'a worker killed in the middle of a step'({ device, killWorkers }) {
    const model = await compileLine(device)
    await model.step(lineBatch(0))
    const always = async () => { // one is in flight at any time
      for (let t = 0; t < 1e5; t++) await model.step(lineBatch(t))
    }
    const checked = refused(always(), WorkerError, /^step: the worker is gone: /)
    await killWorkers()
    await checked
    await refused(model.downloadParams(), WorkerError, /^downloadParams: the worker is gone: /)
    await model.destroy()
    const again = await compileLine(device)
    check(Number.isFinite(await again.step(lineBatch(0))), 'another model works')
    await again.destroy()
  },

  async 'one factory compiled twice; one forward compiled twice'({ device }) {
    const factory = () => new Line()
    const options = { inputs: { x: { shape: [1, 3] } }, seed: 3, device } as const
    const forward = (m: Line, { x }: { x: Tensor }) => add(matmul(x, m.W), m.b)
    const [a, b] = await Promise.all([compileForward(factory, forward, options), compileForward(factory, forward, options)])
    const x = Float32Array.of(1, 2, 3)
    same(await a.run({ x }), await b.run({ x }), 'outputs')
    const [c, d] = await Promise.all([a.compileForward(forward, { inputs: options.inputs }), a.compileForward(forward, { inputs: options.inputs })])
    same(await c.run({ x }), await d.run({ x }), 'outputs of siblings')
    await Promise.all([a.destroy(), b.destroy()])
    const kept = new Line() // a model that is not made anew is none the worse
    const e = await compileForward(() => kept, forward, options)
    const f = await compileForward(() => kept, forward, options)
    same(await e.run({ x }), await f.run({ x }), 'outputs of a kept module')
    await Promise.all([e.destroy(), f.destroy()])
  },

  async 'a build that throws'({ device }) {
    const options = { inputs: lineInputs, device }
    class Mine extends Error {}
    await refused(compileModule(() => { throw new Mine('my factory') }, lineLoss as never, options), Mine, /^my factory$/)
    await refused(compileModule(() => new Line(), () => { throw new Mine('my forward') }, options), Mine, /^my forward$/)
    await refused(compileModule(() => new Line(), (m, { x, y }) => sumAll(add(matmul(x, m.W), matmul(y, m.W))), options), ShapeError,
      /^matmul: inner dimensions differ/)
    await refused(compileModule(() => new Line(), (m, { x }) => matmul(x, m.W), options), TensorgradError, /the loss must be rank 0/)
    await refused((async () => relu(new Line().W))(), TraceError, /outside a trace/)
    const model = await compileLine(device)
    check(Number.isFinite(await model.step(lineBatch(0))), 'the next model works')
    await refused(model.compileForward(() => { throw new Mine('my sibling') }), Mine, /^my sibling$/)
    check(Number.isFinite(await model.step(lineBatch(1))), 'the model works on')
    await model.destroy()
  },

  async 'a long chain of operations'({ device }) {
    const model = await compileForward(() => new Module_(), (_, { x }) => {
      let y: Tensor = x
      for (let i = 0; i < 600; i++) y = add(relu(y), 1)
      return y
    }, { inputs: { x: { shape: [4] } }, device })
    same(await model.run({ x: Float32Array.of(-1, 0, 1, 2) }), [600, 600, 601, 602], 'the end of the chain')
    await model.destroy()
  },

  async 'profile: a row for each launch, and the steps are real ones'({ device }) {
    const [model, plain] = [await compileLine(device), await compileLine(device)]
    const asked = model.profile(lineBatch(0), { steps: 5 })
    if (device === 'cpu') {
      await refused(asked, UnsupportedError, /^profile: launches are timed on a GPU, not on cpu/)
    } else {
      const rows = await asked
      const sum = (key: 'kernels' | 'share' | 'ms') => rows.reduce((all, row) => all + row[key], 0)
      equal(sum('kernels'), model.kernelCount, 'kernels of all launches')
      check(rows.length <= model.dispatchCount && rows.every((row) => row.kernel !== '' && row.loops !== '' && row.bytes >= 4 && row.workgroups > 0), JSON.stringify(rows))
      check(sum('ms') >= 0 && (sum('ms') === 0 || Math.abs(sum('share') - 1) < 1e-9), JSON.stringify(rows))
      for (let step = 0; step < 6; step++) await plain.step(lineBatch(0))
      same(flat(await model.downloadParams()), flat(await plain.downloadParams()), 'parameters after five steps and one')
      const forward = await model.compileForward((m, { x }) => add(matmul(x, m.W), m.b), { inputs: { x: { shape: [4, 3] } } })
      check((await forward.profile({ x: new Float32Array(12) }, { steps: 2 })).length > 0, 'a forward pass')
    }
    await model.destroy()
    await plain.destroy()
  },

  async 'a snapshot and a recovery that is not needed'({ device }) {
    const model = await compileLine(device)
    await model.step(lineBatch(0))
    const before = flat(await model.downloadParams())
    await model.snapshot()
    await model.recover()
    same(flat(await model.downloadParams()), before, 'parameters')
    await model.destroy()
  },
}
class Module_ extends Module {}

// ---------------------------------------------------------------- curves

/** A file of scripts/get-data: the runner puts this function there. */
declare const readData: (name: string) => Promise<Uint8Array>
const text = async (name: string) => new TextDecoder().decode(await readData(name))

type Batches = (seed: number, t: number) => unknown
const examples = {
  'mlp-sin': { compile: mlpSin.compile, batches: async (): Promise<Batches> => mlpSin.batch },
  'transformer-add': { compile: transformerAdd.compile, batches: async (): Promise<Batches> => transformerAdd.batch },
  'digits-cnn': {
    compile: digitsCnn.compile,
    batches: async (): Promise<Batches> => {
      const data = digitsCnn.digits(await readData(digitsCnn.FILES[0]), await readData(digitsCnn.FILES[1]))
      return (seed, t) => digitsCnn.batch(data, seed, t)
    },
  },
  makemore: {
    compile: makemore.compile,
    batches: async (): Promise<Batches> => {
      const data = makemore.names(await text('names.txt'))
      return (seed, t) => makemore.batch(data, seed, t)
    },
  },
  'char-gru': {
    compile: charGru.compile,
    batches: async (): Promise<Batches> => {
      const novel = charGru.encode(await text('novel.txt'))
      return (seed, t) => charGru.batch(novel, seed, t)
    },
  },
}
export type Example = keyof typeof examples

async function compileExample(example: Example, device: Device, seed: number, threads = 1): Promise<CompiledModule> {
  return ((await examples[example].compile({ seed, device, threads })) as { model: unknown }).model as CompiledModule
}

/** The losses of the first steps of an example on that many threads, and the name of the device. */
export async function threadedLosses(example: Example, threads: number, steps: number): Promise<{ losses: number[]; device: string }> {
  const model = await compileExample(example, 'cpu', 5, threads)
  const batch = await examples[example].batches()
  const losses: number[] = []
  for (let t = 1; t <= steps; t++) losses.push(await model.step(batch(5, t) as never))
  await model.destroy()
  return { losses, device: model.device }
}

/** Losses of the first steps. */
export async function curve(example: Example, device: Device, seed: number, steps: number): Promise<{ losses: number[]; device: string; msPerStep: number }> {
  const [model, batch] = [await compileExample(example, device, seed), await examples[example].batches()]
  const losses: number[] = []
  const start = performance.now()
  for (let t = 1; t <= steps; t++) losses.push(await model.step(batch(seed, t) as never))
  const msPerStep = (performance.now() - start) / steps
  await model.destroy()
  return { losses, device: model.device, msPerStep }
}

/** Milliseconds of a step that is waited for, and of one of many in flight: the best of rounds,
 *  until both are at most `enough`. The batches are there before. A busy machine makes any round
 *  slow. */
export async function speed(example: Example, device: Device, steps: number, rounds: number, enough: number): Promise<{ awaited: number; inFlight: number }> {
  const [model, batch] = [await compileExample(example, device, 1), await examples[example].batches()]
  const data = Array.from({ length: steps }, (_, t) => batch(1, t + 1) as never)
  const timed = async (body: () => Promise<unknown>): Promise<number> => {
    const start = performance.now()
    await body()
    return (performance.now() - start) / steps
  }
  let awaited = Infinity, inFlight = Infinity
  for (let round = 0; round < rounds && (round < 2 || Math.max(awaited, inFlight) > enough); round++) {
    awaited = Math.min(awaited, await timed(async () => {
      for (const batch of data) await model.step(batch)
    }))
    inFlight = Math.min(inFlight, await timed(() => Promise.all(data.map((batch) => model.step(batch)))))
  }
  await model.destroy()
  return { awaited, inFlight }
}

/** What the examples that learn from files say after a short training: names and prose of letters,
 *  digits read better than by chance. */
export async function learnedFromFiles(device: Device, steps: number): Promise<string> {
  const [images, labels] = [await readData(digitsCnn.FILES[2]), await readData(digitsCnn.FILES[3])]
  const test = digitsCnn.digits(images, labels)
  const digits = await digitsCnn.compile({ device })
  const draw = await examples['digits-cnn'].batches()
  for (let t = 1; t <= steps; t++) await digits.model.step(draw(1, t) as never)
  const few = { ...test, count: 5 * digitsCnn.TEST_BATCH }
  const right = await digitsCnn.accuracy((image) => digits.forward.run({ image }) as Promise<Int32Array>, few)
  await digits.model.destroy()

  const data = makemore.names(await text('names.txt'))
  const names = await makemore.compile({ device })
  for (let t = 1; t <= 5 * steps; t++) await names.model.step(makemore.batch(data, 1, t))
  const guess = (letters: Int32Array) => names.forward.run({ letters }) as Promise<Float32Array>
  const heldOut = await makemore.heldOutLoss(guess, data)
  const made = await makemore.makeNames(guess)
  await names.model.destroy()

  const novel = charGru.encode(await text('novel.txt'))
  const prose = await charGru.compile({ device })
  for (let t = 1; t <= steps; t++) await prose.model.step(charGru.batch(novel, 1, t))
  const written = await charGru.write(prose.forward, 'The ship ', 40)
  await prose.model.destroy()

  if (!(right > 0.3)) throw new Error(`digits-cnn reads ${right} right`)
  if (!(heldOut < 2.9)) throw new Error(`makemore's loss on names kept out is ${heldOut}`)
  if (made.length !== makemore.TEST_BATCH || !made.every((name) => /^[a-z]*$/.test(name))) throw new Error(`makemore makes ${made.join()}`)
  if (!/^The ship [ -~\n]{40}$/.test(written)) throw new Error(`char-gru writes ${JSON.stringify(written)}`)
  return `${(100 * right).toFixed(1)} % of digits, names at ${heldOut.toFixed(2)}, ${JSON.stringify(written)}`
}
