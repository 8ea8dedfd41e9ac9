// The worker protocol from the page's end, against a worker that answers as the test wants: what is
// posted, in which order, and how calls end when something goes wrong.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  ArgumentError,
  capture,
  compileForward,
  compileModule,
  DeviceLostError,
  IndexError,
  Module,
  NotFiniteError,
  NotFoundError,
  ShapeError,
  StateError,
  sum,
  TensorgradError,
  trace,
  TraceError,
  WorkerError,
  nn,
  lr,
  Captures,
  InternalError,
  add,
  ones,
  type Tensor,
} from '../src/index.js'
import type { CaptureMessage, RequestKind } from '../src/protocol.js'
import { aGraph, FakePort, firstLine, posted, rejection, topFile, usePlatform, type Script } from './api-support.js'

class Model extends Module {
  l = new nn.Linear(2, 3)
}
const inputs = { x: { shape: [4, 2] }, y: { shape: [4, 3] } } as const
const loss = (m: Model, { x, y }: { x: Tensor; y: Tensor }) => nn.mse(capture('h', m.l.fwd(x)), y)
const batch = () => ({ x: new Float32Array(8).fill(1), y: new Float32Array(12).fill(2) })

async function compiled(script: Script = {}) {
  const port = new FakePort(script)
  usePlatform(() => port)
  const model = await compileModule(() => new Model(), loss, { adam: { lr: 0.1, b1: 0.8, weightDecay: 0.01 }, inputs, seed: 5 })
  return { port, model }
}
const kinds = (port: FakePort) => port.requests.map((request) => request.kind)
const later = <T>(value: T, ms = 5) => new Promise<T>((resolve) => setTimeout(() => resolve(value), ms))

// ---------------------------------------------------------------- what is posted

test('precision and lossScale are posted; the model has what the worker says is in use', async () => {
  const answers: Script = {
    createRuntime: () => ({ ...aGraph, precision: 'f16' }),
    recover: () => ({ device: 'b', deviceKind: 'webgpu', precision: 'f32' }),
  }
  const port = new FakePort(answers)
  usePlatform(() => port)
  const model = await compileModule(() => new Model(), loss, { inputs, precision: 'f16', lossScale: 1024 })
  const [request] = port.requests
  assert.ok(request?.kind === 'createRuntime')
  assert.deepEqual([request.precision, request.lossScale, model.precision], ['f16', 1024, 'f16'])
  await model.recover()
  assert.equal(model.precision, 'f32')
  const { port: other, model: plain } = await compiled()
  assert.ok(other.requests[0]?.kind === 'createRuntime')
  assert.deepEqual([other.requests[0].precision, other.requests[0].lossScale, plain.precision], ['f32', 0, 'f32'])
  const wrong = rejection(compileModule(() => new Model(), loss, { inputs, precision: 'f64' as 'f16' }))
  assert.match((await wrong).message, /^compileModule: the precision is the string "f64", not 'f32' or 'f16'/)
})

test('createRuntime carries the graph and plain options; the properties are synchronous', async () => {
  const { port, model } = await compiled()
  const [request] = port.requests
  assert.ok(request?.kind === 'createRuntime')
  assert.deepEqual([request.id, request.graph, request.training, request.seed, request.device], [1, 1, true, 5n, 'auto'])
  assert.deepEqual(request.optimizer, { kind: 'adam', lr: 0.1, beta1: 0.8, weightDecay: 0.01 })
  assert.equal(new TextDecoder().decode(request.bytes.subarray(0, 7)), 'TGGRAPH')
  assert.ok(request.module instanceof WebAssembly.Module)
  assert.deepEqual([model.kernelCount, model.dispatchCount, model.outputShape, model.paramNames], [3, 4, [], ['l.W', 'l.b']])
  assert.deepEqual([model.ir.text, model.device, model.outputDtype, model.paramShape('l.W')], ['the ir', 'cpu (fake)', 'f32', [2, 3]])
})

test('inputs are copied at the call: arrays can be changed and used again at once', async () => {
  const { port, model } = await compiled({ step: () => ({ loss: 1, captures: null }) })
  const { x, y } = batch()
  const first = model.step({ x, y })
  x.fill(7)
  const second = model.step({ x: x.subarray(0, 8), y })
  await Promise.all([first, second])
  const seen = port.requests.filter((request) => request.kind === 'step').map((request) => request.feeds.map((feed) => feed.data[0]))
  assert.deepEqual(seen, [
    [1, 2],
    [7, 2],
  ])
  assert.equal(x.length, 8)
  assert.equal(port.transfers.at(-1)?.length, 2) // the copies were transferred
})

test('shared memory is copied too', async () => {
  const { port, model } = await compiled({ step: () => ({ loss: 1, captures: null }) })
  await model.step({ x: new Float32Array(new SharedArrayBuffer(32)) as never, y: new Float32Array(12) })
  assert.equal(port.requests.at(-1)?.kind, 'step')
})

test('calls go out in order at once, and resolve in order with their own answers', async () => {
  let count = 0
  const { port, model } = await compiled({
    step: () => later({ loss: ++count, captures: null }),
    run: () => later({ output: new Float32Array([++count]), captures: null }, 1),
  })
  const order: string[] = []
  const note = (name: string) => (value: unknown) => void order.push(`${name} ${JSON.stringify(value)}`)
  await Promise.all([
    model.step(batch()).then(note('a')),
    model.run(batch()).then((out) => note('b')(out[0])),
    model.step(batch()).then(note('c')),
  ])
  assert.deepEqual(order, ['a 1', 'b 2', 'c 3'])
  assert.deepEqual(kinds(port), ['createRuntime', 'step', 'run', 'step'])
})

test('every method posts its request', async () => {
  const { port, model } = await compiled({
    downloadParams: () => [{ name: 'l.b', dtype: 'f32', data: new Float32Array(3) }],
    downloadParamGrads: () => [],
    recover: () => ({ device: 'webgpu (another)', deviceKind: 'webgpu', precision: 'f32' }),
    text: () => 'wgsl',
  })
  await model.uploadParams({ 'l.b': new Float32Array(3) }, { partial: true })
  assert.deepEqual(await model.downloadParams(), { 'l.b': new Float32Array(3) })
  assert.deepEqual(await model.downloadParamGrads(), {})
  await model.reset()
  await model.resetOptimizerState()
  await model.setLR(lr.linearDecay({ peak: 1, final: 0, steps: 10 }))
  await model.snapshot()
  await model.recover()
  assert.equal(model.device, 'webgpu (another)')
  assert.equal(await model.inspect('wgsl'), 'wgsl')
  const rest: RequestKind[] = [
    'uploadParams',
    'downloadParams',
    'downloadParamGrads',
    'reset',
    'resetOptimizer',
    'setLR',
    'snapshot',
    'recover',
    'text',
  ]
  assert.deepEqual(kinds(port).slice(1), rest)
  const schedule = port.requests.find((request) => request.kind === 'setLR')
  assert.deepEqual(schedule?.kind === 'setLR' && schedule.lr, { kind: 'linearDecay', peak: 1, final: 0, steps: 10 })
})

test('training is asked for in pieces, told of, and given back', async () => {
  const part = (step: number, losses: number[], isOver = false) => ({ step, losses: Float32Array.from(losses), isOver })
  const parts = [part(1, []), part(1, [3, 2]), part(3, [1], true)]
  const { port, model } = await compiled({ dataset: () => null, train: () => parts.shift() ?? part(0, [], true) })
  const told: number[][] = []
  const losses = await model.train({ data: batch(), steps: 3, seed: 7, onProgress: (step, loss) => void told.push([step, loss]) })
  assert.deepEqual(losses, Float32Array.of(3, 2, 1))
  assert.deepEqual(told, [[1, 3], [2, 2], [3, 1]])
  assert.deepEqual(kinds(port).slice(1), ['dataset', 'train', 'train', 'train', 'train', 'dataset'])
  const options = port.requests.flatMap((request) => (request.kind === 'train' ? [request.options] : []))
  assert.deepEqual(options, [
    { steps: 3, order: 'random', seed: 7n, stepsPerSubmission: 0, targetLoss: 0, patience: 0 }, null, null, 'end',
  ])
  const sets = port.requests.flatMap((request) => (request.kind === 'dataset' ? [request] : []))
  assert.equal(sets[0]?.dataset, sets[1]?.dataset)
  assert.equal(sets[1]?.arrays, null)
})

test('captures come as an object of their own', async () => {
  const h: CaptureMessage = { name: 'h', shape: [1, 2, 2], dtype: 'f32', data: new Float32Array([1, 2, 3, 4]) }
  const { port, model } = await compiled({ step: ({ withCaptures }) => ({ loss: 3, captures: withCaptures ? [h] : null }) })
  const { loss: value, captures } = await model.step(batch(), { withCaptures: true })
  assert.equal(value, 3)
  assert.deepEqual(
    [captures.names(), captures.has('h'), captures.has('g'), captures.shapeOf('h'), captures.dtypeOf('h')],
    [['h'], true, false, [1, 2, 2], 'f32'],
  )
  assert.deepEqual(captures.get('h'), new Float32Array([1, 2, 3, 4]))
  assert.deepEqual(nn.unsplitHeads(captures, 'h'), [new Float32Array([1, 2]), new Float32Array([3, 4])])
  for (const ask of [() => captures.get('g'), () => captures.shapeOf('g')]) {
    assert.throws(
      ask,
      (error) =>
        error instanceof NotFoundError &&
        error.message === 'captures: there is no "g" (captures: h)' &&
        topFile(error) === 'api-protocol.test.js',
    )
  }
  assert.equal(await model.step(batch()), 3)
  assert.ok(port.requests.at(-1)?.kind === 'step')
})

test('captures of a graph that has none', () => {
  assert.throws(
    () => new Captures([]).get('h'),
    /^NotFoundError: captures: there is no "h" \(captures: none: the graph captures nothing\)$/,
  )
})

// ---------------------------------------------------------------- refused on the page: nothing is posted

test('arguments of compile', async () => {
  usePlatform(() => assert.fail('no worker is wanted'))
  const bad = async (options: object, factory: unknown = () => new Model(), forward: unknown = loss) => {
    const error = await rejection(compileModule(factory as () => Model, forward as typeof loss, { inputs, ...options }))
    assert.ok(error instanceof ArgumentError, error.stack)
    assert.equal(topFile(error), 'api-protocol.test.js')
    return error.message
  }
  assert.equal(await bad({ seed: -1 }), 'compileModule: the seed is -1, not a whole number from 0 on')
  assert.equal(await bad({ seed: 0.5 }), 'compileModule: the seed is 0.5, not a whole number from 0 on')
  assert.equal(await bad({ device: 'gpu' }), `compileModule: the device is the string "gpu", not 'auto', 'cpu' or 'webgpu'`)
  assert.equal(await bad({ adam: { lr: 1 }, sgd: { lr: 1 } }), 'compile: adam and sgd are both given: choose one')
  assert.equal(await bad({ lion: { lr: 1 }, muon: { lr: 1 } }), 'compile: lion and muon are both given: choose one')
  const common = 'lr, weightDecay, decayFilter, groups, clipNorm, clipValue, normalize, skipNonFinite, accumulate, average'
  assert.equal(await bad({ adam: { lr: 1, beta1: 0.8 } }), `adam: there is no option beta1: did you mean b1? (options: ${common}, b1, b2, eps, epsMode)`)
  assert.equal(await bad({ adagrad: { lr: 1, momentum: 0.8 } }), `adagrad: there is no option momentum (options: ${common}, eps)`)
  assert.equal(await bad({ adam: { lr: 1, epsMode: 'pytorch' } }), `adam: epsMode is "pytorch", not 'uncorrected' or 'corrected'`)
  assert.equal(await bad({ sgd: { lr: 1, groups: { match: '*' } } }), 'sgd: groups is an Object, not an array')
  assert.equal(await bad({ sgd: { lr: 1, groups: [{}] } }), 'sgd: a group needs a string to match')
  assert.equal(
    await bad({ sgd: { lr: 1, groups: [{ match: 'W', lr: 2 }] } }),
    'sgd: a group: there is no option lr (options: match, rate, weightDecay, decay, frozen, plain)',
  )
  const still = 'sgd: group "W": rate must be over 0: what is not to be trained is frozen'
  assert.equal(await bad({ sgd: { lr: 1, groups: [{ match: 'W', rate: 0 }] } }), still)
  const both = 'sgd: group "W": decay is true and weightDecay 0'
  assert.equal(await bad({ sgd: { lr: 1, groups: [{ match: 'W', weightDecay: 0, decay: true }] } }), both)
  assert.equal(await bad({ adam: {} }), 'adam: lr is missing: a number or a schedule of lr.*')
  assert.equal(await bad({ sgd: { lr: { kind: 'sawtooth' } } }), 'sgd: lr is not a number or a schedule of lr.*')
  assert.equal(await bad({}, new Model()), 'compileModule: the factory is a Model, not a function that makes the model')
  assert.equal(await bad({}, () => new Model(), null), 'compileModule: forward is null, not a function')
  assert.equal(await bad({ inputs: { x: [4, 2] } }), 'compileModule: the input x is an Array, not { shape, dtype }')
  assert.equal(await bad({ inputs: { x: {} } }), 'compileModule: the shape of the input x is undefined, not an array of numbers')
  assert.equal(await bad({ inputs: { x: { shape: [4, 0.5] } } }), 'compileModule: the shape of the input x[1] is 0.5, not a whole number')
  assert.equal(
    await bad({ inputs: { x: { shape: [4], dtype: 'f64' } } }),
    `compileModule: the dtype of the input x is the string "f64", not 'f32', 'i32' or 'bool'`,
  )
  assert.equal(await bad({}, () => 3), 'the factory returned something that is no Module')
})

test('a forward function that throws, is async, or returns no tensor', async () => {
  usePlatform(() => assert.fail('no worker is wanted'))
  const own = new RangeError('my own')
  const compile = (forward: unknown) => rejection(compileModule(() => new Model(), forward as typeof loss, { inputs }))
  assert.equal(
    await compile(() => {
      throw own
    }),
    own,
  )
  const isAsync = await compile(async () => 3)
  assert.ok(isAsync instanceof TraceError)
  assert.equal(isAsync.message, 'trace: the forward function is async: it must return its tensor, not a promise of one')
  assert.equal((await compile(() => undefined)).message, 'trace: the forward function returned undefined, not a tensor')
  assert.equal((await compile(() => 3)).message, 'trace: the forward function returned the number 3, not a tensor')
  // and tracing is possible again
  trace(() => sum(add(1, ones([2]))))
})

test('compiling inside a forward function', async () => {
  let inner: Promise<Error> | undefined
  usePlatform()
  await compileModule(
    () => new Model(),
    (m, feeds) => {
      inner = rejection(compileModule(() => new Model(), loss, { inputs }))
      return loss(m, feeds)
    },
    { inputs },
  )
  const error = await (inner as Promise<Error>)
  assert.ok(error instanceof TraceError)
  assert.equal(error.message, 'trace: another trace is in progress: a forward function cannot trace or compile')
})

test('a shape error of the model: thrown at its line, no worker started', async () => {
  usePlatform(() => assert.fail('no worker is wanted'))
  const error = await rejection(
    compileModule(
      () => new Model(),
      (m, { x, y }) => nn.mse(m.l.fwd(y), x),
      { inputs },
    ),
  )
  assert.ok(error instanceof ShapeError)
  assert.match(firstLine(error), /^linear: inner dimensions differ: y\[4, 3\] x l\.W\[2, 3\] \(3 != 2\)$/)
  assert.equal(topFile(error), 'api-protocol.test.js')
})

test('arrays that are none', async () => {
  const { port, model } = await compiled()
  const posts = port.requests.length
  const bad = async (promise: Promise<unknown>) => {
    const error = await rejection(promise)
    assert.ok(error instanceof ArgumentError)
    return error.message
  }
  const types = 'not a Float32Array (f32), Int32Array (i32) or Uint8Array (bool)'
  assert.equal(await bad(model.step({ ...batch(), x: [1, 2] as never })), `step: the input x is an Array, ${types}`)
  assert.equal(await bad(model.run({ ...batch(), x: new Float64Array(8) as never })), `run: the input x is a Float64Array, ${types}`)
  assert.equal(await bad(model.step(null as never)), 'step: takes inputs by name, not null')
  assert.equal(await bad(model.uploadParams({ 'l.W': 3 as never })), 'uploadParams: the parameter l.W is the number 3, not a Float32Array')
  assert.equal(
    await bad(Promise.resolve().then(() => model.paramShape('W'))),
    'paramShape: there is no the string "W" (parameters: l.W, l.b)',
  )
  assert.equal(port.requests.length, posts)
})

test('setLR of what is no rate', async () => {
  const { port, model } = await compiled()
  for (const rate of [undefined, null, '0.1', {}, { kind: 'sawtooth' }]) {
    const error = await rejection(model.setLR(rate as never))
    assert.ok(error instanceof ArgumentError && topFile(error) === 'api-protocol.test.js')
    assert.equal(
      error.message,
      rate === undefined ? 'setLR: lr is missing: a number or a schedule of lr.*' : 'setLR: lr is not a number or a schedule of lr.*',
    )
  }
  assert.equal(port.requests.length, 1)
})

test('an undefined input is a missing one: the core says so', async () => {
  const { port, model } = await compiled({ step: () => ({ loss: 1, captures: null }) })
  await model.step({ ...batch(), y: undefined as never })
  const request = port.requests.at(-1)
  assert.deepEqual(request?.kind === 'step' && request.feeds.map((feed) => feed.name), ['x'])
})

// ---------------------------------------------------------------- errors of the worker

test('errors keep class, message and status, and begin with the frames of the call', async () => {
  const { model } = await compiled({
    step: () => {
      throw posted('IndexError', 'step: embedding: index 9 is not in 0 .. 3', 7)
    },
  })
  const error = await rejection(model.step(batch()))
  assert.ok(error instanceof IndexError && error instanceof TensorgradError)
  assert.deepEqual([error.name, error.message, error.status], ['IndexError', 'step: embedding: index 9 is not in 0 .. 3', 7])
  assert.equal(topFile(error), 'api-protocol.test.js')
  assert.ok(!/worker\.js|src\//.test(error.stack ?? ''))
})

test('an error with a site begins there', async () => {
  const site = { file: 'model.ts', line: 12, column: 3 }
  const { model } = await compiled({
    compileForward: () => {
      throw posted('GradientError', 'no gradient', 9, { site })
    },
  })
  const error = await rejection(model.compileForward((m, { x }) => m.l.fwd(x), { inputs: { x: inputs.x } }))
  assert.match(error.stack ?? '', /^GradientError: no gradient\n {4}at model\.ts:12:3\n/)
  assert.ok(error instanceof TensorgradError && error.site?.line === 12)
})

test('an unknown error of the worker is a fault, and says where', async () => {
  const { model } = await compiled({
    step: () => {
      throw posted('TypeError', 'x is not a function', 0)
    },
  })
  const error = await rejection(model.step(batch()))
  assert.ok(error instanceof InternalError)
  assert.equal(error.message, 'TypeError in the worker: x is not a function')
  assert.match(error.stack ?? '', /worker\.js/)
})

test('a loss that is not finite: the error has the loss and the captures', async () => {
  const captures: CaptureMessage[] = [{ name: 'h', shape: [1], dtype: 'f32', data: new Float32Array([Infinity]) }]
  const { model } = await compiled({
    step: () => {
      throw posted('NotFiniteError', 'step 3: the loss is nan', 15, { loss: NaN, captures })
    },
  })
  const error = await rejection(model.step(batch(), { withCaptures: true }))
  assert.ok(error instanceof NotFiniteError && error.captures instanceof Captures)
  assert.ok(Number.isNaN(error.loss))
  assert.equal(error.captures.get('h')[0], Infinity)
})

test('a lost device rejects, and recovering posts', async () => {
  const { model } = await compiled({
    step: () => {
      throw posted('DeviceLostError', 'the GPU is lost', 13)
    },
    recover: () => ({ device: 'b', deviceKind: 'webgpu', precision: 'f32' }),
  })
  assert.ok((await rejection(model.step(batch()))) instanceof DeviceLostError)
  await model.recover()
  assert.equal(model.device, 'b')
})

test('compile errors of the worker end the worker', async () => {
  const port = new FakePort({
    createRuntime: () => {
      throw posted('GradientError', 'the loss is not rank 0', 9)
    },
  })
  usePlatform(() => port)
  const error = await rejection(
    compileModule(
      () => new Model(),
      (m, { x }) => m.l.fwd(x),
      { inputs },
    ),
  )
  assert.equal(error.name, 'GradientError')
  await later(0)
  assert.ok(port.terminated)
})

test('a worker that does not start', async () => {
  usePlatform(() => Promise.reject(new Error('blocked by the content security policy')))
  const error = await rejection(
    compileForward(
      () => new Model(),
      (m, { x }) => m.l.fwd(x),
      { inputs },
    ),
  )
  assert.ok(error instanceof WorkerError)
  assert.equal(error.message, 'compileForward: the worker does not start: blocked by the content security policy')
})

// ---------------------------------------------------------------- the end

test('destroy rejects what is in flight and what comes; twice is fine', async () => {
  const { port, model } = await compiled({ step: () => later({ loss: 1, captures: null }, 20) })
  const inFlight = [rejection(model.step(batch())), rejection(model.run(batch()))]
  const gone = model.destroy()
  const errors = await Promise.all(inFlight)
  assert.deepEqual(
    errors.map((error) => error.message),
    ['step: the model is destroyed', 'run: the model is destroyed'],
  )
  assert.ok(errors.every((error) => error instanceof StateError && topFile(error) === 'api-protocol.test.js'))
  await Promise.all([gone, model.destroy()])
  assert.ok(port.terminated && model.destroyed)
  assert.deepEqual(kinds(port), ['createRuntime', 'step', 'run', 'destroy'])
  for (const call of [
    model.step(batch()),
    model.downloadParams(),
    model.reset(),
    model.compileForward((m, { x }) => m.l.fwd(x), { inputs: { x: inputs.x } }),
  ]) {
    const error = await rejection(call)
    assert.ok(error instanceof StateError)
    assert.match(error.message, /^\w+: the model is destroyed$/)
  }
  assert.equal(model.kernelCount, 3)
})

test('destroying a parent takes its siblings along', async () => {
  const { model } = await compiled({ run: () => later({ output: new Float32Array(1), captures: null }, 20) })
  const sibling = await model.compileForward((m, { x }) => m.l.fwd(x), { inputs: { x: inputs.x } })
  const running = rejection(sibling.run({ x: batch().x }))
  await model.destroy()
  assert.equal((await running).message, 'run: the model is destroyed')
  assert.equal((await rejection(sibling.run({ x: batch().x }))).message, 'run: the model is destroyed')
  assert.ok(sibling.destroyed)
})

test('destroying a sibling leaves the parent', async () => {
  const { port, model } = await compiled({
    run: () => later({ output: new Float32Array(1), captures: null }),
    step: () => ({ loss: 1, captures: null }),
  })
  const sibling = await model.compileForward((m, { x }) => m.l.fwd(x), { inputs: { x: inputs.x } })
  const running = rejection(sibling.run({ x: batch().x }))
  await sibling.destroy()
  await sibling.destroy()
  assert.equal((await running).message, 'run: the model is destroyed')
  assert.equal((await rejection(sibling.run({ x: batch().x }))).message, 'run: the model is destroyed')
  assert.equal(await model.step(batch()), 1)
  const forward = port.requests.find((request) => request.kind === 'compileForward')
  assert.deepEqual([forward?.graph, forward?.kind === 'compileForward' && forward.parent], [2, 1])
  assert.equal(port.requests.filter((request) => request.kind === 'destroy').length, 1)
})

test('a crash rejects everything in flight, and everything after it', async () => {
  const { port, model } = await compiled({ step: () => later({ loss: 1, captures: null }, 50) })
  const calls = [rejection(model.step(batch())), rejection(model.downloadParams())]
  port.crash('out of memory')
  const errors = await Promise.all(calls)
  assert.deepEqual(
    errors.map((error) => error.message),
    ['step: the worker is gone: out of memory', 'downloadParams: the worker is gone: out of memory'],
  )
  assert.ok(errors.every((error) => error instanceof WorkerError))
  assert.ok((await rejection(model.step(batch()))) instanceof WorkerError)
  assert.ok(port.terminated)
  await model.destroy() // nothing is left to do
})

test('a crash while compiling', async () => {
  const port = new FakePort({ createRuntime: () => later(aGraph, 50) })
  usePlatform(() => port)
  const compiling = rejection(compileModule(() => new Model(), loss, { inputs }))
  while (port.requests.length === 0) await later(0, 1)
  port.crash('stack overflow')
  const error = await compiling
  assert.ok(error instanceof WorkerError)
  assert.equal(error.message, 'compileModule: the worker is gone: stack overflow')
})

test('a worker that never says goodbye is ended all the same', async () => {
  const { port, model } = await compiled({ destroy: () => new Promise(() => undefined) })
  await model.destroy()
  assert.ok(port.terminated)
})
