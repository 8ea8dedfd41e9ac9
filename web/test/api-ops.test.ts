// Operations: the shape and dtype of each result, and each mistake, thrown at the user's line with
// the core's message.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import * as tg from '../src/index.js'
import {
  ArgumentError,
  DuplicateError,
  GradientError,
  LimitError,
  Module,
  nn,
  ShapeError,
  tensorInput,
  trace,
  TraceError,
  type Tensor,
} from '../src/index.js'
import { firstLine, opError, thrown, topFile, usePlatform } from './api-support.js'

usePlatform()

const f = (name: string, ...shape: number[]) => tensorInput(name, shape)
const i = (name: string, ...shape: number[]) => tensorInput(name, shape, 'i32')
const b = (name: string, ...shape: number[]) => tensorInput(name, shape, 'bool')

type Op = (...operands: unknown[]) => Tensor
const op = (name: string) => (tg as unknown as Record<string, Op>)[name] as Op
const words = (text: string) => text.trim().split(/\s+/)

// ---------------------------------------------------------------- results

/** "f32 [2, 3]" */
const kind = (t: Tensor) => `${t.dtype} [${t.shape.join(', ')}]`

/** Its parameters as nodes of the trace. */
function made<M extends Module>(module: M): M {
  tg.materializeParams(module)
  return module
}

const results: Record<string, () => Tensor> = {}
for (const name of words(`sqrt rsqrt reciprocal exp log sin cos tanh erf sigmoid softplus silu gelu geluTanh relu neg abs sign square
  stopGradient expm1 log1p floor ceil round tan logSigmoid hardSigmoid hardSwish leakyRelu elu   softmax logSoftmax logSoftmaxLast`))
  results[`${name}: f32 [2, 3]`] = () => op(name)(f('x', 2, 3))
for (const name of words('neg abs sign square stopGradient')) results[`${name}: i32 [2]`] = () => op(name)(i('x', 2))
for (const name of words('add sub mul div floorDiv mod pow minimum maximum')) {
  results[`${name}: f32 [4, 2, 3]`] = () => op(name)(f('a', 4, 1, 3), f('b', 2, 1))
  results[`${name}, number right: f32 [3]`] = () => op(name)(f('a', 3), 2)
  results[`${name}, number left: f32 [3]`] = () => op(name)(2, f('a', 3))
}
for (const name of words('add sub mul div floorDiv mod minimum maximum')) results[`${name}: i32 [3]`] = () => op(name)(i('a', 3), 2)
for (const name of words('less lessEqual greater greaterEqual equal notEqual')) {
  results[`${name}: bool [2, 3]`] = () => op(name)(f('a', 2, 1), f('b', 3))
  results[`${name}, number left: bool [3]`] = () => op(name)(2, i('a', 3))
}
for (const name of words('logicalAnd logicalOr')) results[`${name}: bool [2, 3]`] = () => op(name)(b('a', 2, 1), b('b', 3))
for (const name of words('sum mean max min prod variance std norm')) {
  results[`${name} of all: f32 []`] = () => op(name)(f('x', 2, 3, 4))
  results[`${name} of one axis: f32 [2, 4]`] = () => op(name)(f('x', 2, 3, 4), 1)
  results[`${name} of two: f32 [3]`] = () => op(name)(f('x', 2, 3, 4), [0, -1])
  results[`${name} keeping them: f32 [1, 3, 1]`] = () => op(name)(f('x', 2, 3, 4), [0, -1], { keepDims: true })
  results[`${name} of all, keeping: f32 [1, 1]`] = () => op(name)(f('x', 2, 3), undefined, { keepDims: true })
}
for (const name of words('argmax argmin')) {
  results[`${name}: i32 [2]`] = () => op(name)(f('x', 2, 3))
  results[`${name} of axis 0: i32 [1, 3]`] = () => op(name)(f('x', 2, 3), 0, { keepDims: true })
}
Object.assign(results, {
  'logicalNot: bool [2]': () => tg.logicalNot(b('x', 2)),
  'clamp: f32 [2]': () => tg.clamp(f('x', 2), -1, 1),
  'where: f32 [4, 2, 3]': () => tg.where(b('c', 4, 1, 1), f('a', 2, 1), f('b', 3)),
  'where with numbers: f32 [2]': () => tg.where(b('c', 2), f('a', 2), 0),
  'cast: i32 [2]': () => tg.cast(f('x', 2), 'i32'),
  'any: bool [2]': () => tg.any(b('x', 2, 3), 1),
  'all, keeping: bool [1, 1]': () => tg.all(b('x', 2, 3), undefined, { keepDims: true }),
  'cumsum: f32 [2, 3]': () => tg.cumsum(f('x', 2, 3)),
  'cumsum of i32: i32 [2, 3]': () => tg.cumsum(i('x', 2, 3), 0, { exclusive: true, reverse: true }),
  'cumprod: f32 [2, 3]': () => tg.cumprod(f('x', 2, 3), 0),
  'maskedSoftmax: f32 [2, 3]': () => tg.maskedSoftmax(f('x', 2, 3), b('m', 3)),
  'tril: f32 [2, 3]': () => tg.tril(f('x', 2, 3)),
  'triu: bool [2, 3]': () => tg.triu(b('x', 2, 3), -1),
  'meanLast: f32 [2, 1]': () => tg.meanLast(f('x', 2, 3)),
  'sumLast: f32 [2]': () => tg.sumLast(f('x', 2, 3)),
  'sumAll: f32 []': () => tg.sumAll(f('x', 2, 3)),
  'logsumexp: f32 [3]': () => tg.logsumexp(f('x', 2, 3), 0),
  'reshape: f32 [3, 2]': () => tg.reshape(f('x', 2, 3), [3, -1]),
  'reshape to a scalar: f32 []': () => tg.reshape(f('x', 1), []),
  'transpose: f32 [4, 2, 3]': () => tg.transpose(f('x', 2, 3, 4), [-1, 0, 1]),
  'swapAxes: f32 [4, 3, 2]': () => tg.swapAxes(f('x', 2, 3, 4), 0, -1),
  'broadcastTo: f32 [4, 2, 3]': () => tg.broadcastTo(f('x', 2, 1), [4, 2, 3]),
  'sliceLastRange: f32 [2, 2]': () => tg.sliceLastRange(f('x', 2, 3), 1, 3),
  'narrow: f32 [1, 3]': () => tg.narrow(f('x', 2, 3), 0, 1, 1),
  'squeeze: f32 [2]': () => tg.squeeze(f('x', 1, 2, 1)),
  'squeeze of one: f32 [2, 1]': () => tg.squeeze(f('x', 1, 2, 1), 0),
  'expandDims: i32 [2, 1]': () => tg.expandDims(i('x', 2), -1),
  'flip: bool [2, 3]': () => tg.flip(b('x', 2, 3)),
  'pad: f32 [5, 3]': () => tg.pad(f('x', 2, 3), [[1, 2], [0, 0]], 7),
  'roll: f32 [2, 3]': () => tg.roll(f('x', 2, 3), 1),
  'tile: f32 [4, 9]': () => tg.tile(f('x', 2, 3), [2, 3]),
  'repeat: f32 [2, 6]': () => tg.repeat(f('x', 2, 3), 2),
  'split: f32 [2, 2]': () => tg.split(f('x', 2, 6), 3)[2] as Tensor,
  'split by sizes: f32 [1, 6]': () => tg.split(f('x', 3, 6), [2, 1], 0)[1] as Tensor,
  'matmul of a vector: f32 [5, 4]': () => tg.matmul(f('x', 3), f('w', 5, 3, 4)),
  'matmul of batches: f32 [6, 5, 2, 4]': () => tg.matmul(f('x', 5, 2, 3), f('w', 6, 1, 3, 4)),
  'concat: f32 [2, 7]': () => tg.concat([f('x', 2, 3), f('y', 2, 4)], -1),
  'stack: f32 [2, 2, 3]': () => tg.stack([f('x', 2, 3), f('y', 2, 3)], 0),
  'concat of many: f32 [300]': () =>
    tg.concat(
      Array.from({ length: 300 }, (_, n) => f(`x${n}`, 1)),
      0,
    ),
  'matmul: f32 [5, 2, 4]': () => tg.matmul(f('x', 5, 2, 3), f('w', 3, 4)),
  'matmulBatched: f32 [6, 5, 2, 4]': () => tg.matmulBatched(f('x', 5, 2, 3), f('w', 6, 1, 3, 4)),
  'gather: f32 [5, 3]': () => tg.gather(f('x', 2, 3), i('i', 5)),
  'gather of bools: bool [2, 4, 5]': () => tg.gather(b('x', 2, 3), i('i', 4, 5), 1),
  'takeAlongAxis: f32 [2, 5]': () => tg.takeAlongAxis(f('x', 2, 3), i('i', 2, 5)),
  'scatterAdd: f32 [2, 3]': () => tg.scatterAdd(f('x', 2, 3), i('i', 5), f('u', 5, 3)),
  'sort: f32 [2, 3]': () => tg.sort(f('x', 2, 3)),
  'argsort: i32 [2, 3]': () => tg.argsort(f('x', 2, 3), 0, { descending: true }),
  'topK: f32 [2, 2]': () => tg.topK(f('x', 2, 3), 2).values,
  'topK, where: i32 [1, 3]': () => tg.topK(i('x', 2, 3), 1, 0).indices,
  'einsum: f32 [2, 4]': () => tg.einsum('ij,jk', f('a', 2, 3), f('b', 3, 4)),
  'einsum of three: f32 [4, 5]': () => tg.einsum('bij,bjk,i->kb', f('a', 5, 3, 2), f('b', 5, 2, 4), f('v', 3)),
  'rope: f32 [2, 3, 4]': () => tg.rope(f('x', 2, 3, 4), { base: 500, interleaved: true, positions: i('p', 3) }),
  'embedding: f32 [2, 3, 4]': () => tg.embedding(f('t', 9, 4), i('i', 2, 3)),
  'oneHot: f32 [2, 5]': () => tg.oneHot(i('i', 2), 5),
  'oneHot of bool: bool [2, 5]': () => tg.oneHot(i('i', 2), 5, 'bool'),
  'softmaxCausalLast: f32 [2, 3, 3]': () => tg.softmaxCausalLast(f('x', 2, 3, 3)),
  'whereCausal: f32 [3, 3]': () => tg.whereCausal(f('x', 3, 3), -Infinity),
  'full: i32 [2]': () => tg.full([2], 7, 'i32'),
  'zeros: f32 []': () => tg.zeros([]),
  'ones: bool [2]': () => tg.ones([2], 'bool'),
  'arange: i32 [4]': () => tg.arange(4),
  'arange of f32: f32 [4]': () => tg.arange(4, 'f32'),
  'constant: i32 [2, 1]': () => tg.constant([2, 1], new Int32Array([1, 2])),
  'constant of bool: bool [2]': () => tg.constant([2], new Uint8Array([0, 1])),
  'capture: f32 [2]': () => tg.capture('h', f('x', 2)),
  'grad: f32 [2]': () => {
    const x = f('x', 2)
    return tg.grad(tg.sum(tg.square(x)), [x])[0] as Tensor
  },
  'grad of grad: f32 [2]': () => {
    const x = f('x', 2)
    const [g] = tg.grad(tg.sum(tg.exp(x)), [x]) as [Tensor]
    return tg.grad(tg.sum(g), [x])[0] as Tensor
  },
  'vjp: f32 [2]': () => {
    const x = f('x', 2)
    return tg.vjp(tg.square(x), f('c', 2), [x])[0] as Tensor
  },
  'conv1d: f32 [2, 6, 5]': () => tg.conv1d(f('x', 2, 4, 9), f('w', 6, 2, 3), { groups: 2, stride: 2, padding: 1 }),
  'conv2d, same: f32 [2, 6, 9, 7]': () => tg.conv2d(f('x', 2, 4, 9, 7), f('w', 6, 4, 3, 2), { padding: 'same' }),
  'conv2d, sides: f32 [2, 6, 5, 7]': () =>
    tg.conv2d(f('x', 2, 4, 9, 7), f('w', 6, 4, 3, 2), { padding: [[0, 2], [1, 0]], dilation: [3, 1], bias: f('b', 6) }),
  'convTranspose1d: f32 [2, 6, 19]': () => tg.convTranspose1d(f('x', 2, 4, 9), f('w', 4, 6, 3), { stride: 2 }),
  'convTranspose2d: f32 [2, 6, 20, 8]': () =>
    tg.convTranspose2d(f('x', 2, 4, 9, 7), f('w', 4, 6, 3, 2), { stride: [2, 1], outputPadding: [1, 0] }),
  'maxPool1d: f32 [2, 4, 4]': () => tg.maxPool1d(f('x', 2, 4, 9), 2),
  'maxPool2d: f32 [2, 4, 5, 3]': () => tg.maxPool2d(f('x', 2, 4, 9, 7), [2, 3], { ceilMode: true }),
  'avgPool2d: f32 [2, 4, 5, 4]': () => tg.avgPool2d(f('x', 2, 4, 9, 7), 3, { stride: 2, padding: 1 }),
  'globalMaxPool: f32 [2, 4]': () => tg.globalMaxPool(f('x', 2, 4, 9)),
  'upsampleNearest: f32 [2, 4, 18, 21]': () => tg.upsampleNearest(f('x', 2, 4, 9, 7), { factor: [2, 3] }),
  'upsampleBilinear: f32 [2, 4, 27]': () => tg.upsampleBilinear(f('x', 2, 4, 9), { factor: 3 }),
  'RNN: f32 [2, 5, 4]': () => made(new nn.RNN(3, 4, { activation: 'relu' })).fwd(f('x', 2, 5, 3)),
  'GRU: f32 [2, 5, 4]': () => made(new nn.GRU(3, 4)).fwd(f('x', 2, 5, 3), { h0: f('h', 2, 4) }),
  'GRU.step: f32 [2, 4]': () => made(new nn.GRU(3, 4, { bias: false })).step(f('x', 2, 3), f('h', 2, 4)),
  'LSTM: f32 [2, 5, 4]': () => made(new nn.LSTM(3, 4)).fwd(f('x', 2, 5, 3), { c0: f('c', 2, 4) }).c,
  'LSTM.step: f32 [2, 4]': () => made(new nn.LSTM(3, 4)).step(f('x', 2, 3), { h: f('h', 2, 4), c: f('c', 2, 4) }).h,
  'RMSNorm: f32 [2, 3]': () => made(new nn.RMSNorm(3)).fwd(f('x', 2, 3)),
  'GroupNorm: f32 [2, 4, 3]': () => made(new nn.GroupNorm(2, 4)).fwd(f('x', 2, 4, 3)),
  'BatchNorm: f32 [2, 4, 3, 5]': () => made(new nn.BatchNorm(4)).fwd(f('x', 2, 4, 3, 5)),
  'BatchNorm, predicting: f32 [1, 4]': () => made(new nn.BatchNorm(4)).fwd(f('x', 1, 4), false),
  'attentionWeights: f32 [2, 4, 3, 5]': () => nn.attentionWeights(f('q', 2, 4, 3, 2), f('k', 2, 2, 5, 2), { mask: b('m', 3, 5) }),
  'attend: f32 [2, 4, 3, 2]': () => nn.attend(f('q', 2, 4, 3, 2), f('k', 2, 2, 5, 2), f('v', 2, 2, 5, 2), { mask: b('m', 3, 5) }),
  'attentionValues: f32 [2, 4, 3, 6]': () => nn.attentionValues(f('w', 2, 4, 3, 5), f('v', 2, 1, 5, 6)),
  'Attention: f32 [2, 3, 8]': () => made(new nn.Attention(8, 4, { kvHeads: 2, causal: true, ropeBase: 100 })).fwd(f('x', 2, 3, 8), { capture: 'w' }),
  'Attention of a context: f32 [2, 3, 8]': () =>
    made(new nn.Attention(8, 4, { context: 5, bias: false })).fwd(f('x', 2, 3, 8), { context: f('c', 2, 7, 5), mask: b('m', 3, 7) }),
  'MLP: f32 [2, 4]': () => made(new nn.MLP([3, 5, 4], { activation: tg.tanh, activateLast: true })).fwd(f('x', 2, 3)),
  'Embedding: f32 [2, 3, 4]': () => made(new nn.Embedding(5, 4)).fwd(i('k', 2, 3)),
  'Sequential: f32 [2, 4]': () => made(new nn.Sequential(new nn.Linear(3, 5), tg.gelu, new nn.MLP([5, 4]))).fwd(f('x', 2, 3)),
  'splitHeads: f32 [1, 3, 2, 2]': () => nn.splitHeads(f('x', 1, 2, 6), 3),
  'mergeHeads: f32 [1, 2, 6]': () => nn.mergeHeads(f('x', 1, 3, 2, 2)),
  'crossEntropyLast: f32 [2, 3]': () => nn.crossEntropyLast(f('x', 2, 3, 7), i('t', 2, 3)),
  'crossEntropy: f32 []': () => nn.crossEntropy(f('x', 2, 7), i('t', 2)),
  'mse: f32 []': () => nn.mse(f('x', 2), f('y', 2)),
  'bceWithLogits: f32 []': () => nn.bceWithLogits(f('x', 2), f('y', 2)),
  'crossEntropy, none: f32 [2]': () => nn.crossEntropy(f('x', 2, 7), i('t', 2), { reduction: 'none', labelSmoothing: 0.1 }),
  'nll: f32 []': () => nn.nll(f('x', 2, 7), i('t', 2), { reduction: 'sum' }),
  'l1: f32 [2]': () => nn.l1(f('x', 2), f('y', 2), { reduction: 'none' }),
  'huber: f32 []': () => nn.huber(f('x', 2), f('y', 2), { delta: 0.5 }),
  'bceWithLogits, weighted: f32 [2, 3]': () =>
    nn.bceWithLogits(f('x', 2, 3), f('y', 2, 3), { positiveWeight: f('w', 3), reduction: 'none' }),
  'klDiv: f32 []': () => nn.klDiv(f('x', 2), f('y', 2), { logTarget: true }),
  'resolveLR: f32 []': () => tg.resolveLR(tg.lr.cosineDecay({ peak: 1, final: 0, steps: 10 }), i('t')),
  'rand: f32 [2, 3]': () => tg.rand([2, 3]),
  'rand: f32 []': () => tg.rand([]),
  'randn: f32 [4]': () => tg.randn([4]),
  'randInt: i32 [4]': () => tg.randInt([4], -3, 2 ** 31 - 4),
  'bernoulli: bool [4]': () => tg.bernoulli([4], 0.5),
  'bernoulli of a tensor: bool [4, 3]': () => tg.bernoulli([4, 3], f('p', 3)),
  'categorical: i32 [2]': () => tg.categorical(f('x', 2, 3)),
  'categorical of the first axis: i32 [3]': () => tg.categorical(f('x', 2, 3), 0),
  'dropout: f32 [2, 3]': () => tg.dropout(f('x', 2, 3), 0.5),
  'nn.Dropout: f32 [2, 3]': () => new nn.Dropout(0.5).fwd(f('x', 2, 3)),
  'paramInput: f32 [2]': () => tg.paramInput('W', [2], { init: 'zeros' }),
  'stateInput: i32 [2]': () => tg.stateInput('s', [2], 'i32', 3),
})

for (const [name, body] of Object.entries(results))
  test(name, () => {
    const graph = trace(body)
    assert.equal(kind(graph.result), name.slice(name.lastIndexOf(': ') + 2))
  })

// ---------------------------------------------------------------- mistakes: the first line of each message

type Row = [body: () => unknown, message: string, type?: new (message: string) => Error]
const rows: Row[] = []

for (const name of words(
  `sqrt rsqrt reciprocal exp log sin cos tanh erf sigmoid softplus silu gelu geluTanh relu softmax logSoftmax logsumexp
  expm1 log1p floor ceil round tan logSigmoid hardSigmoid hardSwish leakyRelu elu`,
))
  rows.push([() => op(name)(b('x', 2)), `${name}: takes f32, not bool: x[2] bool`])
for (const name of words('neg abs sign square'))
  rows.push([() => op(name)(b('x', 2)), `${name}: takes f32 or i32, not bool: x[2] bool`])
for (const name of words('add sub mul div floorDiv mod pow minimum maximum less lessEqual greater greaterEqual equal notEqual')) {
  rows.push([() => op(name)(f('a', 2, 3), f('b', 4)), `${name}: shapes do not broadcast: a[2, 3] and b[4] (3 != 4)`])
  if (name === 'pow') continue
  rows.push([() => op(name)(f('a', 2, 3), i('b', 3)), `${name}: dtypes differ: a[2, 3] and b[3] i32 (f32 != i32)`])
  rows.push([() => op(name)(i('a', 2), 0.5), `${name}: the number 0.5 does not fit i32: a[2] i32`])
}
for (const name of words('logicalAnd logicalOr'))
  rows.push([() => op(name)(b('a', 2), f('b', 2)), `${name}: takes bool, not f32: b[2] (with a[2] bool)`])
for (const name of words('sum mean max min prod variance std norm')) {
  rows.push([() => op(name)(f('x', 2, 3), 2), `${name}: axis 2 is not in -2 .. 1: x[2, 3]`])
  rows.push([() => op(name)(f('x', 2, 3), [0, -2]), `${name}: axis 0 of x[2, 3] is given twice`])
  rows.push([() => op(name)(f('x', 2, 3), 0.5), `${name}: the axis is 0.5, not a whole number`, ArgumentError])
  rows.push([() => op(name)(f('x', 2, 3), [0, '1']), `${name}: axes[1] is the string "1", not a whole number`, ArgumentError])
}
for (const name of words('argmax argmin softmax logSoftmax logsumexp'))
  rows.push([() => op(name)(f('x', 2, 3), -3), `${name}: axis -3 is not in -2 .. 1: x[2, 3]`])

class Layers extends Module {
  linear = new nn.Linear(2, 3)
  norm = new nn.LayerNorm(2)
}
function layers(): Layers {
  const model = new Layers()
  tg.materializeParams(model)
  return model
}

rows.push(
  [() => tg.logicalNot(f('x', 2)), 'logicalNot: takes bool, not f32: x[2]'],
  [() => tg.pow(f('a', 2), i('b', 2)), 'pow: takes f32, not i32: b[2] i32 (with a[2])'],
  [() => tg.div(i('a', 2), 0), 'div: ', ArgumentError],
  [() => tg.add(f('x', 2), 1e39), 'add: the number 1e+39 does not fit f32: x[2]'],
  [() => tg.mod(i('a', 2), 0), 'mod: division of the integers a[2] i32 by 0', ArgumentError],
  [() => tg.elu(f('x', 2), Infinity), 'elu: the alpha inf is not finite: x[2]', ArgumentError],
  [() => tg.leakyRelu(f('x', 2), NaN), 'leakyRelu: the slope nan is not finite: x[2]', ArgumentError],
  [() => tg.clamp(f('x', 2), 3, 1), 'clamp: the lower bound 3 is not <= the upper bound 1: x[2]', ArgumentError],
  [() => tg.where(b('c', 2, 3), f('a', 4), 0), 'where: shapes do not broadcast: c[2, 3] bool ? a[4] : const[]'],
  [() => tg.where(f('c', 2, 3), f('a', 3), 0), 'where: takes bool, not f32: c[2, 3] (with a[3])'],
  [() => tg.cast(f('x', 2), 'f64' as never), 'cast: the string "f64" is not a dtype (f32, i32, bool)'],
  [() => tg.meanLast(f('x')), 'mean: axis -1 of a tensor without axes: x[]'],
  [() => tg.sumLast(f('x')), 'sum: axis -1 of a tensor without axes: x[]'],
  [() => tg.any(f('x', 2)), 'any: takes bool, not f32: x[2]'],
  [() => tg.all(b('x', 2), 1), 'all: axis 1 is not in -1 .. 0: x[2] bool'],
  [
    () => tg.variance(f('x', 2, 3), 1, { correction: 3 }),
    'variance: the correction 3 is not in 0 .. 2, for 3 elements: x[2, 3]',
    ArgumentError,
  ],
  [() => tg.std(f('x', 2), 0, { correction: 0.5 }), 'std: correction is 0.5, not a whole number from 0 on', ArgumentError],
  [() => tg.norm(f('x', 2, 3), 0, { ord: 3 }), 'norm: ord is 3, not 1, 2 or Infinity', ArgumentError],
  [() => tg.norm(f('x', 2, 3), 0, { ord: 0 }), 'norm: ord is 0, not 1, 2 or Infinity', ArgumentError],
  [() => tg.cumsum(b('x', 2)), 'cumsum: takes f32 or i32, not bool: x[2] bool'],
  [() => tg.cumprod(f('x', 2), 1), 'cumprod: axis 1 is not in -1 .. 0: x[2]'],
  [
    () => tg.maskedSoftmax(f('x', 1, 3), b('m', 2, 3)),
    'maskedSoftmax: the mask does not broadcast to the operand: x[1, 3] and m[2, 3] bool',
  ],
  [() => tg.tril(f('x', 3)), 'tril: needs at least 2 axes: x[3]'],
  [() => tg.triu(f('x', 3, 3), 0.5), 'triu: the diagonal is 0.5, not a whole number', ArgumentError],
  [() => tg.sumAll(b('x', 2)), 'sum: takes f32 or i32, not bool: x[2] bool'],
  [() => tg.reshape(f('x', 2, 3), [4, -1]), 'reshape: 6 elements do not fit: x[2, 3] -> [4, -1]'],
  [() => tg.reshape(f('x', 2, 3), [-1, -1]), 'reshape: only one dim may be -1: x[2, 3] -> [-1, -1]'],
  [() => tg.reshape(f('x', 2, 3), 6 as never), 'reshape: shape is the number 6, not an array of numbers', ArgumentError],
  [() => tg.transpose(f('x', 2, 3), [0, 0]), 'transpose: axis 0 of x[2, 3] is given twice'],
  [() => tg.transpose(f('x', 2, 3), [0]), 'transpose: the permutation has 1 axes, x[2, 3] has 2'],
  [() => tg.swapAxes(f('x', 2, 3), 0, 2), 'swapAxes: axis 2 is not in -2 .. 1: x[2, 3]'],
  [() => tg.broadcastTo(f('x', 2, 3), [2, 4]), 'broadcastTo: x[2, 3] does not broadcast to [2, 4]'],
  [() => tg.sliceLastRange(f('x', 2, 3), 1, 4), 'sliceLastRange: the range 1 .. 4 does not lie in axis 1 of x[2, 3]'],
  [() => tg.narrow(f('x', 2, 3), 1, 2, 2), 'narrow: the range 2 .. 4 does not lie in axis 1 of x[2, 3]'],
  [() => tg.squeeze(f('x', 2, 3), 1), 'squeeze: axis 1 has 3 elements, not 1: x[2, 3]'],
  [() => tg.expandDims(f('x', 2), 2), 'expandDims: axis 2 is not in -2 .. 1: x[2]'],
  [() => tg.pad(f('x', 2), [[1, -1]]), 'pad: counts after: -1 (axis 0) is not in 0 .. 2147483647: x[2]', ArgumentError],
  [() => tg.pad(f('x', 2), [[1]] as never), 'pad: widths[0] has 1 numbers, not before and after', ArgumentError],
  [() => tg.pad(f('x', 2, 3), [[1, 1]]), 'pad: 1 counts before given, x[2, 3] has 2 axes'],
  [() => tg.roll(f('x', 2), 0.5), 'roll: the shift is 0.5, not a whole number', ArgumentError],
  [() => tg.tile(f('x', 2), [0]), 'tile: counts: 0 (axis 0) is not in 1 .. 2147483647: x[2]', ArgumentError],
  [() => tg.repeat(f('x', 2), 0), 'repeat: 0 times is not in 1 .. 2147483647: x[2]', ArgumentError],
  [() => tg.split(f('x', 2, 3), 2), 'split: axis 1 does not divide into 2 equal parts: x[2, 3]'],
  [() => tg.split(f('x', 2, 3), -3), 'split: axis 1 does not divide into -3 equal parts: x[2, 3]'],
  [() => tg.split(f('x', 2, 3), 1e9), 'split: axis 1 does not divide into 1000000000 equal parts: x[2, 3]'],
  [() => tg.split(f('x', 2, 3), [1, 1]), 'split: the 2 parts have 2 elements, axis 1 has 3: x[2, 3]'],
  [() => tg.concat([f('x', 2, 3), f('y', 3, 3)], 1), 'concat: shapes differ beside axis 1: part 0 x[2, 3] and part 1 y[3, 3]'],
  [() => tg.concat([], 1), 'concat: the parts are an empty array', ArgumentError],
  [() => tg.concat(f('x', 2) as never, 1), 'concat: the parts are a Tensor', ArgumentError],
  [() => tg.stack([f('x', 2, 3), f('y', 3, 3)], 0), 'stack: shapes differ: part 0 x[2, 3] and part 1 y[3, 3]'],
  [() => tg.matmul(f('x', 256, 64), f('l2.W', 32, 10)), 'matmul: inner dimensions differ: x[256, 64] x l2.W[32, 10] (64 != 32)'],
  [() => tg.matmul(f('x', 2, 3), i('w', 3, 4)), 'matmul: takes f32, not i32: w[3, 4] i32 (with x[2, 3])'],
  [() => tg.matmulBatched(f('x', 2, 2, 3), f('w', 3, 3, 4)), 'matmulBatched: batch axes do not broadcast: x[2, 2, 3] x w[3, 3, 4]'],
  [() => tg.gather(f('x', 2, 3), f('i', 2)), 'gather: takes i32, not f32: i[2] (with x[2, 3])'],
  [() => tg.takeAlongAxis(f('x', 2, 3), i('i', 3, 1)), 'takeAlongAxis: shapes differ beside axis 1: x[2, 3] by i[3, 1] i32'],
  [
    () => tg.scatterAdd(f('x', 2, 3), i('i', 4), f('u', 2, 3), 1),
    'scatterAdd: the updates need the shape [2, 4], that of a gather from x[2, 3] by i[4] i32 along axis 1: u[2, 3]',
  ],
  [() => tg.sort(b('x', 2)), 'sort: takes f32 or i32, not bool: x[2] bool'],
  [() => tg.topK(f('x', 2, 3), 4), 'topK: k = 4 is not in 1 .. 3: x[2, 3]', ArgumentError],
  [() => tg.einsum('ij,jk', f('x', 2, 3), f('y', 4, 2)), 'einsum: label j is 3 before and 4 in operand 1 of "ij,jk": y[4, 2]'],
  [() => tg.einsum('ij->k', f('x', 2, 3)), 'einsum: no operand has the label \'k\' in "ij->k"', ArgumentError],
  [() => tg.einsum('ij'), 'einsum: there are no operands', ArgumentError],
  [() => tg.einsum(3 as never, f('x', 2)), 'einsum: the equation is the number 3, not a string', ArgumentError],
  [() => tg.rope(f('x', 2, 3)), 'rope: needs [..., T, D] with an even D: x[2, 3]'],
  [() => tg.rope(f('x', 2, 4), { base: 0 }), 'rope: base is 0, not a finite number over 0', ArgumentError],
  [() => new nn.LayerNorm(2, 0), 'layerNorm: eps is 0, not a finite number over 0', ArgumentError],
  [() => tg.conv1d(f('x', 1, 2, 8), f('w', 3, 2, 3), { stride: [2, 1] }), 'conv1d: the stride has 2 numbers, not 1', ArgumentError],
  [() => tg.maxPool1d(f('x', 1, 2, 8), 2, { padding: [1, 1] }), 'maxPool1d: padding has 2 numbers, not 1', ArgumentError],
  [() => tg.embedding(f('t', 4, 2), f('i', 3)), 'embedding: takes i32, not f32: i[3] (with t[4, 2])'],
  [() => tg.embedding(f('t', 4), i('i', 3)), 'embedding: the table needs 2 axes: t[4] by i[3] i32'],
  [() => tg.oneHot(i('x', 3), 0), 'oneHot: the depth 0 is not at least 1: x[3] i32', ShapeError],
  [() => tg.oneHot(f('x', 3), 2), 'oneHot: takes i32, not f32: x[3]'],
  [() => tg.oneHot(i('x', 3), 2, 'u8' as never), 'oneHot: the string "u8" is not a dtype (f32, i32, bool)'],
  [() => tg.arange(0), 'arange: shape [0] has a dimension under 1 (axis 0 is 0)'],
  [() => tg.arange(3, 'bool'), 'arange: makes i32 or f32, not bool'],
  [() => tg.softmaxCausalLast(f('x', 2, 3)), 'softmaxCausalLast: the last two axes need one size: x[2, 3]'],
  [() => tg.whereCausal(f('x', 2, 3), 0), 'whereCausal: the last two axes need one size: x[2, 3]'],
  [() => tg.logSoftmaxLast(f('x')), 'logSoftmax: axis -1 of a tensor without axes: x[]'],
  [() => tg.rand([2, 0]), 'rand: shape [2, 0] has a dimension under 1 (axis 1 is 0)'],
  [() => tg.randn(3 as never), 'randn: shape is the number 3, not an array of numbers', ArgumentError],
  [() => tg.randInt([2], 3, 3), 'randInt: [3, 3) is empty', ArgumentError],
  [() => tg.randInt([2], 0.5, 3), 'randInt: lo is 0.5, not a whole number', ArgumentError],
  [() => tg.randInt([2], 0, 2 ** 40), 'randInt: [0, 1099511627776) goes beyond i32', ArgumentError],
  [() => tg.bernoulli([2], 1.5), 'bernoulli: the probability is 1.5, not in [0, 1]', ArgumentError],
  [() => tg.bernoulli([2], undefined as never), 'bernoulli: p is undefined, not a tensor', ArgumentError],
  [() => tg.bernoulli([4, 3], f('x', 4)), 'bernoulli: the probabilities x[4] do not broadcast to [4, 3]'],
  [() => tg.categorical(i('x', 4)), 'categorical: takes f32, not i32: x[4] i32'],
  [() => tg.dropout(f('x', 4), 1), 'dropout: p is 1, not in [0, 1): x[4]', ArgumentError],
  [() => tg.dropout(f('x', 4), -0.5), 'dropout: p is -0.5, not in [0, 1): x[4]', ArgumentError],
  [() => new nn.Dropout(1).fwd(f('x', 4)), 'dropout: p is 1, not a number from 0 to below 1', ArgumentError],
  [() => tg.full([2, 0], 1), 'full: shape [2, 0] has a dimension under 1 (axis 1 is 0)'],
  [() => tg.full([2], 0.5, 'i32'), 'full: the number 0.5 does not fit i32'],
  [() => tg.zeros([65536, 65536]), 'full: shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647', LimitError],
  [() => f('x', 46341, 46341), 'input x: shape [46341, 46341] has 2147488281 elements, over the limit of 2147483647', LimitError],
  [() => tg.ones([1, 1, 1, 1, 1, 1, 1, 1, 1]), 'full: shape [1, 1, 1, 1, 1, 1, 1, 1, ...] has rank 9, over the limit of 8', LimitError],
  [() => tg.constant([2], new Float32Array(3)), 'constant: 3 numbers given, the shape [2] has 2', ArgumentError],
  [() => tg.constant([2], [1, 2] as never), 'constant: the data is an Array, not a Float32Array, Int32Array or Uint8Array', ArgumentError],
  [() => tg.constant([2], new Uint8Array([1, 2])), 'constant: element 1 of a bool constant is 2, not 0 or 1', ArgumentError],
  [
    () => {
      const x = tg.capture('h', f('x', 2))
      return tg.capture('h', tg.relu(x))
    },
    'capture: the name h is used twice: for x[2] and for relu[2]',
    DuplicateError,
  ],
  [() => tg.capture('', f('x', 2)), 'capture: the name is empty', ArgumentError],
  [() => tg.capture(3 as never, f('x', 2)), 'capture: the name is the number 3, not a string', ArgumentError],
  [() => tg.grad(f('x', 2), [f('y', 2)]), 'grad: the loss x[2] is not rank 0: sum it, or use vjp', GradientError],
  [() => tg.grad(tg.sum(f('x', 2)), [i('z', 2)]), 'grad: z[2] i32 has no gradient: it is not f32 but i32', GradientError],
  [() => tg.grad(tg.sum(f('x', 2)), f('y', 2) as never), 'grad: wrt is a Tensor, not an array of tensors', ArgumentError],
  [
    () => {
      const x = f('x', 2)
      return tg.vjp(x, f('c', 3), [x])
    },
    'vjp: the cotangent needs the shape of y: x[2] and c[3]',
  ],
  [() => tg.writeback(f('x', 2), f('y', 2)), 'writeback: the destination x[2] is neither a parameter nor a state', ArgumentError],
  [() => tg.writeback(tg.stateInput('s', [2]), f('y', 3)), 'writeback: shapes differ: s[2] <- y[3]'],
  [
    () => tg.conv2d(f('x', 1, 3, 2, 8), f('w', 4, 3, 5, 5), { padding: 1 }),
    'conv2d: the kernel covers 5, more than the 4 of axis 2 with its padding: x[1, 3, 2, 8]',
  ],
  [
    () => tg.conv2d(f('x', 1, 3, 8, 8), f('w', 4, 3, 3, 3), { groups: 2 }),
    'conv2d: channels do not divide into 2 groups: x[1, 3, 8, 8] by w[4, 3, 3, 3]',
  ],
  [() => tg.conv2d(f('x', 1, 3, 8, 8), f('w', 4, 3, 3, 3), { stride: 0 }), 'conv2d: the stride needs to be at least 1, not 0', ArgumentError],
  [() => tg.conv2d(f('x', 1, 3, 8, 8), f('w', 4, 3, 3, 3), { groups: 0 }), 'conv2d: groups need to be at least 1, not 0', ArgumentError],
  [
    () => tg.conv2d(f('x', 1, 3, 8, 8), f('w', 4, 3, 3, 3), { padding: 'full' as never }),
    "conv2d: padding is the string \"full\": a number, a pair, [before, after] of each axis, 'same' or 'valid'",
    ArgumentError,
  ],
  [
    () => tg.conv2d(f('x', 1, 3, 8, 8), f('w', 4, 3, 3, 3), { dilation: [1] as never }),
    'conv2d: the dilation has 1 numbers, not 2',
    ArgumentError,
  ],
  [
    () => tg.conv2d(f('x', 1, 3, 8, 8), f('w', 4, 3, 3, 3), { padding: 'same', stride: 2 }),
    "conv2d: padding 'same' needs stride 1, not 2: x[1, 3, 8, 8]",
    ArgumentError,
  ],
  [
    () => tg.maxPool2d(f('x', 1, 3, 8, 8), [3, 2], { padding: 2 }),
    'maxPool2d: padding 2 needs to be under the kernel 3 x 2: a window would hold nothing else: x[1, 3, 8, 8]',
    ArgumentError,
  ],
  [() => tg.avgPool1d(f('x', 3, 8), 2), 'avgPool1d: needs 3 axes, [N, C, L]: x[3, 8]'],
  [() => tg.upsampleBilinear(f('x', 1, 3, 8, 8), { factor: 0 }), 'upsampleBilinear: the factor needs to be at least 1, not 0', ArgumentError],
  [() => made(new nn.GRU(3, 4)).fwd(f('x', 2, 3)), 'gru: the input needs to be [B, T, 3]: x[2, 3] with Wx[3, 12]'],
  [
    () => made(new nn.LSTM(3, 4)).fwd(f('x', 2, 7, 3), { h0: f('h', 1, 4) }),
    'lstm: the hidden state needs to be [2, 4]: h[1, 4] beside x[2, 7, 3]',
  ],
  [() => made(new nn.GRU(3, 4)).step(f('x', 2, 3), undefined as never), 'gru: operand 6 is undefined, not a tensor', ArgumentError],
  [() => made(new nn.Attention(8, 2)).fwd(f('x', 2, 3, 8), f('c', 2, 3, 8) as never), 'attention: the options are a Tensor', ArgumentError],
  [() => made(new nn.Attention(8, 2)).fwd(f('x', 2, 3, 8), { Mask: b('m', 3, 3) } as never), 'attention: there is no option Mask: did you mean mask? (options: context, mask, capture)', ArgumentError],
  [() => made(new nn.Embedding(5, 4)).fwd(f('x', 2)), 'embedding: takes i32, not f32: x[2] (with W[5, 4])'],
  [() => new nn.Embedding(5, 4, { scale: 2 } as never), 'embedding: there is no option scale (options: init, frozen)', ArgumentError],
  [() => new nn.GRU(3, 0.5), 'gru: hidden is 0.5, not a whole number from 1 on', ArgumentError],
  [() => made(new nn.GRU(3, 4)).fwd(f('x', 2, 7, 3), f('h', 2, 4) as never), 'gru: the options are a Tensor', ArgumentError],
  [() => made(new nn.GRU(3, 4)).fwd(f('x', 2, 7, 3), { h: f('h', 2, 4) } as never), 'gru: there is no option h: did you mean h0? (options: h0)', ArgumentError],
  [() => made(new nn.RNN(3, 4)).fwd(f('x', 2, 7, 3), null as never), 'rnn: the options are null', ArgumentError],
  [() => made(new nn.LSTM(3, 4)).fwd(f('x', 2, 7, 3), { h: f('h', 2, 4), c: f('c', 2, 4) } as never), 'lstm: there is no option h: did you mean h0? (options: h0, c0)', ArgumentError],
  [() => made(new nn.LSTM(3, 4)).step(f('x', 2, 3), undefined as never), 'lstm: the options are undefined', ArgumentError],
  [() => nn.crossEntropy(f('x', 2, 3), i('t', 2), { ignore: 2 ** 32 }), 'crossEntropy: ignore is 4294967296, which is no i32', ArgumentError],
  [() => new nn.GRU(3, 4, { biases: false } as never), 'gru: there is no option biases: did you mean bias? (options: bias, init, frozen)', ArgumentError],
  [() => nn.mse(f('x', 2), f('y', 2), { mean: true } as never), 'mse: there is no option mean (options: reduction)', ArgumentError],
  [() => nn.l1(f('x', 2), f('y', 2), 'sum' as never), 'l1: the options are the string "sum"', ArgumentError],
  [() => nn.l1(f('x', 2), f('y', 2), { reduction: 'total' as never }), `l1: reduction is "total", not 'mean', 'sum' or 'none'`, ArgumentError],
  [() => nn.huber(f('x', 2), f('y', 2), { delta: 0 }), 'huber: delta is 0, not a finite number over 0', ArgumentError],
  [() => nn.huber(f('x', 2), f('y', 2, 1)), 'huber: shapes differ (a loss does not broadcast): x[2] and y[2, 1]'],
  [() => nn.klDiv(f('x', 2), f('y', 2, 1)), 'klDiv: shapes differ (a loss does not broadcast): x[2] and y[2, 1]'],
  [() => nn.nll(f('x', 2, 3), i('t', 3)), "nll: the targets need the logits' shape without its last axis: x[2, 3] and t[3] i32"],
  [() => nn.nll(f('x', 2, 3), i('t', 2), { ignore: 0.5 }), 'nll: ignore is 0.5, not a whole number', ArgumentError],
  [() => nn.crossEntropy(f('x', 2, 3), i('t', 2), { labelSmoothing: 1 }), 'crossEntropy: labelSmoothing is 1, not a number from 0 to below 1', ArgumentError],
  [
    () => nn.bceWithLogits(f('x', 2, 3), f('y', 2, 3), { positiveWeight: f('w', 2) }),
    'bceWithLogits: the positive weight does not broadcast to the logits: w[2] and x[2, 3]',
  ],
  [() => new nn.RNN(3, 4, { activation: 'gelu' as never }), `rnn: activation is "gelu", not 'tanh' or 'relu'`, ArgumentError],
  [() => new nn.LayerNorm(3, { epsilon: 1 } as never), 'layerNorm: there is no option epsilon: did you mean eps? (options: eps, frozen)', ArgumentError],
  [() => new nn.RMSNorm(3, -1), 'rmsNorm: eps is -1, not a finite number over 0', ArgumentError],
  [() => new nn.GroupNorm(4, 6), 'groupNorm: 6 channels do not divide into 4 groups', ArgumentError],
  [() => new nn.BatchNorm(4, { momentum: 2 }), 'batchNorm: momentum is 2, not a number over 0, up to 1', ArgumentError],
  [() => made(new nn.RMSNorm(3)).fwd(f('x', 2, 4)), 'rmsNorm: the last axis does not fit: x[2, 4] with g[3]'],
  [() => made(new nn.GroupNorm(2, 4)).fwd(f('x', 2, 6)), 'groupNorm: axis 1 of [N, C, ...] does not fit: x[2, 6] with g[4]'],
  [() => made(new nn.BatchNorm(4)).fwd(f('x', 1, 4)), 'batchNorm: training needs at least 2 numbers for each channel: x[1, 4]'],
  [() => new nn.Attention(6, 4), 'attention: 6 does not divide into 4 heads', ArgumentError],
  [() => new nn.Attention(8, 4, { kvHeads: 3 }), 'attention: 4 heads do not divide among 3 of keys', ArgumentError],
  [() => new nn.Attention(8, 4, { ropeBase: -1 }), 'attention: ropeBase is -1, not a finite number over 0', ArgumentError],
  [() => new nn.Attention(6, 2, { ropeBase: 100 }), 'attention: rope needs heads of an even size, not 3', ArgumentError],
  [() => new nn.Attention(8, 4, { dropout: 1 } as never), 'attention: there is no option dropout (options: kvHeads, causal, ropeBase, context, bias, init, frozen)', ArgumentError],
  [
    () => nn.attentionWeights(f('q', 2, 4, 3, 2), f('k', 2, 4, 5, 2), { causal: true }),
    'attention: causal attention needs as many keys as queries: 5 and 3',
  ],
  [() => new nn.MLP([3]), 'mlp: at least 2 sizes are needed, of the input and the output', ArgumentError],
  [() => new nn.Sequential(3 as never), 'sequential: layer 0 is the number 3, neither a function nor a module with fwd', ArgumentError],
  [() => nn.splitHeads(f('x', 1, 2, 6), 4), 'splitHeads: the last axis does not divide into 4 heads: x[1, 2, 6]'],
  [() => nn.mergeHeads(f('x', 2, 6)), 'mergeHeads: needs 3 axes at least, [..., H, T, d]: x[2, 6]'],
  [() => nn.splitHeads(f('x', 6), 2), 'splitHeads: needs 2 axes at least, [..., T, H d]: x[6]'],
  [
    () => nn.crossEntropyLast(f('x', 2, 6), i('t', 3)),
    "crossEntropyLast: the targets need the logits' shape without its last axis: x[2, 6] and t[3] i32",
  ],
  [() => nn.crossEntropy(f('x', 2, 6), f('t', 2)), 'crossEntropy: takes i32, not f32: t[2] (with x[2, 6])'],
  [() => nn.mse(f('x', 2, 1), f('y', 2)), 'mse: shapes differ (a loss does not broadcast): x[2, 1] and y[2]'],
  [() => nn.bceWithLogits(f('x', 2, 1), f('y', 2)), 'bceWithLogits: shapes differ (a loss does not broadcast): x[2, 1] and y[2]'],
  [() => layers().linear.fwd(f('x', 3)), 'linear: inner dimensions differ: x[3] x linear.W[2, 3] (3 != 2)'],
  [() => layers().norm.fwd(f('x', 3)), 'layerNorm: the last axis does not fit: x[3] with norm.g[2] and norm.b[2]'],
  [
    () => {
      f('x', 2)
      return f('x', 3)
    },
    'input x: the name is used twice: ',
    DuplicateError,
  ],
  [() => tg.paramInput('tg.x', [2]), 'param tg.x: the name is reserved, like all that begin with tg.', ArgumentError],
  [() => tg.resolveLR(0.1, f('t')), 'resolveLR: the step must be i32, got t[]'],
  [
    () => tg.resolveLR(tg.lr.linearDecay({ peak: 1, final: 0, steps: 0 }), i('t')),
    'resolveLR: a schedule needs 1 to 2147483647 steps, got 0',
    ArgumentError,
  ],
  [() => tg.add(1, 2), 'add: no operand is a tensor: the result would belong to no trace', ArgumentError],
  [() => tg.add(f('x', 2), undefined as never), 'add: operand 2 is undefined, not a tensor', ArgumentError],
  [() => tg.matmul(f('x', 2), { shape: [2] } as never), 'matmul: operand 2 is an Object, not a tensor', ArgumentError],
  [() => tg.relu(2 as never), 'relu: the operand is the number 2, not a tensor', ArgumentError],
)

for (const [body, message, type = ShapeError] of rows)
  test(`refused: ${message}`, () => {
    const error = opError(body as () => Tensor)
    assert.ok(error instanceof type, `${error.name}: ${error.message}`)
    const line = firstLine(error)
    assert.equal(message.endsWith(': ') ? line.slice(0, message.length) : line, message)
    assert.equal(topFile(error), 'api-ops.test.js')
    assert.ok(!/\/src\//.test(error.stack ?? ''), error.stack)
  })

// ---------------------------------------------------------------- where

/** "api-ops.test.js:12" of the line of the call of `here`. */
function here(): string {
  return /api-ops\.test\.js:\d+/.exec((new Error().stack ?? '').split('\n')[2] as string)?.[0] as string
}

test('a message says where operands come from, and the stack begins at the very line', () => {
  let x = '',
    at = ''
  const error = opError(() => {
    const a = ((x = here()), tensorInput('a', [2]))
    return ((at = here()), tg.add(a, tensorInput('b', [3])))
  })
  assert.match(error.message, new RegExp(`^add: .*\\n  a: input at .*${x}:\\d+\\n  b: input at .*${at}:\\d+$`))
  assert.match((error.stack ?? '').split('\n').find((line) => line.startsWith('    at ')) as string, new RegExp(at))
  assert.equal((error as tg.TensorgradError).site?.file.endsWith('api-ops.test.js'), true)
})

test('the same in an engine without captureStackTrace', () => {
  const engine = Error as { captureStackTrace?: unknown }
  const saved = engine.captureStackTrace
  let error: Error
  try {
    delete engine.captureStackTrace
    error = opError(() => tg.add(tensorInput('a', [2]), tensorInput('b', [3])))
  } finally {
    engine.captureStackTrace = saved
  }
  assert.match(error.message, /a: input at .*api-ops\.test\.js:\d+:\d+\n/)
  assert.equal(topFile(error), 'api-ops.test.js')
  assert.equal((error as tg.TensorgradError).site?.file.endsWith('api-ops.test.js'), true)
})

test('places in a program of one line differ by their columns', () => {
  const program = new Function('tg', `return () => tg.trace(() => { const a = tg.tensorInput('a', [2]), b = tg.tensorInput('b', [3]); return tg.add(a, b) })\n//# sourceURL=index.min.js`)
  const error = thrown(program(tg) as () => unknown)
  const [a, b] = [...error.message.matchAll(/input at .*index\.min\.js:(\d+):(\d+)/g)].map((match) => match.slice(1).map(Number))
  assert.ok(a !== undefined && b !== undefined && a[0] === b[0] && (a[1] as number) < (b[1] as number), error.message)
  const { site } = error as tg.TensorgradError
  assert.ok(site !== null && site.file.endsWith('index.min.js') && site.line === a[0] && site.column > (b[1] as number), JSON.stringify(site))
})

test('a caught mistake does not spoil the trace', () => {
  const graph = trace(() => {
    const x = f('x', 2)
    thrown(() => tg.add(x, f('y', 3)))
    return tg.sum(x)
  })
  assert.deepEqual(graph.result.shape, [])
})

// ---------------------------------------------------------------- traces

test('an operation outside a trace', () => {
  for (const [body, name] of [
    [() => tg.zeros([2]), 'full'],
    [() => tg.arange(3), 'arange'],
    [() => tg.randn([3]), 'randn'],
    [() => tg.relu(new nn.Linear(1, 1).W), 'relu'],
    [() => tensorInput('x', [1]), 'input'],
    [() => tg.paramInput('x', [1]), 'param'],
  ] as const) {
    const error = thrown(body)
    assert.ok(error instanceof TraceError)
    assert.equal(error.message, `${name}: outside a trace: operations belong inside the forward function`)
    assert.equal(topFile(error), 'api-ops.test.js')
  }
})

test('a tensor of a trace that has ended', () => {
  const graph = trace(() => tg.relu(f('x', 2)))
  const error = thrown(() => tg.exp(graph.result))
  assert.ok(error instanceof TraceError)
  assert.match(
    error.message,
    /^exp: relu\[2\] belongs to a trace that has ended: operations belong inside the build function\n  relu: computed at /,
  )
})

test('a tensor of another trace', () => {
  const graph = trace(() => tg.relu(f('x', 2)))
  const error = opError(() => tg.add(f('y', 2), graph.result))
  assert.ok(error instanceof TraceError)
  assert.match(firstLine(error), /^add: tensors of different traces: y\[2\] and relu\[2\]$/)
  assert.equal(topFile(error), 'api-ops.test.js')
})

test('a tensor of a trace that failed', () => {
  let kept: Tensor | undefined
  opError(() => {
    kept = f('x', 2)
    throw new Error('mine')
  })
  assert.equal(opError(() => tg.relu(kept as Tensor)).message, 'relu: the operand [2] belongs to a trace that failed')
})

test('a trace inside a trace', () => {
  const error = thrown(() => trace(() => trace(() => tg.zeros([])).result))
  assert.ok(error instanceof TraceError)
  assert.equal(error.message, 'trace: another trace is in progress: a forward function cannot trace or compile')
  assert.equal(topFile(error), 'api-ops.test.js')
})

test('a result of another trace, or none', () => {
  const graph = trace(() => tg.relu(f('x', 2)))
  assert.match(opError(() => graph.result).message, /^trace: the build function returned a tensor of another trace/)
  assert.equal(opError(() => 3 as never).message, 'trace: the forward function returned the number 3, not a tensor')
  assert.match(
    opError(() => new nn.Linear(1, 1).W).message,
    /^trace: the result is a parameter \[1, 1\] .* that the traced model does not reach$/,
  )
})
