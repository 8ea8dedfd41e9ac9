// The life of models on every platform: batches of any size, a model that replaces another, the
// newest of calls that overlap, frozen parts, results of every dtype.

import {
  add, argmax, ArgumentError, capture, cast, compileForward, compileModule, equal as equals, greater, latestWins, matmul, Module, nn, NotFoundError,
  relu, replaceModel, reshape, ShapeError, StateError, sumAll, type CompiledModule, type Device, type InputTensors, type Tensor,
} from 'tensorgrad'
import { check, equal, near, refused, same, type Test } from './checks.js'

class Line extends Module {
  W = this.param([3, 2])
  b = this.param([2], { init: 'zeros' })
}
const anyInputs = { x: { shape: [null, 3] }, y: { shape: [null, 2] } } as const
const lineLoss = (m: Line, { x, y }: InputTensors<typeof anyInputs>): Tensor => nn.mse(capture('out', add(matmul(x, m.W), m.b)), y)
const batch = (rows: number, t: number) => ({
  x: Float32Array.from({ length: rows * 3 }, (_, i) => Math.sin(i + 12 * t)), y: Float32Array.from({ length: rows * 2 }, (_, i) => Math.cos(i + 8 * t)),
})
const flat = (record: Record<string, Float32Array>): number[] => Object.values(record).flatMap((array) => [...array])

const compileAny = (device: Device, more: object = {}) =>
  compileModule(() => new Line(), lineLoss, { adam: { lr: 0.1 }, inputs: anyInputs, seed: 3, device, ...more })
const compileFixed = (device: Device, rows: number) =>
  compileModule(() => new Line(), lineLoss as never, { adam: { lr: 0.1 }, inputs: { x: { shape: [rows, 3] }, y: { shape: [rows, 2] } }, seed: 3, device })

/** Adam on the line by its formulas, in f64: what a user who writes one model expects, whatever the
 *  sizes of the batches. */
class Reference {
  #m: number[]
  #v: number[]
  #t = 0
  constructor(readonly p: number[]) {
    this.#m = p.map(() => 0)
    this.#v = p.map(() => 0)
  }
  step({ x, y }: { x: Float32Array; y: Float32Array }): number {
    const rows = x.length / 3, g = this.p.map(() => 0), at = (i: number) => this.p[i] as number
    let loss = 0
    for (let row = 0; row < rows; row++)
      for (let j = 0; j < 2; j++) {
        const xs = [0, 1, 2].map((k) => x[row * 3 + k] as number)
        const error = xs.reduce((sum, each, k) => sum + each * at(2 * k + j), at(6 + j)) - (y[row * 2 + j] as number)
        loss += error ** 2 / (2 * rows)
        xs.forEach((each, k) => (g[2 * k + j] = (g[2 * k + j] as number) + (error * each) / rows))
        g[6 + j] = (g[6 + j] as number) + error / rows
      }
    const t = ++this.#t, rate = (0.1 * Math.sqrt(1 - 0.999 ** t)) / (1 - 0.9 ** t)
    g.forEach((each, i) => {
      const m = (this.#m[i] = 0.9 * (this.#m[i] as number) + 0.1 * each), v = (this.#v[i] = 0.999 * (this.#v[i] as number) + 0.001 * each ** 2)
      this.p[i] = at(i) - (rate * m) / (Math.sqrt(v) + 1e-8)
    })
    return loss
  }
}

export const lifeTests: Record<string, Test> = {
  async 'batches of any size train one model'({ device }) {
    const model = await compileAny(device, { batch: 8 }), fixed = await compileFixed(device, 8)
    const reference = new Reference(flat(await model.downloadParams()))
    equal(model.kernelCount, fixed.kernelCount, 'kernels')
    for (let t = 0; t < 3; t++) equal(await model.step(batch(8, t)), await fixed.step(batch(8, t) as never), `loss of step ${t}, as with a fixed size`)
    same(flat(await model.downloadParams()), flat(await fixed.downloadParams()), 'parameters')
    await model.reset()
    for (const [t, rows] of [32, 7, 32, 1, 8, 7].entries()) near(await model.step(batch(rows, t)), reference.step(batch(rows, t)), 2e-5, `loss of step ${t}`)
    flat(await model.downloadParams()).forEach((got, i) => near(got, reference.p[i] as number, 1e-5, `parameter ${i}`))
    const grads = await model.downloadParamGrads()
    check(flat(grads).every((each) => each !== 0), 'gradients of the last step')
    const { captures } = await model.step(batch(5, 9), { withCaptures: true })
    equal(captures.shapeOf('out').join(), '5,2', 'shape of a capture')
    await Promise.all([model.destroy(), fixed.destroy()])
  },

  async 'forward passes of any size'({ device }) {
    const model = await compileForward(() => new Line(), (m, { x }) => add(matmul(x, m.W), m.b), { inputs: { x: anyInputs.x }, seed: 3, device })
    equal(model.outputShape.join(), '2,2', 'before the first run, as traced')
    const whole = await model.run({ x: batch(11, 0).x })
    equal(model.outputShape.join(), '11,2', 'after it')
    for (let rows = 1; rows <= 11; rows++) { // more sizes than are kept
      const some = await model.run({ x: batch(11, 0).x.slice(0, rows * 3) })
      some.forEach((value, i) => near(value, whole[i] as number, 1e-6, `row ${i >> 1} of ${rows}`))
      equal(model.outputShape.join(), `${rows},2`, 'output shape')
      check((await model.inspect('ir')).includes(`[${rows}, 3]`), 'the text is of the last size')
    }
    const train = await compileAny(device, { batch: 4 })
    const sibling = await train.compileForward((m, { x }) => add(matmul(x, m.W), m.b), { inputs: { x: anyInputs.x }, maxSizes: 1 })
    equal(sibling.outputShape.join(), '4,2', 'a sibling begins with the size of its parent')
    for (const rows of [3, 4, 5, 3]) {
      await train.step(batch(rows, rows))
      const { W, b } = await train.downloadParams() as { W: Float32Array; b: Float32Array }
      const out = await sibling.run({ x: batch(6, 1).x })
      near(out[10] as number, [0, 1, 2].reduce((sum, k) => sum + (batch(6, 1).x[15 + k] as number) * (W[2 * k] as number), b[0] as number), 1e-5, 'out')
    }
    await sibling.destroy()
    await refused(sibling.run({ x: batch(6, 1).x }), StateError, /^run: the model is destroyed/)
    await train.step(batch(3, 0))
    await Promise.all([model.destroy(), train.destroy()])
  },

  async 'what is wrong with a size rejects its call alone'({ device }) {
    const model = await compileAny(device), x = batch(4, 0).x, y = batch(4, 0).y
    await model.step(batch(3, 0))
    const before = flat(await model.downloadParams())
    const wrong: [object, RegExp][] = [
      [{ x, y: y.subarray(2) }, /^step: input x\[\?, 3\] is fed with a size of 4, input y\[\?, 2\] with 3/],
      [{ x: x.subarray(1), y }, /^step: input x\[\?, 3\] takes a multiple of 3 elements, fed 11/],
      [{ x: new Float32Array(0), y }, /^step: input x\[\?, 3\] takes a multiple of 3 elements, fed 0/],
    ]
    for (const [inputs, message] of wrong) await refused(model.step(inputs as never), ShapeError, message)
    await refused(model.step({ x } as never), NotFoundError, /^step: inputs not fed: y/)
    await refused(model.step({ x, y, z: y } as never), NotFoundError, /^step: unknown input z/)
    const pairs = await compileModule(() => new Line(), (m, { x }) => sumAll(matmul(reshape(reshape(x, [-1, 6]), [-1, 3]), m.W)),
      { inputs: { x: anyInputs.x }, adam: { lr: 0.1 }, device })
    const good = pairs.step({ x: batch(4, 0).x }), bad = pairs.step({ x: batch(5, 0).x }), next = pairs.step({ x: batch(4, 0).x })
    await refused(bad, ShapeError, /^reshape: /)
    check((await next) < (await good), 'the calls around it are made')
    await refused(compileAny(device, { batch: 0 }), ArgumentError, /^compileModule: batch is 0, not a whole number from 1 on/)
    await refused(compileAny(device, { maxSizes: 1.5 }), ArgumentError, /^compileModule: maxSizes is 1.5/)
    await refused(compileAny(device, { inputs: { x: { shape: [null, null] }, y: { shape: [null, 2] } } }), ShapeError, /input x has more than one null axis/)
    same(flat(await model.downloadParams()), before, 'parameters')
    await Promise.all([model.destroy(), pairs.destroy()])
  },

  async 'fifty calls of three sizes, not waited for'({ device }) {
    let traced = 0
    const counted = (m: Line, inputs: InputTensors<typeof anyInputs>): Tensor => (traced++, lineLoss(m, inputs))
    const make = (maxSizes: number) => compileModule(() => new Line(), counted, { adam: { lr: 0.01 }, inputs: anyInputs, seed: 3, device, maxSizes, batch: 7 })
    const [alone, model, tight] = [await make(8), await make(8), await make(1)]
    const call = (on: CompiledModule<Line, typeof anyInputs>, t: number): Promise<unknown> => {
      const rows = [7, 4, 2, 4][(t >> 1) % 4] as number
      if (t % 5 === 3) return on.run(batch(rows, t)).then((loss) => loss[0])
      if (t % 10 === 4) return on.downloadParams().then((params) => flat(params).join())
      if (t % 10 === 9) return on.step(batch(rows, t), { withCaptures: true }).then(({ loss, captures }) => `${loss} ${captures.get('out').join()}`)
      return on.step(batch(rows, t))
    }
    const all = Array.from({ length: 50 }, (_, t) => t), want: unknown[] = []
    for (const t of all) want.push(await call(alone, t))
    const before = traced
    const got = await Promise.all(all.map((t) => call(model, t)))
    equal(traced - before, 2, 'sizes traced: each once')
    const freed = await Promise.all(all.map((t) => call(tight, t))) // sizes go while calls of others wait
    all.forEach((t) => {
      equal(got[t], want[t], `call ${t}`)
      equal(freed[t], want[t], `call ${t} with one other size kept`)
    })
    const outcomes: Promise<string>[] = all.map((t) => call(tight, t).then(() => 'made', (error: Error) => `${error.name} ${error.message}`))
    await outcomes[20]
    const destroyed = tight.destroy()
    const said = await Promise.all(outcomes)
    check(said.slice(0, 21).every((each) => each === 'made'), 'calls before it are made')
    check(said.slice(1).every((each, i) => each === 'made' || said[i] !== each || /^StateError (step|run|downloadParams): the model is destroyed/.test(each)), said.join())
    check(/^StateError/.test(said.at(-1) as string), `the last call: ${said.at(-1)}`)
    await destroyed
    await refused(tight.step(batch(9, 0)), StateError, /^step: the model is destroyed/)
    await Promise.all([alone.destroy(), model.destroy()])
  },

  async 'training on data in batches of any size'({ device }) {
    const rows = 9, data = batch(rows, 0), order = 'sequential' as const
    const model = await compileAny(device, { maxSizes: 1 }), stepped = await compileAny(device)
    const rowsOf = (size: number, t: number) => {
      const pick = (from: Float32Array, width: number) => Float32Array.from(
        Array.from({ length: size }, (_, i) => (t * size + i) % rows).flatMap((row) => [...from.subarray(row * width, (row + 1) * width)]))
      return { x: pick(data.x, 3), y: pick(data.y, 2) }
    }
    await refused(model.train({ data, steps: 1 }), ArgumentError, /^train: how many rows has a batch\?/)
    await refused(model.dataset(data), ArgumentError, /^dataset: how many rows has a batch\?/)
    await refused(model.train({ data, steps: 1, batch: 0 }), ArgumentError, /^train: batch is 0, not a whole number from 1 on/)
    const five = await model.dataset(data, { batch: 5 }), got: number[] = [], want: number[] = []
    const runs: Promise<unknown>[] = []
    const onProgress = (): void => void (runs.length < 4 && runs.push(model.run(batch(11 + runs.length, 0)))) // new sizes meanwhile
    got.push(...await model.train({ data: five, steps: 4, order, stepsPerSubmission: 1, onProgress }))
    got.push(...await model.train({ data, batch: 3, steps: 3, order }))
    got.push(await model.step(rowsOf(4, 7)))
    got.push(...await model.train({ data: five, steps: 2, order }))
    for (const [t, size] of [5, 5, 5, 5, 3, 3, 3, 4, 5, 5].entries()) want.push(await stepped.step(rowsOf(size, t)))
    same(got, want, 'losses')
    await Promise.all(runs)
    same(flat(await model.downloadParams()), flat(await stepped.downloadParams()), 'parameters')
    await refused(model.train({ data: five, batch: 5, steps: 1 }), ArgumentError, /^train: batch is given, and a data set, which has its own/)
    const fixed = await compileFixed(device, 4)
    await refused(fixed.train({ data, batch: 4, steps: 1 } as never), ArgumentError, /^train: batch is for models whose inputs have a null axis/)
    const declared = await compileAny(device, { batch: 6 })
    same(await declared.train({ data, steps: 2, order }), [await stepped.reset().then(() => stepped.step(rowsOf(6, 0))), await stepped.step(rowsOf(6, 1))], 'declared batch')
    await five.destroy()
    await Promise.all([model, stepped, fixed, declared].map((each) => each.destroy()))
  },

  async 'a model takes the place of another'({ device }) {
    const old = await compileAny(device, { batch: 4 })
    for (let t = 0; t < 3; t++) await old.step(batch(4, t))
    const values = await old.downloadParams()
    await refused(replaceModel(old, () => compileModule(() => new Line(), (m) => m.W, { device })), Error, /rank 0/)
    await refused(replaceModel(old, () => Promise.reject(new Error('no device'))), Error, /^no device$/)
    await refused(replaceModel(old, async () => old), ArgumentError, /^replaceModel: make returned the old model itself/)
    same(flat(await old.downloadParams()), flat(values), 'the old model is as it was')
    class Longer extends Module { W = this.param([3, 2]); b = this.param([3], { init: 'zeros' }); V = this.param([2, 3], { init: 'ones' }) }
    const flying = [old.step(batch(6, 7)), old.step(batch(4, 8)), old.run(batch(5, 9)).then((out) => out[0] as number)]
    const made = await replaceModel(old, () => compileForward(() => new Longer(), (m, { x }) => add(matmul(matmul(x, m.W), m.V), m.b), { inputs: { x: anyInputs.x }, device }), { carry: true })
    check((await Promise.all(flying)).every(Number.isFinite), 'calls in flight are made')
    check(old.destroyed && !made.destroyed, 'one is destroyed')
    const carried = await made.downloadParams()
    check((carried['W'] as Float32Array).some((value, i) => value !== (values['W'] as Float32Array)[i]), 'W as trained by the calls in flight')
    same(carried['b'] as Float32Array, [0, 0, 0], 'b of another shape')
    same(carried['V'] as Float32Array, [1, 1, 1, 1, 1, 1], 'V, which is new')
    const first = await replaceModel(null, () => compileAny(device))
    const training = first.train({ data: batch(8, 0), batch: 4, steps: 1e6 })
    const ended = refused(training, StateError, /^train: the model is destroyed/)
    const second = await replaceModel(first, () => compileAny(device))
    await ended
    await refused(replaceModel(second, async () => undefined as never), ArgumentError, /^replaceModel: make returned undefined/)
    await refused(replaceModel(undefined as never, () => compileAny(device)), ArgumentError, /^replaceModel: old is undefined/)
    await second.step(batch(4, 1)) // it is as it was
    await Promise.all([made.destroy(), second.destroy()])
  },

  async 'calls behind a training run keep their order'({ device }) {
    const model = await compileAny(device)
    const before = await model.downloadParams(), name = Object.keys(before)[0] as string
    const filled = (value: number) => ({ [name]: (before[name] as Float32Array).map(() => value) })
    const training = model.train({ data: batch(8, 0), batch: 4, steps: 5 })
    const first = model.uploadParams(filled(1), { partial: true })
    await training
    await Promise.all([first, model.uploadParams(filled(2), { partial: true })])
    equal((await model.downloadParams())[name]?.[0], 2, 'the later upload')
    await model.destroy()
  },

  async 'the options of a compiled model are its own'({ device }) {
    const shape: (number | null)[] = [null, 3], frozen = ['b']
    const options = { inputs: { x: { shape } }, frozen, device, sgd: { lr: 0.1 } }
    const model = await compileModule(() => new Line(), (m, { x }) => sumAll(add(matmul(x, m.W), m.b)), options as never as { inputs: { x: { shape: [null, 3] } } })
    shape[1] = 7
    frozen[0] = 'W'
    const before = (await model.downloadParams()).W as Float32Array
    await model.step({ x: new Float32Array(5 * 3).fill(1) })
    check(((await model.downloadParams()).W as Float32Array)[0] !== before[0], 'W is trained')
    await model.destroy()
  },

  async 'of calls that overlap the newest matters'() {
    const begun: number[] = []
    let open: () => void = () => undefined
    const gate = () => new Promise<void>((resolve) => (open = resolve))
    const work = latestWins(async (n: number) => {
      begun.push(n)
      if (n === 1) await gate()
      if (n === 4) throw new Error('four')
      return n * 10
    })
    const first = [1, 2, 3].map((n) => work(n))
    const failing = work(4).then(String, (error: Error) => error.message)
    const fifth = work(5)
    open()
    same((await Promise.all(first)).map((each) => each ?? -1), [10, -1, -1], 'the first, and those overtaken')
    equal(await failing, 'undefined', 'overtaken before it could throw')
    equal(await fifth, 50, 'the newest')
    same(begun, [1, 5], 'those that began')
    equal(await work(4).then(String, (error: Error) => error.message), 'four', 'errors are of their own caller')
    equal(await work(6), 60, 'after an error')
    const sync = latestWins((n: number) => n + 1)
    equal(await sync(1), 2, 'a function that returns at once')
    let atOnce = 0, most = 0
    const nested = latestWins(async (n: number): Promise<number> => {
      most = Math.max(most, ++atOnce)
      if (n > 0) void nested(n - 1)
      await Promise.resolve()
      return --atOnce
    })
    await nested(3)
    await nested(0)
    equal(most, 1, 'calls from within a call wait for it')
    await refused(Promise.resolve().then(() => latestWins(5 as never)), ArgumentError, /^latestWins: takes a function/)
  },

  async 'results of every dtype'({ device }) {
    class Table extends Module { W = this.param([4, 3], { init: 'ones' }) }
    const big = 3000
    const inputs = { x: { shape: [null, 4] }, k: { shape: [null], dtype: 'i32' } } as const
    const x = Float32Array.from({ length: big * 4 }, (_, i) => Math.sin(i * i)), k = Int32Array.from({ length: big }, (_, i) => i - 2 ** 31)
    const first = (row: number): number => {
      const four = [...x.subarray(row * 4, row * 4 + 4)]
      return four.indexOf(Math.max(...four))
    }
    for (const rows of [1, 5, big]) {
      const some = { x: x.slice(0, rows * 4), k: k.slice(0, rows) }, all = Array.from({ length: rows }, (_, i) => i)
      const build = <A extends Int32Array | Uint8Array>(forward: (x: Tensor, k: Tensor) => Tensor) =>
        compileForward(() => new Table(), (m, inputs) => (capture('sum', matmul(inputs.x, m.W)), forward(inputs.x, inputs.k)), { inputs, device, batch: rows })
          .then(async (model) => {
            const result = await model.run<A>(some, { withCaptures: true }), plain = await model.run<A>(some)
            same(plain, result.output, 'with and without captures')
            const { outputDtype, outputShape } = model
            await model.destroy()
            return { ...result, outputDtype, outputShape }
          })
      const best = await build<Int32Array>((x, k) => (capture('k', add(k, 1)), capture('large', greater(x, 0.5)), argmax(x, -1)))
      check(best.output instanceof Int32Array && best.outputDtype === 'i32', 'argmax is an Int32Array')
      same(best.output, all.map(first), 'argmax')
      same(best.captures.get<Int32Array>('k'), all.map((i) => i + 1 - 2 ** 31), 'an i32 capture')
      const large = best.captures.get<Uint8Array>('large')
      check(best.captures.get<Int32Array>('k') instanceof Int32Array && large instanceof Uint8Array, 'kinds of the captures')
      same(large, [...some.x].map((each) => Number(each > 0.5)), 'a bool capture')
      equal(best.captures.get('sum').length, rows * 3, 'an f32 capture beside them')
      const compared = await build<Uint8Array>((x) => greater(x, 0))
      check(compared.output instanceof Uint8Array && compared.outputDtype === 'bool', 'a comparison is a Uint8Array')
      same(compared.output, [...some.x].map((each) => Number(each > 0)), 'greater')
      const count = await build<Int32Array>((_, k) => sumAll(cast(greater(k, 2 - 2 ** 31), 'i32')))
      equal(count.outputShape.length, 0, 'rank of a count')
      same(count.output, [Math.max(0, rows - 3)], 'an i32 of rank 0')
      const whether = await build<Uint8Array>((_, k) => equals(sumAll(cast(greater(k, 2 - 2 ** 31), 'i32')), 2))
      same(whether.output, [Number(rows === 5)], 'a bool of rank 0')
    }
  },

  async 'frozen parts have no backward work'({ device }) {
    class Two extends Module { lower = new nn.Linear(3, 8); upper = new nn.Linear(8, 2) }
    const forward = (m: Two, { x, y }: InputTensors<typeof anyInputs>) => nn.mse(m.upper.fwd(relu(m.lower.fwd(x))), y)
    const make = (more: object, factory = () => new Two()) => compileModule(factory, forward, { sgd: { lr: 0.1 }, inputs: anyInputs, batch: 4, device, ...more })
    const frozenFactory = () => {
      const model = new Two()
      model.lower.freeze()
      return model
    }
    const [whole, byModule, byName] = [await make({}), await make({}, frozenFactory), await make({ frozen: 'lower.*' })]
    equal(byModule.ir.text, byName.ir.text, 'the IR: by module and by name')
    const contractions = (model: { ir: { text: string } }): number => (model.ir.text.match(/= contract/g) ?? []).length
    equal(contractions(whole), 5, 'contractions of the whole: two forward, one of the upper input, two of weights')
    equal(contractions(byModule), 3, 'those of a frozen lower part: two forward, one of the upper weights')
    check(byModule.kernelCount < whole.kernelCount, `${byModule.kernelCount} kernels, ${whole.kernelCount} of the whole`)
    for (const model of [byModule, byName]) {
      const before = await model.downloadParams()
      for (const rows of model === byName ? [4] : [4, 6, 4]) await model.step(batch(rows, rows))
      const after = await model.downloadParams(), grads = await model.downloadParamGrads()
      same(after['lower.W'] as Float32Array, before['lower.W'] as Float32Array, 'lower.W')
      check((after['upper.W'] as Float32Array).some((value, i) => value !== (before['upper.W'] as Float32Array)[i]), 'upper.W is trained')
      check((grads['lower.W'] as Float32Array).every((value) => value === 0), 'no gradient')
      const loss = (await model.run(batch(4, 1)))[0]
      await model.uploadParams({ 'lower.W': new Float32Array(24).fill(0.5) }, { partial: true })
      check((await model.run(batch(4, 1)))[0] !== loss, 'an upload is seen')
      const sibling = await model.compileForward((m, { x }) => m.lower.fwd(x), { inputs: { x: anyInputs.x } })
      equal((await sibling.run({ x: batch(3, 0).x })).length, 24, 'a sibling')
    }
    await refused(make({ frozen: ['lower.*', 'middle.*'] }), NotFoundError, /^compileModule: frozen "middle\.\*" matches no parameter \(parameters: lower\.W, lower\.b, upper\.W, upper\.b\)/)
    await refused(make({ frozen: '*' }), Error, /no unfrozen parameter to train/)
    await refused(make({ frozen: 3 }), ArgumentError, /^compileModule: frozen is 3, not a pattern/)
    await Promise.all([whole, byModule, byName].map((each) => each.destroy()))
  },
}
