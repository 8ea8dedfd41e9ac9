// Operations: names, arguments and defaults. The core computes, knows the shapes that each takes,
// and reports those that do not fit. Broadcasting follows NumPy; axes may be negative.

import { DrawKind, Status } from './boundary.gen.js'
import { dtypeNumber, dtypes } from './core.js'
import { coreNow } from './platform.js'
import { ArgumentError, ShapeError } from './errors.js'
import { anything, checkOptions, flag, oneOf, positive, wholeFromZero, type Kind, type Kinds } from './options.js'
import { call, copyOf, currentTrace, describe, dtypeOfArray, invoke, isTracing, leaf, nameArgument, numberOrTensor, numeric, tensorOperand, whole, wholes, type OpLike, type Tensor } from './tensor.js'
import type { Axes, DataArray, Dtype, NormOptions, Operand, ReduceOptions, RopeOptions, ScanOptions, Shape, SortOptions, VarianceOptions } from './types.js'

function dtypeArgument(op: string, dtype: unknown): number {
  const number = dtypeNumber(dtype as Dtype)
  if (number < 0) throw new ShapeError(`${op}: ${describe(dtype)} is not a dtype (${dtypes.join(', ')})`, Status.dtype)
  return number
}

/** The one number of many operations. */
const along = (op: string, axis: number) => () => ({ axis: whole(op, 'the axis', axis) })

// ---------------------------------------------------------------- elementwise

type Unary = (x: Tensor) => Tensor
function unary(op: OpLike<'neg'>): Unary {
  const f: Unary = (x) => invoke(op, f, [x])
  return f
}

/** -x; f32, i32. */
export const neg = /* @__PURE__ */ unary('neg')
/** |x|; f32, i32. Gradient sign(x), 0 at 0. */
export const abs = /* @__PURE__ */ unary('abs')
/** -1, 0 or 1; NaN stays NaN. Gradient 0. */
export const sign = /* @__PURE__ */ unary('sign')
/** x x; f32, i32. */
export const square = /* @__PURE__ */ unary('square')
export const sqrt = /* @__PURE__ */ unary('sqrt')
/** 1 / sqrt x. */
export const rsqrt = /* @__PURE__ */ unary('rsqrt')
/** 1 / x. */
export const reciprocal = /* @__PURE__ */ unary('reciprocal')
export const exp = /* @__PURE__ */ unary('exp')
export const log = /* @__PURE__ */ unary('log')
/** e^x - 1, accurate near 0. */
export const expm1 = /* @__PURE__ */ unary('expm1')
/** log(1 + x), accurate near 0. */
export const log1p = /* @__PURE__ */ unary('log1p')
/** Largest whole number <= x. Gradient 0. */
export const floor = /* @__PURE__ */ unary('floor')
/** Smallest whole number >= x. Gradient 0. */
export const ceil = /* @__PURE__ */ unary('ceil')
/** Nearest whole number, halves to the even one. Gradient 0. */
export const round = /* @__PURE__ */ unary('round')
/** Absolute error under 1e-6 for |x| up to 1e5. */
export const sin = /* @__PURE__ */ unary('sin')
/** Absolute error under 1e-6 for |x| up to 1e5. */
export const cos = /* @__PURE__ */ unary('cos')
/** sin x / cos x. */
export const tan = /* @__PURE__ */ unary('tan')
export const tanh = /* @__PURE__ */ unary('tanh')
export const erf = /* @__PURE__ */ unary('erf')
/** 1 / (1 + e^-x), without overflow. */
export const sigmoid = /* @__PURE__ */ unary('sigmoid')
/** log(1 + e^x). */
export const softplus = /* @__PURE__ */ unary('softplus')
/** log(sigmoid(x)) = -softplus(-x). */
export const logSigmoid = /* @__PURE__ */ unary('log_sigmoid')
/** min(max(x / 6 + 1/2, 0), 1). */
export const hardSigmoid = /* @__PURE__ */ unary('hard_sigmoid')
/** x hardSigmoid(x). */
export const hardSwish = /* @__PURE__ */ unary('hard_swish')
/** x sigmoid(x). */
export const silu = /* @__PURE__ */ unary('silu')
/** x (1 + erf(x / sqrt 2)) / 2, the exact form. */
export const gelu = /* @__PURE__ */ unary('gelu')
/** The tanh approximation of gelu. */
export const geluTanh = /* @__PURE__ */ unary('gelu_tanh')
/** max(x, 0); NaN stays NaN. Gradient 1 for x > 0, else 0. */
export const relu = /* @__PURE__ */ unary('relu')
/** bool -> bool. */
export const logicalNot = /* @__PURE__ */ unary('logical_not')
/** x; its gradient is 0. */
export const stopGradient = /* @__PURE__ */ unary('stop_gradient')

/** x > 0 ? x : slope x. Gradient slope at 0. */
export function leakyRelu(x: Tensor, slope = 0.01): Tensor {
  return invoke('leaky_relu', leakyRelu, [x], () => ({ slope: numeric('leaky_relu', 'the slope', slope) }))
}
/** x > 0 ? x : alpha (e^x - 1). */
export function elu(x: Tensor, alpha = 1): Tensor {
  return invoke('elu', elu, [x], () => ({ alpha: numeric('elu', 'alpha', alpha) }))
}

type Binary = (a: Operand, b: Operand) => Tensor
function binary(op: OpLike<'add'>): Binary {
  const f: Binary = (a, b) => invoke(op, f, [a, b], undefined, true)
  return f
}

export const add = /* @__PURE__ */ binary('add')
export const sub = /* @__PURE__ */ binary('sub')
export const mul = /* @__PURE__ */ binary('mul')
/** i32: truncates towards 0; by 0 gives 0. */
export const div = /* @__PURE__ */ binary('div')
/** floor(a / b); i32 by 0 gives 0. Gradient 0. */
export const floorDiv = /* @__PURE__ */ binary('floor_div')
/** a - b floorDiv(a, b): the sign of b. i32 by 0 gives a. */
export const mod = /* @__PURE__ */ binary('mod')
export const pow = /* @__PURE__ */ binary('pow')
/** NaN wins; a tie shares its gradient half and half. */
export const minimum = /* @__PURE__ */ binary('minimum')
/** NaN wins; a tie shares its gradient half and half. */
export const maximum = /* @__PURE__ */ binary('maximum')
/** Result bool, no gradient; the same holds for the next five. */
export const less = /* @__PURE__ */ binary('less')
export const lessEqual = /* @__PURE__ */ binary('less_equal')
export const greater = /* @__PURE__ */ binary('greater')
export const greaterEqual = /* @__PURE__ */ binary('greater_equal')
export const equal = /* @__PURE__ */ binary('equal')
export const notEqual = /* @__PURE__ */ binary('not_equal')
export const logicalAnd = /* @__PURE__ */ binary('logical_and')
export const logicalOr = /* @__PURE__ */ binary('logical_or')

/** min(max(x, lo), hi); NaN stays NaN. */
export function clamp(x: Tensor, lo: number, hi: number): Tensor {
  return invoke('clamp', clamp, [x], () => ({ lo: numeric('clamp', 'lo', lo), hi: numeric('clamp', 'hi', hi) }))
}

/** condition ? a : b, three-way broadcast. The branch not taken gets gradient 0. */
export function where(condition: Tensor, a: Operand, b: Operand): Tensor {
  return invoke('where', where, [condition, a, b], undefined, true)
}

/** float -> int truncates and saturates, NaN gives 0; anything non-zero is true. */
export function cast(x: Tensor, dtype: Dtype): Tensor {
  return invoke('cast', cast, [x], () => ({ dtype: dtypeArgument('cast', dtype) }))
}

// ---------------------------------------------------------------- reductions

const keepDims: Kinds = { keepDims: flag }
type Reduce = (x: Tensor, axes?: Axes, options?: ReduceOptions) => Tensor
interface Reduced {
  axes: readonly number[] | null
  keepdims: boolean | undefined
}
function reduced(op: string, axes: Axes | undefined, options: ReduceOptions = {}, kinds: Kinds = keepDims): Reduced {
  checkOptions(op, options, kinds)
  const list = axes === undefined ? null : typeof axes === 'number' ? [whole(op, 'the axis', axes)] : wholes(op, 'axes', axes)
  return { axes: list, keepdims: options.keepDims }
}
function reduce(op: OpLike<'sum'>): Reduce {
  const f: Reduce = (x, axes, options) => invoke(op, f, [x], () => reduced(op, axes, options))
  return f
}

/** Over the given axes, which are dropped unless keepDims; over everything without axes (rank 0).
 *  f32, i32. */
export const sum = /* @__PURE__ */ reduce('sum')
export const mean = /* @__PURE__ */ reduce('mean')
/** NaN wins; tied elements share the gradient equally. For the larger of two tensors see
 *  `maximum`. */
export const max = /* @__PURE__ */ reduce('max')
export const min = /* @__PURE__ */ reduce('min')

export const prod = /* @__PURE__ */ reduce('prod')
/** bool -> bool: whether any is true. */
export const any = /* @__PURE__ */ reduce('any')
/** bool -> bool: whether all are true. */
export const all = /* @__PURE__ */ reduce('all')

type Spread<O extends ReduceOptions> = (x: Tensor, axes?: Axes, options?: O) => Tensor
function spread<O extends ReduceOptions>(op: 'variance' | 'std' | 'norm', name: keyof O & string, kind: Kind): Spread<O> {
  const kinds = { ...keepDims, [name]: kind }
  const f: Spread<O> = (x, axes, options) =>
    invoke(op, f, [x], () => ({ ...reduced(op, axes, options, kinds), [name]: options?.[name] as number | undefined }))
  return f
}
/** sum((x - mean(x))^2) / (n - correction). */
export const variance = /* @__PURE__ */ spread<VarianceOptions>('variance', 'correction', wholeFromZero)
/** sqrt(variance); gradient 0 where it is 0. */
export const std = /* @__PURE__ */ spread<VarianceOptions>('std', 'correction', wholeFromZero)
/** sum |x|, sqrt(sum x^2) (gradient 0 where it is 0) or max |x|. */
export const norm = /* @__PURE__ */ spread<NormOptions>('norm', 'ord', /* @__PURE__ */ oneOf(1, 2, Infinity))

type Scan = (x: Tensor, axis?: number, options?: ScanOptions) => Tensor
function scan(op: 'cumsum' | 'cumprod'): Scan {
  const f: Scan = (x, axis = -1, options = {}) =>
    invoke(op, f, [x], () => {
      checkOptions(op, options, { exclusive: flag, reverse: flag })
      return { ...along(op, axis)(), exclusive: options.exclusive, reverse: options.reverse }
    })
  return f
}
/** Sums of all up to each along the axis (the last one by default). */
export const cumsum = /* @__PURE__ */ scan('cumsum')
/** Products of all up to each; a 0 does no harm to the gradient. */
export const cumprod = /* @__PURE__ */ scan('cumprod')

type Arg = (x: Tensor, axis?: number, options?: ReduceOptions) => Tensor
function arg(op: 'argmax' | 'argmin'): Arg {
  const f: Arg = (x, axis = -1, options = {}) =>
    invoke(op, f, [x], () => {
      checkOptions(op, options, keepDims)
      return { ...along(op, axis)(), keepdims: options.keepDims }
    })
  return f
}
/** i32 index of the first largest element along the axis (the last one by default). No gradient. */
export const argmax = /* @__PURE__ */ arg('argmax')
export const argmin = /* @__PURE__ */ arg('argmin')

/** Mean over the last axis, which stays as 1. */
export function meanLast(x: Tensor): Tensor {
  return invoke('mean', meanLast, [x], () => ({ axes: [-1], keepdims: true }))
}
/** Sum over the last axis, which is dropped. */
export function sumLast(x: Tensor): Tensor {
  return invoke('sum', sumLast, [x], () => ({ axes: [-1] }))
}
/** Sum of everything, rank 0. */
export function sumAll(x: Tensor): Tensor {
  return invoke('sum', sumAll, [x], () => ({ axes: null }))
}

// ---------------------------------------------------------------- views and joins

/** The same elements in row-major order; one dim may be -1. */
export function reshape(x: Tensor, shape: Shape): Tensor {
  return invoke('reshape', reshape, [x], () => ({ shape: wholes('reshape', 'shape', shape) }))
}

/** y.shape[i] = x.shape[perm[i]]. */
export function transpose(x: Tensor, perm: readonly number[]): Tensor {
  return invoke('transpose', transpose, [x], () => ({ perm: wholes('transpose', 'perm', perm) }))
}

export function swapAxes(x: Tensor, a: number, b: number): Tensor {
  return invoke('swap_axes', swapAxes, [x], () => ({ a: whole('swap_axes', 'the first axis', a), b: whole('swap_axes', 'the second axis', b) }))
}

export function broadcastTo(x: Tensor, shape: Shape): Tensor {
  return invoke('broadcast_to', broadcastTo, [x], () => ({ shape: wholes('broadcast_to', 'shape', shape) }))
}

/** x[..., start:end]. */
export function sliceLastRange(x: Tensor, start: number, end: number): Tensor {
  const op = 'slice_last_range'
  return invoke(op, sliceLastRange, [x], () => ({ start: whole(op, 'start', start), end: whole(op, 'end', end) }))
}

/** Elements start .. start + length - 1 along one axis. */
export function narrow(x: Tensor, axis: number, start: number, length: number): Tensor {
  return invoke('narrow', narrow, [x], () => ({
    axis: whole('narrow', 'the axis', axis), start: whole('narrow', 'start', start), length: whole('narrow', 'length', length),
  }))
}

/** Drops axes of 1 element: these, or without axes every such axis. */
export function squeeze(x: Tensor, axes?: Axes): Tensor {
  return invoke('squeeze', squeeze, [x], () => ({ axes: reduced('squeeze', axes).axes }))
}
/** A new axis of 1 element, where `axis` counts in the result. */
export function expandDims(x: Tensor, axis: number): Tensor {
  return invoke('expand_dims', expandDims, [x], along('expand_dims', axis))
}
/** The axes (without: all) from back to front. */
export function flip(x: Tensor, axes?: Axes): Tensor {
  return invoke('flip', flip, [x], () => ({ axes: reduced('flip', axes).axes }))
}
/** `widths[i]`: how many elements of `value` before axis i and how many after it. */
export function pad(x: Tensor, widths: readonly (readonly [number, number])[], value = 0): Tensor {
  return invoke('pad', pad, [x], () => {
    if (!Array.isArray(widths)) throw new ArgumentError(`pad: the widths are ${describe(widths)}, not an array of pairs`)
    const pairs = (widths as readonly unknown[]).map((pair, i) => {
      const counts = wholes('pad', `widths[${i}]`, pair)
      if (counts.length !== 2) throw new ArgumentError(`pad: widths[${i}] has ${counts.length} numbers, not before and after`)
      return counts as [number, number]
    })
    return { before: pairs.map(([before]) => before), after: pairs.map(([, after]) => after), value: numeric('pad', 'the value', value) }
  })
}
/** y[i] = x[(i - shift) mod n]. */
export function roll(x: Tensor, shift: number, axis = -1): Tensor {
  return invoke('roll', roll, [x], () => ({ shift: whole('roll', 'the shift', shift), axis: whole('roll', 'the axis', axis) }))
}
/** Axis i `times[i]` times over: a b a b. */
export function tile(x: Tensor, times: readonly number[]): Tensor {
  return invoke('tile', tile, [x], () => ({ times: wholes('tile', 'times', times) }))
}
/** Each element `times` times along the axis: a a b b. */
export function repeat(x: Tensor, times: number, axis = -1): Tensor {
  return invoke('repeat', repeat, [x], () => ({ times: whole('repeat', 'times', times), axis: whole('repeat', 'the axis', axis) }))
}
/** Parts along an axis: a number of equal ones, or of these sizes, which must add up to it. */
export function split(x: Tensor, parts: number | readonly number[], axis = -1): Tensor[] {
  return call(split, (site) => {
    const trace = currentTrace('split')
    const sizes = typeof parts === 'number' ? whole('split', 'the number of parts', parts) : wholes('split', 'sizes', parts)
    return coreNow()
      .split(site, tensorOperand('split', x, 'the operand'), whole('split', 'the axis', axis), sizes)
      .map((id) => trace.tensor(id))
  })
}

function join(op: 'concat' | 'stack', above: unknown, parts: readonly Tensor[], axis: number): Tensor {
  if (!Array.isArray(parts) || parts.length === 0)
    return call(above, () => {
      throw new ArgumentError(`${op}: the parts are ${Array.isArray(parts) ? 'an empty array' : describe(parts)}`)
    })
  return invoke(op, above, parts, along(op, axis))
}
/** Parts one after another along an axis. */
export function concat(parts: readonly Tensor[], axis: number): Tensor {
  return join('concat', concat, parts, axis)
}
/** Joins parts of one shape along a new axis. */
export function stack(parts: readonly Tensor[], axis: number): Tensor {
  return join('stack', stack, parts, axis)
}

// ---------------------------------------------------------------- contractions, indexing

type Pair = (a: Tensor, b: Tensor) => Tensor
function pair(op: OpLike<'matmul'>): Pair {
  const f: Pair = (a, b) => invoke(op, f, [a, b])
  return f
}
/** [batch..., M, K] x [batch..., K, N] -> [batch..., M, N]; batch dims broadcast; [K] is a row on
 *  the left, a column on the right. */
export const matmul = /* @__PURE__ */ pair('matmul')
/** The same, of matrices alone. */
export const matmulBatched = /* @__PURE__ */ pair('matmul_batched')

/** Rows of a table [V, D] by i32 indices [...] -> [..., D]. An index outside [0, V) rejects the
 *  step or run. */
export function embedding(table: Tensor, indices: Tensor): Tensor {
  return invoke('embedding', embedding, [table, indices])
}

/** i32 [...] -> [..., depth]. An index outside [0, depth) rejects the step or run. */
export function oneHot(indices: Tensor, depth: number, dtype: Dtype = 'f32'): Tensor {
  return invoke('one_hot', oneHot, [indices], () => ({ depth: whole('one_hot', 'the depth', depth), dtype: dtypeArgument('one_hot', dtype) }))
}

/** x [A.., n, B..] by i32 indices [I..] into the axis (the first by default) -> [A.., I.., B..]. An
 *  index outside [0, n) rejects the step or run, as in the next two. */
export function gather(x: Tensor, indices: Tensor, axis = 0): Tensor {
  return invoke('gather', gather, [x, indices], along('gather', axis))
}
/** y[.., i, ..] = x[.., indices[.., i, ..], ..]: indices have the shape of x, except along the
 *  axis. */
export function takeAlongAxis(x: Tensor, indices: Tensor, axis = -1): Tensor {
  return invoke('take_along_axis', takeAlongAxis, [x, indices], along('take_along_axis', axis))
}
/** x plus the slices of `updates`, each added to the slice of x that its index names. */
export function scatterAdd(x: Tensor, indices: Tensor, updates: Tensor, axis = 0): Tensor {
  return invoke('scatter_add', scatterAdd, [x, indices, updates], along('scatter_add', axis))
}

type Order = (x: Tensor, axis?: number, options?: SortOptions) => Tensor
function order(op: 'sort' | 'argsort'): Order {
  const f: Order = (x, axis = -1, options = {}) =>
    invoke(op, f, [x], () => {
      checkOptions(op, options, { descending: flag })
      return { ...along(op, axis)(), descending: options.descending }
    })
  return f
}
/** Elements of an axis in order: stable, NaN last; n^2 comparisons. The gradient goes back where
 *  each came from. */
export const sort = /* @__PURE__ */ order('sort')
/** i32 positions that sort. No gradient. */
export const argsort = /* @__PURE__ */ order('argsort')
/** The k largest of an axis, largest first, and their i32 positions. */
export function topK(x: Tensor, k: number, axis = -1): { values: Tensor; indices: Tensor } {
  const part = (indices: boolean) => invoke('top_k', topK, [x], () => ({ k: whole('top_k', 'k', k), axis: whole('top_k', 'the axis', axis), indices }))
  return { values: part(false), indices: part(true) }
}

/** Einstein summation: `einsum('bij,jk->bik', x, w)`. */
export function einsum(equation: string, ...operands: readonly Tensor[]): Tensor {
  if (typeof equation !== 'string' || operands.length === 0)
    return call(einsum, () => {
      const what = typeof equation === 'string' ? 'there are no operands' : `the equation is ${describe(equation)}, not a string`
      throw new ArgumentError(`einsum: ${what}`)
    })
  return invoke('einsum', einsum, operands, () => ({ equation }))
}

/** Rotary position embedding of x [..., T, D]: pair i at position t is turned by t base^(-2 i /
 *  D). */
export function rope(x: Tensor, options: RopeOptions = {}): Tensor {
  const positions = options?.positions
  return invoke('rope', rope, positions === undefined ? [x] : [x, positions], () => {
    checkOptions('rope', options, { base: positive, interleaved: flag, positions: anything })
    return { base: options.base, interleaved: options.interleaved }
  })
}

// ---------------------------------------------------------------- the softmax family

type AlongAxis = (x: Tensor, axis?: number) => Tensor
function alongAxis(op: OpLike<'softmax'>): AlongAxis {
  const f: AlongAxis = (x, axis = -1) => invoke(op, f, [x], along(op, axis))
  return f
}
export const softmax = /* @__PURE__ */ alongAxis('softmax')
export const logSoftmax = /* @__PURE__ */ alongAxis('log_softmax')
/** log(sum(exp x)) along the axis, which is dropped. */
export const logsumexp = /* @__PURE__ */ alongAxis('logsumexp')
export function logSoftmaxLast(x: Tensor): Tensor {
  return invoke('log_softmax', logSoftmaxLast, [x], () => ({ axis: -1 }))
}
/** softmax over the elements where the bool mask, which broadcasts to x, is true; 0 elsewhere. A
 *  row that hides everything is 0. */
export function maskedSoftmax(x: Tensor, mask: Tensor, axis = -1): Tensor {
  return invoke('masked_softmax', maskedSoftmax, [x, mask], along('masked_softmax', axis))
}
/** The last two axes' lower triangle, column <= row + diagonal, 0 (false) elsewhere. */
export function tril(x: Tensor, diagonal = 0): Tensor {
  return invoke('tril', tril, [x], () => ({ diagonal: whole('tril', 'the diagonal', diagonal) }))
}
/** The upper triangle, column >= row + diagonal. */
export function triu(x: Tensor, diagonal = 0): Tensor {
  return invoke('triu', triu, [x], () => ({ diagonal: whole('triu', 'the diagonal', diagonal) }))
}
/** [..., T, T]: row i sees columns 0 .. i. */
export const softmaxCausalLast = /* @__PURE__ */ unary('softmax_causal_last')
/** [..., T, T]: columns > row become `fill`. */
export function whereCausal(x: Tensor, fill: number): Tensor {
  return invoke('where_causal', whereCausal, [x], () => ({ fill: numeric('where_causal', 'the fill', fill) }))
}

// ---------------------------------------------------------------- random numbers
// Every step and run draws anew, from the seed, the number of the step and the operation's position
// in the trace: the same on every platform. Runs have their own count and do not change what steps
// draw; `reset` begins again. No gradient goes through a draw.

/** f32, uniform in [0, 1). */
export function rand(shape: Shape): Tensor {
  return leaf('rand', rand, (site, trace) => coreNow().draw(site, trace.graph, DrawKind.rand, wholes('rand', 'shape', shape)))
}
/** f32, normal with mean 0 and standard deviation 1; always finite. */
export function randn(shape: Shape): Tensor {
  return leaf('randn', randn, (site, trace) => coreNow().draw(site, trace.graph, DrawKind.randn, wholes('randn', 'shape', shape)))
}
/** i32, uniform in [lo, hi). */
export function randInt(shape: Shape, lo: number, hi: number): Tensor {
  return leaf('rand_int', randInt, (site, trace) => {
    const ends = [whole('rand_int', 'lo', lo), whole('rand_int', 'hi', hi)] as const
    return coreNow().draw(site, trace.graph, DrawKind.randInt, wholes('rand_int', 'shape', shape), ...ends)
  })
}
/** bool, true with probability p: a number in [0, 1], or an f32 tensor that broadcasts to the
 *  shape. */
export function bernoulli(shape: Shape, p: Operand): Tensor {
  return leaf('bernoulli', bernoulli, (site, trace) => {
    const chance = numberOrTensor('bernoulli', p, 'p')
    return coreNow().draw(site, trace.graph, DrawKind.bernoulli, wholes('bernoulli', 'shape', shape), 0, 0, chance)
  })
}
/** i32: index i along the axis (the last one by default), which is dropped, with probability
 *  softmax(logits)[i]. */
export const categorical = /* @__PURE__ */ alongAxis('categorical')
/** x / (1 - p) with probability 1 - p, else 0; p in [0, 1), 0 is x. It drops in runs too;
 *  `nn.Dropout` does not when predicting. */
export function dropout(x: Tensor, p: number): Tensor {
  return invoke('dropout', dropout, [x], () => ({ p: numeric('dropout', 'p', p) }))
}

// ---------------------------------------------------------------- leaves

export function full(shape: Shape, value: number, dtype: Dtype = 'f32'): Tensor {
  return leaf('full', full, (site, trace) => {
    dtypeArgument('full', dtype)
    return coreNow().full(site, trace.graph, wholes('full', 'shape', shape), numeric('full', 'the value', value), dtype)
  })
}
export function zeros(shape: Shape, dtype: Dtype = 'f32'): Tensor {
  return leaf('full', zeros, (site, trace) => coreNow().full(site, trace.graph, wholes('zeros', 'shape', shape), 0, dtype))
}
export function ones(shape: Shape, dtype: Dtype = 'f32'): Tensor {
  return leaf('full', ones, (site, trace) => coreNow().full(site, trace.graph, wholes('ones', 'shape', shape), 1, dtype))
}

/** [0, 1, .. n - 1]; i32 or f32. */
export function arange(n: number, dtype: Dtype = 'i32'): Tensor {
  return leaf('arange', arange, (site, trace) => {
    dtypeArgument('arange', dtype)
    return coreNow().arange(site, trace.graph, whole('arange', 'n', n), dtype)
  })
}

/** Fixed values, copied: Float32Array is f32, Int32Array i32, Uint8Array bool. */
export function constant(shape: Shape, data: DataArray): Tensor {
  return leaf('constant', constant, (site, trace) => {
    const dtype = dtypeOfArray(data)
    if (dtype === null) throw new ArgumentError(`constant: the data is ${describe(data)}, not a Float32Array, Int32Array or Uint8Array`)
    return coreNow().constant(site, trace.graph, wholes('constant', 'shape', shape), dtype, copyOf(data))
  })
}

// ---------------------------------------------------------------- captures, gradients, writebacks

/** Names t, so that a step or run with `withCaptures` brings back its value. Returns t; outside a
 *  trace it does only that. */
export function capture(name: string, t: Tensor): Tensor {
  if (!isTracing()) return t
  return call(capture, (site) => {
    const { graph, id } = tensorOperand('capture', t, 'the operand')
    coreNow().capture(site, nameArgument('capture', name), graph, id)
    return t
  })
}

function tensorList(op: string, values: readonly Tensor[]): { graph: number; id: number }[] {
  if (!Array.isArray(values)) throw new ArgumentError(`${op}: wrt is ${describe(values)}, not an array of tensors`)
  return values.map((value, i) => tensorOperand(op, value, `wrt[${i}]`))
}

/** d loss / d wrt[i], ordinary tensors of the trace, which can be differentiated again. */
export function grad(loss: Tensor, wrt: readonly Tensor[]): Tensor[] {
  return call(grad, (site) => {
    const trace = currentTrace('grad')
    return coreNow()
      .grad(site, tensorOperand('grad', loss, 'the loss'), tensorList('grad', wrt))
      .map((id) => trace.tensor(id))
  })
}

/** sum_j cotangent_j d y_j / d wrt[i]. */
export function vjp(y: Tensor, cotangent: Tensor, wrt: readonly Tensor[]): Tensor[] {
  return call(vjp, (site) => {
    const trace = currentTrace('vjp')
    const of = [tensorOperand('vjp', y, 'y'), tensorOperand('vjp', cotangent, 'the cotangent')] as const
    return coreNow()
      .vjp(site, of[0], of[1], tensorList('vjp', wrt))
      .map((id) => trace.tensor(id))
  })
}

/** After the step, `destination` (a parameter or state of this trace) holds `source`. All
 *  writebacks read values from before the step's writebacks. */
export function writeback(destination: Tensor, source: Tensor): void {
  call(writeback, (site) => {
    const to = tensorOperand('writeback', destination, 'the destination')
    coreNow().writeback(site, to, tensorOperand('writeback', source, 'the source'))
    currentTrace('writeback').changes = true
  })
}
