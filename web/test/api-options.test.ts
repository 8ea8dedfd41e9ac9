// Wrong options from a program without types: each is refused at the user's line, with its name,
// its value and the option that was probably meant.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import * as tg from '../src/index.js'
import { nearest } from '../src/options.js'
import { aGraph, FakePort, rejection, thrown, topFile, usePlatform } from './api-support.js'

const { nn, ArgumentError, TraceError } = tg
usePlatform()

class Model extends tg.Module {
  l = new nn.Linear(2, 3)
}
const inputs = { x: { shape: [4, 2] } } as const
const loss = (m: Model, { x }: { x: tg.Tensor }) => tg.sum(m.l.fwd(x))
const f = (name: string, ...shape: number[]) => tg.tensorInput(name, shape)
const i = (name: string, ...shape: number[]) => tg.tensorInput(name, shape, 'i32')
const compile = (options: object) => tg.compileModule(() => new Model(), loss as never, { inputs, ...options })
const compiled = () => compile({ sgd: { lr: 1 } })
const step = new Float32Array(8)

/** A call with those options, the start of what its messages begin with, names that are none (and
 *  the ones meant), values that are none. */
type Row = [what: string, call: (options: never) => unknown, mistakes: Record<string, string | null>, values: Record<string, [value: unknown, text: string]>]

const reduceMistakes = { keepdims: 'keepDims', keep_dims: 'keepDims', dtype: null }
const reduceValues: Row[3] = { keepDims: [1, '1, not true or false'] }
const convMistakes = { pad: 'padding', strides: 'stride', dilations: 'dilation', group: 'groups' }
const epsMistakes = { epsilon: 'eps', frozem: 'frozen', Eps: 'eps', affine: null }
const epsValues: Row[3] = { eps: [NaN, 'NaN, not a finite number over 0'], frozen: ['yes', '"yes", not true or false'] }
const x24 = () => f('x', 2, 4), image = () => f('x', 1, 2, 4, 4), row = () => f('x', 1, 2, 8)

const inTrace: Record<string, Row> = {
  ...Object.fromEntries((['sum', 'mean', 'max', 'min', 'prod'] as const).map((op) => [op, [op, (o) => tg[op](x24(), 0, o), reduceMistakes, reduceValues] as Row])),
  ...Object.fromEntries((['any', 'all'] as const).map((op) => [op, [op, (o) => tg[op](tg.less(x24(), 1), 0, o), reduceMistakes, reduceValues] as Row])),
  ...Object.fromEntries((['argmax', 'argmin'] as const).map((op) => [op, [op, (o) => tg[op](x24(), 0, o), reduceMistakes, reduceValues] as Row])),
  variance: ['variance', (o) => tg.variance(x24(), 0, o), { corection: 'correction', unbiased: null }, { correction: [-1, '-1, not a whole number from 0 on'] }],
  std: ['std', (o) => tg.std(x24(), 0, o), { ddof: null, keepdims: 'keepDims' }, { correction: ['1', '"1", not a whole number from 0 on'] }],
  norm: ['norm', (o) => tg.norm(x24(), 0, o), { order: 'ord', p: null }, { ord: [0, '0, not 1, 2 or Infinity'] }],
  cumsum: ['cumsum', (o) => tg.cumsum(x24(), 0, o), { reversed: 'reverse', exclude: 'exclusive' }, { reverse: [1, '1, not true or false'] }],
  cumprod: ['cumprod', (o) => tg.cumprod(x24(), 0, o), { Exclusive: 'exclusive' }, { exclusive: [null, 'null, not true or false'] }],
  sort: ['sort', (o) => tg.sort(x24(), 0, o), { desc: 'descending', ascending: 'descending' }, { descending: ['yes', '"yes", not true or false'] }],
  argsort: ['argsort', (o) => tg.argsort(x24(), 0, o), { descend: 'descending' }, { descending: [0, '0, not true or false'] }],
  rope: ['rope', (o) => tg.rope(x24(), o), { bass: 'base', position: 'positions', interleave: 'interleaved' }, { base: [0, '0, not a finite number over 0'], interleaved: [1, '1, not true or false'] }],
  conv1d: ['conv1d', (o) => tg.conv1d(row(), f('w', 3, 2, 3), o), { ...convMistakes, outputPadding: null }, {}],
  conv2d: ['conv2d', (o) => tg.conv2d(image(), f('w', 3, 2, 3, 3), o), { ...convMistakes, outputPadding: null }, {}],
  convTranspose1d: ['convTranspose1d', (o) => tg.convTranspose1d(row(), f('w', 2, 3, 3), o), { ...convMistakes, output_padding: 'outputPadding' }, {}],
  convTranspose2d: ['convTranspose2d', (o) => tg.convTranspose2d(image(), f('w', 2, 3, 3, 3), o), { ...convMistakes, output_padding: 'outputPadding' }, {}],
  maxPool1d: ['maxPool1d', (o) => tg.maxPool1d(row(), 2, o), { ceil: 'ceilMode', excludePadding: null }, { ceilMode: [1, '1, not true or false'] }],
  maxPool2d: ['maxPool2d', (o) => tg.maxPool2d(image(), 2, o), { pad: 'padding', excludePadding: null }, { ceilMode: [1, '1, not true or false'] }],
  avgPool1d: ['avgPool1d', (o) => tg.avgPool1d(row(), 2, o), { exclude_padding: 'excludePadding' }, { excludePadding: [1, '1, not true or false'] }],
  avgPool2d: ['avgPool2d', (o) => tg.avgPool2d(image(), 2, o), { countIncludePad: null }, { excludePadding: [1, '1, not true or false'] }],
  upsampleNearest: ['upsampleNearest', (o) => tg.upsampleNearest(image(), o), { factors: 'factor', alignCorners: null }, {}],
  upsampleBilinear: ['upsampleBilinear', (o) => tg.upsampleBilinear(image(), o), { align_corners: 'alignCorners' }, { alignCorners: [1, '1, not true or false'] }],
  crossEntropy: ['crossEntropy', (o) => nn.crossEntropy(x24(), i('t', 2), o), { label_smoothing: 'labelSmoothing', ignoreIndex: 'ignore' }, { labelSmoothing: [1, '1, not a number from 0 to below 1'], ignore: [0.5, '0.5, not a whole number'] }],
  nll: ['nll', (o) => nn.nll(x24(), i('t', 2), o), { reduce: 'reduction' }, { reduction: ['avg', `"avg", not 'mean', 'sum' or 'none'`] }],
  mse: ['mse', (o) => nn.mse(x24(), f('y', 2, 4), o), { reductions: 'reduction' }, { reduction: [null, `null, not 'mean', 'sum' or 'none'`] }],
  l1: ['l1', (o) => nn.l1(x24(), f('y', 2, 4), o), { delta: null }, { reduction: [0, `0, not 'mean', 'sum' or 'none'`] }],
  huber: ['huber', (o) => nn.huber(x24(), f('y', 2, 4), o), { Delta: 'delta' }, { delta: [NaN, 'NaN, not a finite number over 0'] }],
  bceWithLogits: ['bceWithLogits', (o) => nn.bceWithLogits(x24(), f('y', 2, 4), o), { posWeight: 'positiveWeight' }, {}],
  klDiv: ['klDiv', (o) => nn.klDiv(x24(), f('y', 2, 4), o), { log_target: 'logTarget' }, { logTarget: [1, '1, not true or false'] }],
  attend: ['attention', (o) => nn.attend(f('q', 1, 2, 3, 4), f('k', 1, 2, 3, 4), f('v', 1, 2, 3, 4), o), { isCausal: 'causal' }, { causal: [1, '1, not true or false'] }],
  attentionWeights: ['attention', (o) => nn.attentionWeights(f('q', 1, 2, 3, 4), f('k', 1, 2, 3, 4), o), { isCausal: 'causal' }, { causal: [1, '1, not true or false'] }],
  'init.randn': ['init.randn', (o) => tg.init.randn(o), { std: null, scales: 'scale' }, { scale: [NaN, 'NaN, not a finite number from 0 on'] }],
  'init.kaiming': ['init.kaiming', (o) => tg.init.kaiming(o), { gains: 'gain', scale: null }, { gain: ['2', '"2", not a finite number from 0 on'] }],
  'init.uniform': ['init.uniform', (o: object) => tg.init.uniform({ bound: 1, ...o }), { bounds: 'bound', low: null }, { bound: [-1, '-1, not a finite number from 0 on'] }],
  'an initial value': ['param: the initial value', (o: object) => tg.paramInput('w', [2], { init: { kind: 'randn', ...o } }), { std: null, gain: null, scales: 'scale' }, { scale: [-1, '-1, not a finite number from 0 on'] }],
  paramInput: ['param', (o) => tg.paramInput('w', [2], o), { initial: 'init', frozn: 'frozen', weightDecay: null }, { frozen: ['yes', '"yes", not true or false'], decay: [0, '0, not true or false'] }],
}

class Declares extends tg.Module {
  declare(options: never) { return this.param([2], options) }
  keep(options: never) { return this.state([2], options) }
}
const layerMistakes = { biass: 'bias', frozn: 'frozen', initial: 'init', init_: 'init', activation: null }
const layerValues: Row[3] = { bias: [0, '0, not true or false'], frozen: [1, '1, not true or false'] }
const layers: Record<string, Row> = {
  Linear: ['linear', (o) => new nn.Linear(2, 3, o), layerMistakes, layerValues],
  Embedding: ['embedding', (o) => new nn.Embedding(2, 3, o), { initial: 'init', bias: null }, {}],
  Conv1d: ['conv1d', (o) => new nn.Conv1d(2, 3, 3, o), { ...convMistakes, biass: 'bias', outputPadding: null }, { ...layerValues, groups: [0, '0, not a whole number from 1 on'] }],
  Conv2d: ['conv2d', (o) => new nn.Conv2d(2, 3, 3, o), { ...convMistakes, biass: 'bias', outputPadding: null }, layerValues],
  ConvTranspose2d: ['convTranspose2d', (o) => new nn.ConvTranspose2d(2, 3, 3, o), { ...convMistakes, output_padding: 'outputPadding' }, layerValues],
  LayerNorm: ['layerNorm', (o) => new nn.LayerNorm(3, o), epsMistakes, epsValues],
  RMSNorm: ['rmsNorm', (o) => new nn.RMSNorm(3, o), epsMistakes, epsValues],
  GroupNorm: ['groupNorm', (o) => new nn.GroupNorm(1, 3, o), epsMistakes, epsValues],
  BatchNorm: ['batchNorm', (o) => new nn.BatchNorm(3, o), { ...epsMistakes, momentun: 'momentum' }, { ...epsValues, momentum: [0, '0, not a number over 0, up to 1'] }],
  RNN: ['rnn', (o) => new nn.RNN(2, 3, o), { activations: 'activation', biass: 'bias' }, { activation: ['gelu', `"gelu", not 'tanh' or 'relu'`] }],
  GRU: ['gru', (o) => new nn.GRU(2, 3, o), layerMistakes, layerValues],
  LSTM: ['lstm', (o) => new nn.LSTM(2, 3, o), layerMistakes, layerValues],
  Attention: ['attention', (o) => new nn.Attention(8, 2, o), { kv_heads: 'kvHeads', rope: 'ropeBase', dropout: null }, { kvHeads: [0.5, '0.5, not a whole number from 1 on'], ropeBase: [0, '0, not a finite number over 0'] }],
  MLP: ['mlp', (o) => new nn.MLP([2, 3], o), { biass: 'bias', activate_last: 'activateLast' }, { activation: ['relu', '"relu", not a function'] }],
  param: ['param', (o) => new Declares().declare(o), { initial: 'init', frozem: 'frozen', trainable: null }, { decay: ['no', '"no", not true or false'] }],
  state: ['state', (o) => new Declares().keep(o), { initial: 'init', value: null }, { init: [NaN, 'NaN, not a finite number'] }],
}

const ofOptimizers = { beta1: 'b1', learningRate: 'lr', learning_rate: 'lr', weight_decay: 'weightDecay', clip_norm: 'clipNorm', amsgrad: null }
const optimizers = Object.fromEntries((['sgd', 'adam', 'adamw', 'lion', 'rmsprop', 'adagrad', 'muon'] as const).map((kind): [string, Row] => {
  const hasBetas = ['adam', 'adamw', 'lion', 'muon'].includes(kind)
  const { beta1, ...rest } = ofOptimizers
  return [kind, [kind, (o: object) => compile({ [kind]: { lr: 0.1, ...o } }), { ...rest, ...(hasBetas ? { beta1 } : {}) }, {
    weightDecay: [-0.1, '-0.1, not a finite number from 0 on'],
    clipNorm: [NaN, 'NaN, not a finite number from 0 on'],
    clipValue: [Infinity, 'Infinity, not a finite number from 0 on'],
    normalize: [1, '1, not true or false'],
    accumulate: [0, '0, not a whole number from 1 on'],
    average: [0, '0, not a number over 0 and below 1'],
    groups: [{}, 'an Object, not an array'],
    decayFilter: ['b', '"b", not a function'],
    ...(hasBetas ? { b1: [1, '1, not a number from 0 to below 1'], b2: ['0.9', '"0.9", not a number from 0 to below 1'] } : {}),
  }]]
}))

const runtime = { Device: 'device', seeds: 'seed', fusion: 'noFusion', adaptor: 'adapter', loss_scale: 'lossScale', input: 'inputs' }
const runtimeValues: Row[3] = {
  noFusion: [1, '1, not true or false'],
  adapter: [0, '0, not a string'],
  lossScale: [3, '3, not a power of two from 1 to 2^24'],
  inputs: [[2], 'an Array, not an object'],
}
const graph = () => tg.trace(() => tg.sum(tg.paramInput('w', [2])))
const calls: Record<string, Row> = {
  ...optimizers,
  compileModule: ['compileModule', (o) => compile(o), { ...runtime, adma: 'adam', SGD: 'sgd', frozem: 'frozen', batchSize: 'batch', epochs: null }, runtimeValues],
  compileForward: ['compileForward', (o: object) => tg.compileForward(() => new Model(), loss as never, { inputs, ...o }), { ...runtime, adam: null }, runtimeValues],
  compileGraph: ['compileGraph', (o) => tg.compileGraph(graph(), o), { Device: 'device', inputs: null, train: 'training' }, { training: [1, '1, not true or false'] }],
  'an input': ['compileModule: the input x', (o: object) => compile({ inputs: { x: { shape: [4, 2], ...o } } }), { dtyp: 'dtype', type: 'dtype', shapes: 'shape' }, {}],
  'a group': ['sgd: a group', (o: object) => compile({ sgd: { lr: 1, groups: [{ match: '*', ...o }] } }), { lr: null, weight_decay: 'weightDecay', matches: 'match' }, { rate: [NaN, 'NaN, not a finite number from 0 on'], frozen: [1, '1, not true or false'] }],
  step: ['step', async (o) => (await compiled()).step({ x: step }, o), { withCapture: 'withCaptures', captures: 'withCaptures' }, { withCaptures: [1, '1, not true or false'] }],
  run: ['run', async (o) => (await compiled()).run({ x: step }, o), { withCapture: 'withCaptures' }, { withCaptures: ['yes', '"yes", not true or false'] }],
  profile: ['profile', async (o) => (await compiled()).profile({ x: step }, o), { step: 'steps' }, { steps: [0, '0, not a whole number from 1 on'] }],
  uploadParams: ['uploadParams', async (o) => (await compiled()).uploadParams({}, o), { partially: 'partial' }, { partial: [1, '1, not true or false'] }],
  downloadParams: ['downloadParams', async (o) => (await compiled()).downloadParams(o), { averages: 'average' }, { average: [1, '1, not true or false'] }],
  train: ['train', async (o: object) => (await compiled()).train({ data: { x: step }, steps: 1, ...o }), { batchSize: 'batch', step: 'steps', epochs: null, onprogress: 'onProgress', target_loss: 'targetLoss' }, { onProgress: [1, '1, not a function'], signal: [true, 'true, not an AbortSignal'] }],
  dataset: ['dataset', async (o) => (await compiled()).dataset({ x: step }, o), { batchSize: 'batch' }, {}],
  'model.compileForward': ['compileForward', async (o: object) => (await compiled()).compileForward(loss as never, { inputs, ...o }), { device: null, averages: 'average' }, { average: [1, '1, not true or false'] }],
  'model.compileGraph': ['compileGraph', async (o) => (await compiled()).compileGraph(graph(), o), { seed: null, Average: 'average' }, { average: [1, '1, not true or false'] }],
  replaceModel: ['replaceModel', (o) => tg.replaceModel(null, compiled, o), { carryParams: 'carry' }, { carry: [1, '1, not true or false'] }],
  compileToIR: ['compileToIR', async (o) => tg.compileToIR(graph(), o), { train: 'training', adma: 'adam' }, { training: [1, '1, not true or false'] }],
  planBuffers: ['planBuffers', async (o) => tg.planBuffers(graph(), o), { train: 'training' }, { training: [1, '1, not true or false'] }],
  emitKernels: ['emitKernels', async (o) => tg.emitKernels(graph(), o), { train: 'training' }, { training: [1, '1, not true or false'] }],
  materializeParams: ['materializeParams', async (o) => tg.trace(() => tg.sum(tg.materializeParams(new Model(), o).tensors['l.W']!)), { decay: 'decayFilter', frozn: 'frozen' }, { decayFilter: [1, '1, not a function'] }],
  appendOptimizer: ['appendOptimizer', async (o: object) => tg.appendOptimizer(graph(), { sgd: { lr: 1 }, ...o }), { adma: 'adam', optimizer: null }, {}],
  appendAdam: ['adam', async (o: object) => tg.appendAdam(graph(), { lr: 0.1, ...o }), { beta1: 'b1' }, { eps: [NaN, 'NaN, not a finite number from 0 on'] }],
  appendSGD: ['sgd', async (o: object) => tg.appendSGD(graph(), { lr: 0.1, ...o }), { momentun: 'momentum' }, { momentum: [1, '1, not a number from 0 to below 1'] }],
}

/** What a call with each mistake throws or rejects with. */
async function refusals([what, call, mistakes, values]: Row, fails: (call: () => unknown) => Error | Promise<Error>): Promise<void> {
  for (const [name, meant] of Object.entries(mistakes)) {
    const error = await fails(() => call({ [name]: true } as never))
    assert.ok(error instanceof ArgumentError, `${what} ${name}: ${error.stack}`)
    const start = `${what}: there is no option ${name}${meant === null ? ' (' : `: did you mean ${meant}? (`}options: `
    assert.ok(error.message.startsWith(start), `${error.message}\n wanted ${start}`)
    assert.equal(topFile(error), 'api-options.test.js', error.stack)
    await call({ [name]: undefined } as never) // harmless
  }
  for (const [name, [value, text]] of Object.entries(values)) {
    const error = await fails(() => call({ [name]: value } as never))
    assert.ok(error instanceof ArgumentError, `${what} ${name}: ${error.stack}`)
    assert.equal(error.message, `${what}: ${name} is ${text}`)
    assert.equal(topFile(error), 'api-options.test.js', error.stack)
  }
}
const traced = (call: () => unknown) => thrown(() => tg.trace(() => (call(), tg.zeros([]))))

/** Calls in a trace: the harmless ones too. */
function inTraces([what, call, mistakes, values]: Row): Row {
  return [what, (options) => tg.trace(() => (call(options), tg.zeros([]))), mistakes, values]
}
for (const [name, row] of Object.entries(inTrace)) test(`options of ${name}`, () => refusals(inTraces(row), thrown))
for (const [name, row] of Object.entries(layers)) test(`options of ${name}`, () => refusals(row, thrown))
for (const [name, row] of Object.entries(calls))
  test(`options of ${name}`, async () => {
    usePlatform(() => new FakePort({ step: () => ({ loss: 0, captures: null }), run: () => ({ output: step, captures: null }), profile: () => ({ launches: [] }), train: () => ({ step: 1, losses: new Float32Array(1), isOver: true }), text: () => '', downloadParams: () => [], compileForward: () => aGraph }))
    await refusals(row, (call) => rejection(Promise.resolve().then(call)))
  })

test('every operation and layer with options is in the tables above', () => {
  const tables = new Set([...Object.keys(inTrace), ...Object.keys(layers)])
  const without = new Set(['Dropout', 'Sequential', 'splitHeads', 'mergeHeads', 'unsplitHeads', 'attentionValues', 'crossEntropyLast'])
  for (const name of Object.keys(nn)) assert.ok(tables.has(name) || without.has(name), `nn.${name} is in no table`)
})

test('options that are no object', () => {
  for (const [options, text] of [[3, 'the number 3'], [null, 'null'], [false, 'the boolean false'], [[1], 'an Array'], ['x', 'the string "x"'], [() => 1, 'a function']] as const) {
    assert.equal(thrown(() => new nn.Linear(2, 3, options as never)).message, `linear: the options are ${text}`)
    assert.equal(traced(() => tg.sum(x24(), 0, options as never)).message, `sum: the options are ${text}`)
    assert.equal(traced(() => tg.rope(x24(), options as never)).message, `rope: the options are ${text}`)
    assert.equal(traced(() => tg.conv2d(image(), f('w', 3, 2, 3, 3), options as never)).message, `conv2d: the options are ${text}`)
    assert.equal(traced(() => tg.maxPool2d(image(), 2, options as never)).message, `maxPool2d: the options are ${text}`)
  }
  assert.equal(traced(() => tg.sum(x24(), 0, f('y', 2) as never)).message, 'sum: the options are a Tensor')
})

test('options may come from a prototype, and be frozen', () => {
  const base = { bias: false }
  const inherits = Object.create(base) as { bias: boolean }
  assert.equal(new nn.Linear(2, 3, inherits).b, null)
  assert.equal(new nn.MLP([2, 3], inherits)[0 as never]['b' as never], null)
  assert.equal(new nn.Conv2d(2, 3, 3, Object.freeze({ bias: false, stride: 2 })).b, null)
  class Options { get keepDims() { return true } }
  assert.deepEqual(tg.trace(() => tg.sum(x24(), 0, new Options())).result.shape, [1, 4])
})

test('an optimizer that is not where it belongs', async () => {
  for (const name of ['optimizer', 'lr', 'learningRate'])
    assert.match((await rejection(compile({ [name]: 0.1 }))).message,
      new RegExp(`^compileModule: there is no option ${name}: the optimizer goes by its name: \\{ adam: \\{ lr: 0.001 \\} \\}`))
  assert.equal((await rejection(compile({ sgd: { lr: 0.1, nesterov: true } }))).message, 'sgd: nesterov needs a momentum over 0')
  assert.equal((await rejection(compile({ sgd: { lr: 0.1, nesterov: true, momentum: 0 } }))).message, 'sgd: nesterov needs a momentum over 0')
})

test('batch and maxSizes need an input with a null axis', async () => {
  assert.equal((await rejection(compile({ batch: 4 }))).message, 'compileModule: batch is for inputs with a null axis, and there is none')
  assert.equal((await rejection(compile({ maxSizes: 4 }))).message, 'compileModule: maxSizes is for inputs with a null axis, and there is none')
  usePlatform()
  await compile({ inputs: { x: { shape: [null, 2] } }, batch: 4, maxSizes: 1 })
})

test('sizes of layers: whole numbers from 1 on, said at the line that makes the layer', () => {
  const bad = [undefined, null, NaN, Infinity, 0, -1, 1.5, '3', true, [2], {}, () => 1, 10n, Symbol('s')]
  const said = (value: unknown): string => (typeof value === 'string' ? '"3"' : Array.isArray(value) ? 'an Array' : typeof value === 'object' && value !== null ? 'an Object' : typeof value === 'function' ? 'a function' : String(value))
  type Make = new (...sizes: never[]) => unknown
  const sizes: [layer: string, op: string, args: unknown[], names: string[]][] = [
    ['Linear', 'linear', [2, 3], ['inDim', 'outDim']], ['Embedding', 'embedding', [2, 3], ['vocab', 'dim']], ['LayerNorm', 'layerNorm', [3], ['d']],
    ['RMSNorm', 'rmsNorm', [3], ['d']], ['GroupNorm', 'groupNorm', [1, 3], ['groups', 'channels']], ['BatchNorm', 'batchNorm', [3], ['channels']],
    ['Conv1d', 'conv1d', [2, 3, 3], ['inDim', 'outDim']], ['Conv2d', 'conv2d', [2, 3, 3], ['inDim', 'outDim']],
    ['ConvTranspose2d', 'convTranspose2d', [2, 3, 3], ['inDim', 'outDim']], ['RNN', 'rnn', [2, 3], ['inDim', 'hidden']],
    ['GRU', 'gru', [2, 3], ['inDim', 'hidden']], ['LSTM', 'lstm', [2, 3], ['inDim', 'hidden']], ['Attention', 'attention', [4, 2], ['dim', 'heads']],
  ]
  for (const [layer, op, args, names] of sizes) {
    const Layer = nn[layer as 'Linear'] as unknown as Make
    assert.ok(new Layer(...(args as never[])))
    for (const [i, name] of names.entries())
      for (const value of bad) {
        const error = thrown(() => new Layer(...(args.map((each, j) => (i === j ? value : each)) as never[])))
        assert.ok(error instanceof ArgumentError && topFile(error) === 'api-options.test.js', `${layer} ${name}: ${error.stack}`)
        assert.equal(error.message, `${op}: ${name} is ${said(value)}, not a whole number from 1 on`)
      }
  }
  const kernels: [make: (kernel: never) => unknown, op: string][] = [
    [(k) => new nn.Conv1d(2, 3, k), 'conv1d'], [(k) => new nn.Conv2d(2, 3, k), 'conv2d'], [(k) => new nn.ConvTranspose2d(2, 3, k), 'convTranspose2d'],
  ]
  for (const [make, op] of kernels)
    for (const value of [...bad, [], [1, 2, 3], [1, NaN], [1, undefined], [null, 1]]) {
      if (op === 'conv1d' && Array.isArray(value) && value.length === 1) continue // a kernel
      const error = thrown(() => make(value as never))
      assert.ok(error instanceof ArgumentError && topFile(error) === 'api-options.test.js', `${op}: ${error.stack}`)
      assert.ok(error.message.startsWith(`${op}: the kernel `), error.message)
    }
  assert.equal(thrown(() => new nn.Conv2d(3, 4, 3, { groups: 2 })).message, 'conv2d: 3 and 4 channels do not divide into 2 groups')
  assert.equal(thrown(() => new nn.Conv2d(4, 4, 3, { stride: 0 })).message, 'conv2d: the stride needs to be at least 1, not 0')
  assert.equal(thrown(() => new nn.Dropout(NaN)).message, 'dropout: p is NaN, not a number from 0 to below 1')
  assert.equal(thrown(() => new nn.MLP([2, '3'] as never)).message, 'linear: outDim is "3", not a whole number from 1 on')
})

test('shapes of parameters and names of leaves', () => {
  class Bad extends tg.Module {
    make(shape: unknown) { return this.param(shape as never) }
    keep(shape: unknown) { return this.state(shape as never) }
  }
  for (const [shape, text] of [[['3'], 'shape[0] is the string "3", not a whole number'], [[2, true], 'shape[1] is the boolean true, not a whole number'], [[undefined], 'shape[0] is undefined, not a whole number'], [null, 'shape is null, not an array of numbers']] as const) {
    assert.equal(thrown(() => new Bad().make(shape)).message, `param: ${text}`)
    assert.equal(thrown(() => new Bad().keep(shape)).message, `state: ${text}`)
  }
  for (const name of [undefined, null, 3, {}, Symbol('s')] as unknown as string[])
    for (const [op, make] of Object.entries({ param: tg.paramInput, input: tg.tensorInput, state: tg.stateInput, capture: (n: string) => tg.capture(n, x24()) })) {
      const error = traced(() => make(name, [2]))
      assert.ok(error instanceof ArgumentError && topFile(error) === 'api-options.test.js', `${op}: ${error.stack}`)
      assert.match(error.message, new RegExp(`^${op}: the name is .*, not a string$`))
    }
})

test('the open IR: what is no graph, no function, no gradients, no options', async () => {
  const none = [undefined, null, NaN, 0, 'x', true, {}, [], Symbol('s')] as never[]
  for (const value of none) {
    const calls: Record<string, () => unknown> = {
      trace: () => tg.trace(value), traceInto: () => tg.traceInto(value, () => undefined), 'traceInto ': () => tg.traceInto(graph(), value),
      emitKernels: () => tg.emitKernels(value), planBuffers: () => tg.planBuffers(value), compileToIR: () => tg.compileToIR(value), appendGrad: () => tg.appendGrad(value),
      appendAdam: () => tg.appendAdam(value, { lr: 0.1 }), 'appendAdam ': () => tg.appendAdam(graph(), value, {}, { lr: 0.1 }), appendSGD: () => tg.appendSGD(value, { lr: 0.1 }),
      appendOptimizer: () => tg.appendOptimizer(value, { sgd: { lr: 1 } }), unsplitHeads: () => nn.unsplitHeads(value, 'w'), compileGraph: () => tg.compileGraph(value),
    }
    for (const [name, call] of Object.entries(calls)) {
      if (name === 'appendAdam ' && typeof value === 'object' && value !== null && !Array.isArray(value)) continue // no gradients are some
      const error = await rejection(Promise.resolve().then(call))
      assert.ok(error instanceof tg.TensorgradError && topFile(error) === 'api-options.test.js', `${name}(${String(value)}): ${error.stack}`)
    }
  }
  assert.equal(thrown(() => tg.appendSGD(graph(), undefined as never)).message, 'sgd: the options are undefined')
  assert.equal(thrown(() => tg.appendSGD(graph(), null as never)).message, 'sgd: the options are null')
  assert.equal(thrown(() => tg.appendAdam(graph(), { skipNonFinite: true } as never, {}, { lr: 1, skipNonFinite: true })).message,
    "appendAdam: skipNonFinite is for an optimizer of the compiler's own: change the gradients instead")
})

test('the class in place of the factory, memory that is gone, numbers that are none', async () => {
  usePlatform()
  assert.equal((await rejection(tg.compileModule(Model as never, loss as never, { inputs }))).message, 'compileModule: the factory is the class Model itself: give a function that makes one: () => new Model()')
  const gone = new Float32Array(8), model = await compiled()
  structuredClone(gone, { transfer: [gone.buffer] })
  for (const call of [model.step({ x: gone }), model.run({ x: gone }), model.train({ data: { x: gone }, steps: 1 }), model.uploadParams({ 'l.W': gone }, { partial: true })]) {
    const error = await rejection(call)
    assert.ok(error instanceof ArgumentError && topFile(error) === 'api-options.test.js', error.stack)
    assert.match(error.message, /the Float32Array has no memory any more: it was transferred elsewhere$/)
  }
  assert.equal((await rejection(compile({ seed: {} }))).message, 'compileModule: the seed is an Object, not a whole number from 0 on')
  assert.equal((await rejection(compile({ lossScale: true }))).message, 'compileModule: lossScale is true, not a power of two from 1 to 2^24')
  assert.equal((await rejection(compile({ frozen: null }))).message, 'compileModule: frozen is null, not a pattern for names of parameters, or an array of them')
  assert.equal((await rejection(model.train({ data: { x: step }, steps: 1, targetLoss: NaN }))).message, 'train: targetLoss is NaN: no loss is below it')
  assert.equal((await rejection(model.train({ data: { x: step }, steps: 1, inputs: null as never }))).message, 'train: inputs is null, not an object')
})

test('what models, data sets, captures and graphs look like in texts and on the console', async () => {
  usePlatform(() => new FakePort({ step: () => ({ loss: 0, captures: [{ name: 'h', dtype: 'f32', shape: [2, 3], data: new Float32Array(6) }] }) }))
  const model = await compiled(), { captures } = await model.step({ x: step }, { withCaptures: true })
  const looks = (object: object, text: string) => assert.deepEqual([String(object), inspect(object)], [text, text])
  looks(model, 'CompiledModule on cpu (fake): 2 parameters, 3 kernels')
  looks(await model.compileForward(loss as never, { inputs }), 'CompiledForward on cpu (fake): 2 parameters, 3 kernels')
  looks(captures, 'Captures (h f32[2, 3])')
  looks(await model.dataset({ x: step }), 'Dataset')
  looks(tg.trace(() => tg.mul(tg.paramInput('w', []), 2)), 'Graph of 3 operations (parameters: w)')
  await model.destroy()
  looks(model, 'CompiledModule on cpu (fake): 2 parameters, 3 kernels, destroyed')
})

test('after the end each call is named as it was called', async () => {
  usePlatform()
  const model = await compiled()
  await model.destroy()
  const said = async (call: Promise<unknown>) => (await rejection(call)).message
  assert.equal(await said(model.train({ data: { x: step }, steps: 1 })), 'train: the model is destroyed')
  assert.equal(await said(model.dataset({ x: step })), 'dataset: the model is destroyed')
  assert.equal(await said(model.compileGraph(graph())), 'compileGraph: the model is destroyed')
})

test('inspect', async () => {
  usePlatform()
  const model = await compiled()
  const error = await rejection(model.inspect('nonsense' as never))
  assert.equal(error.message, `inspect: takes 'ir', 'kernels', 'plan', 'dot', 'c' or 'wgsl', not the string "nonsense"`)
  assert.ok(error instanceof ArgumentError && topFile(error) === 'api-options.test.js')
})

test('freeze: where the model is made, and not in its forward function', async () => {
  usePlatform()
  class Frozen extends tg.Module {
    l = new nn.Linear(2, 3).freeze()
    w = this.param([3])
  }
  const port = new FakePort()
  usePlatform(() => port)
  await tg.compileModule(() => new Frozen(), (m, { x }) => tg.sum(tg.add(m.l.fwd(x), m.w)), { inputs, sgd: { lr: 1 } })
  const error = await rejection(tg.compileModule(() => new Frozen(), (m, { x }) => (m.l.freeze(), tg.sum(m.l.fwd(x))), { inputs }))
  assert.ok(error instanceof TraceError && topFile(error) === 'api-options.test.js', error.stack)
  assert.equal(error.message, 'freeze: inside the forward function it comes too late: call it where the model is made')
  assert.equal(thrown(() => new Frozen().freeze(1 as never)).message, 'freeze: frozen is 1, not true or false')
})

test('numbers beside tensors', () => {
  const bad = (body: () => unknown) => traced(body).message
  assert.equal(bad(() => tg.leakyRelu(x24(), '0.1' as never)), 'leakyRelu: the slope is the string "0.1", not a number')
  assert.equal(bad(() => tg.elu(x24(), null as never)), 'elu: alpha is null, not a number')
  assert.equal(bad(() => tg.clamp(x24(), 0, undefined as never)), 'clamp: hi is undefined, not a number')
  assert.equal(bad(() => tg.pad(x24(), [[0, 1], [0, 1]], '0' as never)), 'pad: the value is the string "0", not a number')
  assert.equal(bad(() => tg.whereCausal(f('x', 2, 2), {} as never)), 'whereCausal: the fill is an Object, not a number')
  assert.equal(bad(() => tg.full([2], '1' as never)), 'full: the value is the string "1", not a number')
  assert.equal(bad(() => tg.dropout(x24(), [0.5] as never)), 'dropout: p is an Array, not a number')
})

test('the nearest name', () => {
  const names = ['lr', 'b1', 'b2', 'eps', 'weightDecay', 'momentum', 'keepDims', 'withCaptures']
  for (const [name, meant] of [['LR', 'lr'], ['beta2', 'b2'], ['weight-decay', 'weightDecay'], ['momentm', 'momentum'], ['keepdim', 'keepDims'], ['foo', null], ['', null], ['x', null]] as const)
    assert.equal(nearest(name, names), meant, name)
})
