// Values of every operation and gradient on small inputs, by definition or from float64, which each
// platform must give. Many cases share one graph; each result is a capture. Used in Node and in the
// browser.

import {
  abs,
  add,
  all as allOf,
  any,
  arange,
  argmax,
  argmin,
  avgPool1d,
  avgPool2d,
  bernoulli,
  broadcastTo,
  capture,
  cast,
  categorical,
  argsort,
  ceil,
  clamp,
  compileGraph,
  concat,
  conv1d,
  conv2d,
  convTranspose2d,
  cos,
  cumprod,
  cumsum,
  div,
  dropout,
  einsum,
  elu,
  embedding,
  equal,
  erf,
  exp,
  expandDims,
  expm1,
  flip,
  floor,
  floorDiv,
  full,
  gather,
  gelu,
  geluTanh,
  globalAvgPool,
  globalMaxPool,
  grad,
  greater,
  greaterEqual,
  hardSigmoid,
  hardSwish,
  leakyRelu,
  less,
  lessEqual,
  log,
  log1p,
  logicalAnd,
  logicalNot,
  logicalOr,
  logSigmoid,
  logSoftmax,
  logSoftmaxLast,
  logsumexp,
  matmul,
  matmulBatched,
  maskedSoftmax,
  max,
  maximum,
  maxPool2d,
  mean,
  meanLast,
  min,
  minimum,
  mod,
  mul,
  narrow,
  neg,
  nn,
  norm,
  notEqual,
  oneHot,
  ones,
  pad,
  pow,
  rand,
  randInt,
  randn,
  prod,
  reciprocal,
  relu,
  repeat,
  reshape,
  roll,
  rope,
  round,
  rsqrt,
  scatterAdd,
  sigmoid,
  sign,
  silu,
  sin,
  sliceLastRange,
  softmax,
  softmaxCausalLast,
  softplus,
  sort,
  split,
  sqrt,
  square,
  squeeze,
  std,
  stack,
  stopGradient,
  sub,
  sum,
  sumAll,
  sumLast,
  swapAxes,
  takeAlongAxis,
  tan,
  tanh,
  tile,
  topK,
  tensorInput,
  trace,
  transpose,
  upsampleBilinear,
  upsampleNearest,
  tril,
  triu,
  variance,
  vjp,
  where,
  whereCausal,
  zeros,
  type DataArray,
  type Device,
  type Dtype,
  type Shape,
  type Tensor,
} from '../src/index.js'

type Values = readonly (number | boolean)[]
interface Input {
  shape: Shape
  dtype: Dtype
  data: Values
}
type Inputs = Record<string, Tensor>
export interface Case {
  name: string
  inputs: Record<string, Input>
  /** The tensors to look at, by name. */
  build(inputs: Inputs): Record<string, Tensor>
  expect: Record<string, Values>
  /** Default 1e-5 relative, 1e-6 absolute. */
  rtol?: number
  atol?: number
}

const f = (shape: Shape, ...data: number[]): Input => ({ shape, dtype: 'f32', data })
const i = (shape: Shape, ...data: number[]): Input => ({ shape, dtype: 'i32', data })
const b = (shape: Shape, ...data: number[]): Input => ({ shape, dtype: 'bool', data })
const all: Case[] = []
function check(
  name: string,
  inputs: Case['inputs'],
  build: (x: Inputs) => Record<string, Tensor>,
  expect: Case['expect'],
  tolerance: Partial<Case> = {},
) {
  all.push({ name, inputs, build, expect, ...tolerance })
}
const T = (inputs: Inputs, name: string) => inputs[name] as Tensor
/** y and the cotangents of x for the cotangent c. */
const back = (y: Tensor, x: Inputs, ...wrt: string[]): Record<string, Tensor> => {
  const grads = vjp(
    y,
    T(x, 'c'),
    wrt.map((name) => T(x, name)),
  )
  return { y, ...Object.fromEntries(wrt.map((name, n) => [`d${name}`, grads[n] as Tensor])) }
}

// ---------------------------------------------------------------- one operand: value and derivative at some points

const erfOf = (x: number): number => {
  // series, float64
  let term = x,
    total = x
  for (let n = 1; n < 60; n++) total += (term *= (-x * x) / n) / (2 * n + 1)
  return (2 / Math.sqrt(Math.PI)) * total
}
const sigmoidOf = (x: number) => 1 / (1 + Math.exp(-x))
const phi = (x: number) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI)
const k = Math.sqrt(2 / Math.PI)
const geluInner = (x: number) => k * (x + 0.044715 * x ** 3)
type Point = [op: (x: Tensor) => Tensor, value: (x: number) => number, slope: (x: number) => number, at?: number[]]
const SPREAD = [-2.5, -1, -0.25, 0.5, 1.5, 3]
const POSITIVE = [0.25, 0.5, 1, 1.75, 9, 100]
const unary: Record<string, Point> = {
  neg: [neg, (x) => -x, () => -1],
  abs: [abs, Math.abs, Math.sign, [-2, 0, 3]],
  sign: [sign, Math.sign, () => 0, [-2, 0, 3]],
  square: [square, (x) => x * x, (x) => 2 * x],
  sqrt: [sqrt, Math.sqrt, (x) => 0.5 / Math.sqrt(x), POSITIVE],
  rsqrt: [rsqrt, (x) => x ** -0.5, (x) => -0.5 * x ** -1.5, POSITIVE],
  reciprocal: [reciprocal, (x) => 1 / x, (x) => -1 / (x * x)],
  exp: [exp, Math.exp, Math.exp],
  log: [log, Math.log, (x) => 1 / x, POSITIVE],
  sin: [sin, Math.sin, Math.cos, [-3, 0.5, 100, 1e4, 1e5]],
  cos: [cos, Math.cos, (x) => -Math.sin(x), [-3, 0.5, 100, 1e4, 1e5]],
  tanh: [tanh, Math.tanh, (x) => 1 - Math.tanh(x) ** 2],
  erf: [erf, erfOf, (x) => (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x)],
  sigmoid: [sigmoid, sigmoidOf, (x) => sigmoidOf(x) * (1 - sigmoidOf(x))],
  softplus: [softplus, (x) => Math.log1p(Math.exp(x)), sigmoidOf],
  expm1: [expm1, Math.expm1, Math.exp, [-20, -0.25, 1e-6, 0.25, 3]],
  log1p: [log1p, Math.log1p, (x) => 1 / (1 + x), [-0.75, -1e-6, 1e-6, 0.25, 100]],
  floor: [floor, Math.floor, () => 0, [-2.5, -0.25, 1.75, 3]],
  ceil: [ceil, Math.ceil, () => 0, [-2.5, -0.25, 1.75, 3]],
  round: [round, (x) => 2 * Math.round(x / 2 + Math.sign(x % 1) * 1e-9), () => 0, [-2.5, -1.5, 0.5, 1.5, 2.5]],
  tan: [tan, Math.tan, (x) => 1 + Math.tan(x) ** 2, [-1.25, -0.25, 0.5]],
  logSigmoid: [logSigmoid, (x) => -Math.log1p(Math.exp(-x)), (x) => sigmoidOf(-x)],
  hardSigmoid: [hardSigmoid, (x) => Math.min(Math.max(x / 6 + 0.5, 0), 1), (x) => (Math.abs(x) < 3 ? 1 / 6 : 0), [-4, -2.5, 1, 4]],
  hardSwish: [
    hardSwish,
    (x) => x * Math.min(Math.max(x / 6 + 0.5, 0), 1),
    (x) => (x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5),
    [-4, -2.5, 1, 4],
  ],
  leakyRelu: [(x) => leakyRelu(x, 0.25), (x) => (x > 0 ? x : 0.25 * x), (x) => (x > 0 ? 1 : 0.25), [-2, 0, 3]],
  elu: [(x) => elu(x, 2), (x) => (x > 0 ? x : 2 * Math.expm1(x)), (x) => (x > 0 ? 1 : 2 * Math.exp(x)), [-2, 0, 3]],
  silu: [silu, (x) => x * sigmoidOf(x), (x) => sigmoidOf(x) * (1 + x * (1 - sigmoidOf(x)))],
  gelu: [gelu, (x) => (x * (1 + erfOf(x / Math.SQRT2))) / 2, (x) => (1 + erfOf(x / Math.SQRT2)) / 2 + x * phi(x)],
  geluTanh: [
    geluTanh,
    (x) => 0.5 * x * (1 + Math.tanh(geluInner(x))),
    (x) => 0.5 * (1 + Math.tanh(geluInner(x))) + 0.5 * x * (1 - Math.tanh(geluInner(x)) ** 2) * k * (1 + 3 * 0.044715 * x * x),
  ],
  relu: [relu, (x) => Math.max(x, 0), (x) => Number(x > 0)],
  stopGradient: [stopGradient, (x) => x, () => 0],
}
for (const [name, [op, value, slope, at = SPREAD]] of Object.entries(unary)) {
  const points = at.map(Math.fround),
    c = points.map((_, n) => (n % 3) - 0.5)
  check(
    name,
    { x: f([at.length], ...points), c: f([at.length], ...c) },
    (x) => back(op(T(x, 'x')), x, 'x'),
    { y: points.map(value), dx: points.map((x, n) => slope(x) * (c[n] as number)) },
    { rtol: 2e-5, atol: 2e-6 },
  )
}

// ---------------------------------------------------------------- two operands

const A = [-2, 0.5, 3, 7],
  B = [4, 0.5, -1.5, 2]
const pairs = <R>(fn: (a: number, b: number) => R) => A.map((a, n) => fn(a, B[n] as number))
type Two = [op: (a: Tensor | number, b: Tensor | number) => Tensor, value: (a: number, b: number) => number]
const binary: Record<string, Two> = {
  add: [add, (a, b) => a + b],
  sub: [sub, (a, b) => a - b],
  mul: [mul, (a, b) => a * b],
  div: [div, (a, b) => a / b],
  floorDiv: [floorDiv, (a, b) => Math.floor(a / b)],
  mod: [mod, (a, b) => a - b * Math.floor(a / b)],
  minimum: [minimum, Math.min],
  maximum: [maximum, Math.max],
  less: [less, (a, b) => Number(a < b)],
  lessEqual: [lessEqual, (a, b) => Number(a <= b)],
  greater: [greater, (a, b) => Number(a > b)],
  greaterEqual: [greaterEqual, (a, b) => Number(a >= b)],
  equal: [equal, (a, b) => Number(a === b)],
  notEqual: [notEqual, (a, b) => Number(a !== b)],
}
for (const [name, [op, value]] of Object.entries(binary))
  check(
    name,
    { a: f([4], ...A), b: f([4], ...B) },
    ({ a, b }) => ({ y: op(a as Tensor, b as Tensor), right: op(a as Tensor, 0.5), left: op(0.5, b as Tensor) }),
    { y: pairs(value), right: A.map((a) => value(a, 0.5)), left: B.map((x) => value(0.5, x)) },
  )

check(
  'i32 wraps, divides towards 0, and by 0 gives 0',
  { a: i([4], 7, -7, 2147483647, 5), b: i([4], 2, 2, 1, 0) },
  ({ a, b }) => ({ div: div(a as Tensor, b as Tensor), add: add(a as Tensor, b as Tensor), by: div(a as Tensor, 2), floor: floorDiv(a as Tensor, b as Tensor), mod: mod(a as Tensor, b as Tensor) }),
  { floor: [3, -4, 2147483647, 0], mod: [1, 1, 0, 5], div: [3, -3, 2147483647, 0], add: [9, -5, -2147483648, 5], by: [3, -3, 1073741823, 2] },
)
check(
  'logical',
  { a: b([4], 0, 0, 1, 1), b: b([4], 0, 1, 0, 1) },
  ({ a, b }) => ({
    and: logicalAnd(a as Tensor, b as Tensor),
    or: logicalOr(a as Tensor, b as Tensor),
    not: logicalNot(a as Tensor),
    eq: equal(a as Tensor, b as Tensor),
  }),
  { and: [0, 0, 0, 1], or: [0, 1, 1, 1], not: [1, 1, 0, 0], eq: [1, 0, 0, 1] },
)
check(
  'pow: whole exponents of negative bases, 0 to the 0',
  {
    a: f([7], -2, -2, 0, 0, 0, -0.5, 3),
    n: f([7], 2, 3, 2, 1, 0, -1, 0.5),
    c: f([7], 1, 1, 5, 2, 3, 1, 4),
  },
  (x) => back(pow(T(x, 'a'), T(x, 'n')), x, 'a'),
  { y: [4, -8, 0, 0, 1, -2, 1.73205081], da: [-4, 12, 0, 2, 0, -4, 1.15470054] },
)
check(
  'a tie of minimum and maximum is shared',
  { a: f([2], 1, 1), b: f([2], 1, 2), c: f([2], 4, 4) },
  (x) => ({ ...back(maximum(T(x, 'a'), T(x, 'b')), x, 'a', 'b') }),
  { y: [1, 2], da: [2, 0], db: [2, 4] },
)
check(
  'O01: un-broadcast over two axes',
  {
    a: f([2, 1, 3], 1, -2, 0.5, 3, 4, -1),
    b: f([4, 1], 1, -2, 0.5, 4),
    c: f([2, 4, 3], 1, 2, 3, -1, 0, 1, 0.5, 0.5, 0.5, 2, -2, 1, 0, 1, 0, 1, 1, 1, -3, 2, 1, 0.25, 4, -1),
  },
  (x) => back(add(mul(T(x, 'a'), T(x, 'b')), div(T(x, 'a'), T(x, 'b'))), x, 'a', 'b'),
  {
    y: [2, -4, 1, -2.5, 5, -1.25, 2.5, -5, 1.25, 4.25, -8.5, 2.125, 6, 8, -2, -7.5, -10, 2.5, 7.5, 10, -2.5, 12.75, 17, -4.25],
    da: [14.25, -3.25, 9, -8.9375, 21.5, -4.25],
    db: [0, 4.125, 6.75, 22.734375],
  },
)
check(
  'B01: the branch not taken, and the recipe that keeps its NaN out',
  { x: f([2], 0, 4), c: f([2], 1, 1) },
  (x) => {
    const taken = greater(T(x, 'x'), 0)
    const safe = where(taken, sqrt(where(taken, T(x, 'x'), 1)), 0)
    return { ...back(where(taken, sqrt(T(x, 'x')), 0), x, 'x'), safe: back(safe, x, 'x')['dx'] as Tensor }
  },
  { y: [0, 2], dx: [NaN, 0.25], safe: [0, 0.25] },
)
check(
  'B08: axes of size 1 on both sides',
  { a: f([1, 3, 1], 1, 2, 3), b: f([2, 1, 1, 2], 1, -1, 2, 0.5), c: f([2, 1, 3, 2], -3, 2, 0, -2, 3, 1, -1, -3, 2, 0, -2, 3) },
  (x) => back(mul(T(x, 'a'), T(x, 'b')), x, 'a', 'b'),
  { da: [-8.5, 6, -0.5], db: [6, 1, -3, 6] },
)
check(
  'B12: the cotangent is no mean and no sum',
  { a: f([2], 3, -1), b: f([2], 1, 2), c: f([2], 0.5, -2) },
  (x) => back(square(sub(T(x, 'a'), T(x, 'b'))), x, 'a', 'b'),
  { da: [2, 12], db: [-2, -12] },
)

// ---------------------------------------------------------------- spreads, norms, products, scans, masks

check(
  'variance, std and norm: gradient 0 where std and norm are 0',
  { x: f([2, 3], 1, 2, 6, 3, 3, 3), z: f([2, 3], 0, 0, 0, 1, -2, 2), c: f([2], 1, 2) },
  (x) => ({
    ...back(std(T(x, 'x'), 1), x, 'x'),
    variance: variance(T(x, 'x'), -1, { correction: 1 }),
    norm: norm(T(x, 'z'), 1),
    dz: back(norm(T(x, 'z'), 1), x, 'z')['dz'] as Tensor,
    one: norm(T(x, 'z'), undefined, { ord: 1 }),
    largest: norm(T(x, 'x'), 0, { ord: Infinity, keepDims: true }),
  }),
  {
    y: [2.1602469, 0],
    dx: [-0.3086067, -0.1543033, 0.46291, 0, 0, 0],
    variance: [7, 0],
    norm: [0, 3],
    dz: [0, 0, 0, 2 / 3, -4 / 3, 4 / 3],
    one: [5],
    largest: [3, 3, 6],
  },
)
check(
  'prod, any, all',
  { x: f([4], 2, 0, 3, 4), b: b([2, 2], 1, 0, 0, 0), c: f([], 1) },
  (x) => ({ ...back(prod(T(x, 'x')), x, 'x'), any: any(T(x, 'b'), 1), all: allOf(T(x, 'b')) }),
  { y: [0], dx: [0, 24, 0, 0], any: [1, 0], all: [0] },
)
check(
  'cumsum',
  { x: f([2, 3], 1, 2, 3, 4, Infinity, 6), n: i([3], 2147483647, 1, 2), c: f([2, 3], 1, 2, 3, -1, 0, 1) },
  (x) => ({
    ...back(cumsum(T(x, 'x')), x, 'x'),
    exclusive: cumsum(T(x, 'x'), 0, { exclusive: true }),
    reverse: cumsum(T(x, 'n'), 0, { reverse: true }),
  }),
  { y: [1, 3, 6, 4, Infinity, Infinity], dx: [6, 5, 3, 0, 1, 1], exclusive: [0, 0, 0, 1, 2, 3], reverse: [-2147483646, 3, 2] },
)
check(
  'O04: cumprod with zeros',
  {
    x: f([3, 4], 2, 0, 3, 4, 0, 2, 3, 0, -1, 0.5, -2, 4),
    c: f([3, 4], 1, 1, 1, 1, 1, 2, -1, 3, 0.5, 1, 2, -1),
  },
  (x) => back(cumprod(T(x, 'x'), -1), x, 'x'),
  { y: [2, 0, 0, 0, 0, 0, 0, 0, -1, -0.5, 1, 4], dx: [1, 32, 0, 0, -1, 0, 0, 0, 3, -5, 1, -1] },
)
check(
  'B46: a row that a mask hides is 0, its gradient too',
  { x: f([2, 3], 0, 100, 1, 5, 6, 7), m: b([2, 3], 1, 0, 1, 0, 0, 0), c: f([2, 3], 1, 2, 3, 4, 5, 6) },
  (x) => ({ ...back(maskedSoftmax(T(x, 'x'), T(x, 'm')), x, 'x'), lower: tril(T(x, 'x')), upper: triu(T(x, 'm'), 1) }),
  {
    y: [0.2689414, 0, 0.7310586, 0, 0, 0],
    dx: [-0.3932239, 0, 0.3932239, 0, 0, 0],
    lower: [0, 0, 0, 5, 6, 0],
    upper: [0, 0, 1, 0, 0, 0],
  },
)

// ---------------------------------------------------------------- arrangements

check(
  'pad, flip, roll, tile, repeat, split, axes of one',
  { x: f([2, 2], 1, 2, 3, 4), n: i([2], 5, 6), c: f([3, 3], 1, 2, 3, 4, 5, 6, 7, 8, 9) },
  (x) => {
    const t = T(x, 'x'), n = T(x, 'n')
    const [first, second] = split(t, 2) as [Tensor, Tensor]
    return {
      ...back(pad(t, [[1, 0], [0, 1]], 7), x, 'x'),
      padded: pad(n, [[0, 2]], -3),
      flip: flip(t, 0),
      roll: roll(n, 1),
      tile: tile(n, [2]),
      repeat: repeat(n, 2),
      first: squeeze(first),
      second: expandDims(squeeze(second, -1), 0),
      vector: matmul(t, squeeze(first)),
    }
  },
  {
    y: [7, 7, 7, 1, 2, 7, 3, 4, 7],
    dx: [4, 5, 7, 8],
    padded: [5, 6, -3, -3],
    flip: [3, 4, 1, 2],
    roll: [6, 5],
    tile: [5, 6, 5, 6],
    repeat: [5, 5, 6, 6],
    first: [1, 3],
    second: [2, 4],
    vector: [7, 15],
  },
)

// ---------------------------------------------------------------- indexing, orders, einsum, rope

check(
  'gather, takeAlongAxis, scatterAdd',
  { x: f([2, 3], 1, 2, 3, 4, 5, 6), i: i([4], 2, 0, 2, 2), j: i([2, 1], 2, 0), n: i([3], 16777217, 5, 6), c: f([2, 4], 1, 2, 3, 4, 5, 6, 7, 8) },
  (x) => ({
    ...back(gather(T(x, 'x'), T(x, 'i'), 1), x, 'x'),
    ints: gather(T(x, 'n'), T(x, 'i')),
    bools: gather(greater(T(x, 'n'), 5), T(x, 'i')),
    along: takeAlongAxis(T(x, 'x'), T(x, 'j')),
    added: scatterAdd(T(x, 'x'), T(x, 'i'), T(x, 'c'), 1),
  }),
  {
    y: [3, 1, 3, 3, 6, 4, 6, 6],
    dx: [2, 0, 8, 6, 0, 20],
    ints: [6, 16777217, 6, 6],
    bools: [1, 1, 1, 1],
    along: [3, 4],
    added: [3, 2, 11, 10, 5, 26],
  },
)
check(
  'sort, argsort, topK: stable, NaN last',
  { x: f([2, 4], 3, 1, 2, 1, NaN, -Infinity, 5, NaN), c: f([2, 4], 1, 2, 3, 4, 5, 6, 7, 8) },
  (x) => {
    const top = topK(T(x, 'x'), 2)
    return { ...back(sort(T(x, 'x')), x, 'x'), at: argsort(T(x, 'x')), down: argsort(T(x, 'x'), 1, { descending: true }), ...top }
  },
  {
    y: [1, 1, 2, 3, -Infinity, 5, NaN, NaN],
    dx: [4, 1, 3, 2, 7, 5, 6, 8],
    at: [1, 3, 2, 0, 1, 2, 0, 3],
    down: [0, 2, 1, 3, 2, 1, 0, 3],
    values: [3, 2, 5, -Infinity],
    indices: [0, 2, 2, 1],
  },
)
check(
  'einsum, rope',
  { a: f([2, 3], 1, 2, 3, 4, 5, 6), b: f([3, 2], 1, 0, 2, -1, 0, 1), r: f([2, 4], 1, 2, 3, 4, 1, 2, 3, 4), p: i([2], 0, 1), c: f([2, 2], 1, 2, 3, 4) },
  (x) => ({
    ...back(einsum('ij,jk->ik', T(x, 'a'), T(x, 'b')), x, 'a', 'b'),
    trace: einsum('ij,ji', T(x, 'a'), T(x, 'b')),
    rope: rope(T(x, 'r')),
    pairs: rope(T(x, 'r'), { interleaved: true, positions: T(x, 'p') }),
  }),
  {
    y: [5, 1, 14, 1],
    da: [1, 0, 2, 3, 2, 4],
    db: [13, 18, 17, 24, 21, 30],
    trace: [6],
    rope: [1, 2, 3, 4, -1.9841106, 1.9599007, 2.4623779, 4.0197997],
    pairs: [1, 2, 3, 4, -1.1426397, 1.9220756, 2.9598507, 4.0297995],
  },
)

// ---------------------------------------------------------------- choices, casts, special values

check(
  'where',
  { m: b([2, 1], 1, 0), a: f([2], 1, 2), b: f([2, 2], 5, 6, 7, 8), c: f([2, 2], 1, 2, 3, 4) },
  (x) => ({ ...back(where(T(x, 'm'), T(x, 'a'), T(x, 'b')), x, 'a', 'b'), number: where(T(x, 'm'), T(x, 'b'), -1) }),
  { y: [1, 2, 7, 8], da: [1, 2], db: [0, 0, 3, 4], number: [5, 6, -1, -1] },
)
check(
  'B03: relu at 0 and beside it',
  { x: f([5], 0, -0, 1e-30, -1e-30, 2), c: f([5], 2, 3, 5, 7, 11) },
  (x) => back(relu(T(x, 'x')), x, 'x'),
  { dx: [0, 0, 5, 0, 11] },
)
check(
  'B40: NaN goes through',
  { x: f([3], NaN, -1, 2) },
  ({ x }) => ({
    relu: relu(x as Tensor),
    clamp: clamp(x as Tensor, 0, 1),
    min: minimum(x as Tensor, 1),
    max: max(x as Tensor),
    least: min(x as Tensor),
    sign: sign(x as Tensor),
    at: argmax(x as Tensor),
  }),
  { relu: [NaN, 0, 2], clamp: [NaN, 0, 1], min: [NaN, -1, 1], max: [NaN], least: [NaN], sign: [NaN, -1, 1], at: [0] },
)
check(
  'B41: a min made of where is not one',
  { a: f([2], NaN, 1), b: f([2], 2, 3) },
  ({ a, b }) => ({ y: where(lessEqual(a as Tensor, b as Tensor), a as Tensor, b as Tensor) }),
  { y: [2, 1] },
)
for (const [name, value] of [
  ['inf', Infinity],
  ['-inf', -Infinity],
  ['NaN', NaN],
  ['FLT_MAX', 3.4028234663852886e38],
  ['-FLT_MAX', -3.4028234663852886e38],
] as const)
  check(`B42: the constant ${name}`, { x: f([2], 1, -1) }, ({ x }) => ({ y: where(greater(x as Tensor, 0), x as Tensor, value) }), {
    y: [1, value],
  })
check('B42: INT_MIN', { x: i([2], 1, -1) }, ({ x }) => ({ y: where(greater(x as Tensor, 0), x as Tensor, -2147483648) }), {
  y: [1, -2147483648],
})
check(
  'B43: casts',
  { x: f([8], -1.7, 1.7, -0, 3e9, -3e9, NaN, 0.5, 0), n: i([3], -2, 0, 7), m: b([2], 0, 1) },
  ({ x, n, m }) => ({
    int: cast(x as Tensor, 'i32'),
    bool: cast(x as Tensor, 'bool'),
    float: cast(n as Tensor, 'f32'),
    nbool: cast(n as Tensor, 'bool'),
    one: cast(m as Tensor, 'f32'),
    mint: cast(m as Tensor, 'i32'),
  }),
  {
    int: [-1, 1, 0, 2147483647, -2147483648, 0, 0, 0],
    bool: [1, 1, 0, 1, 1, 1, 1, 0],
    float: [-2, 0, 7],
    nbool: [1, 0, 1],
    one: [0, 1],
    mint: [0, 1],
  },
)
check(
  'B45: sigmoid at the ends',
  { x: f([5], -1000, -88.9, 0, 88.9, 1000), c: f([5], 1, 1, 1, 1, 1) },
  (x) => back(sigmoid(T(x, 'x')), x, 'x'),
  { y: [0, 0, 0.5, 1, 1], dx: [0, 0, 0.25, 0, 0] },
)
check('clamp: half at a bound', { x: f([4], -2, -1, 0, 3), c: f([4], 2, 2, 2, 2) }, (x) => back(clamp(T(x, 'x'), -1, 1), x, 'x'), {
  y: [-1, -1, 0, 1],
  dx: [0, 1, 2, 0],
})

// ---------------------------------------------------------------- reductions

const M = f([2, 3], 1, -2, 3, 4, 0.5, -6)
check(
  'sum, mean, max, min over axes',
  { x: M },
  ({ x }) => ({
    all: sum(x as Tensor),
    rows: sum(x as Tensor, -1),
    columns: sum(x as Tensor, 0, { keepDims: true }),
    both: mean(x as Tensor, [0, 1]),
    mean: mean(x as Tensor, 1),
    max: max(x as Tensor, 0),
    min: min(x as Tensor, 1),
    meanLast: meanLast(x as Tensor),
    sumLast: sumLast(x as Tensor),
    sumAll: sumAll(x as Tensor),
    argmax: argmax(x as Tensor),
    argmin: argmin(x as Tensor, 0),
  }),
  {
    all: [0.5],
    rows: [2, -1.5],
    columns: [5, -1.5, -3],
    both: [0.5 / 6],
    mean: [2 / 3, -0.5],
    max: [4, 0.5, 3],
    min: [-2, -6],
    meanLast: [2 / 3, -0.5],
    sumLast: [2, -1.5],
    sumAll: [0.5],
    argmax: [2, 0],
    argmin: [0, 0, 1],
  },
)
check(
  'gradients of sum and mean',
  { x: M, c: f([2], 3, -1) },
  (x) => ({ s: back(sum(T(x, 'x'), 1), x, 'x')['dx'] as Tensor, m: back(mean(T(x, 'x'), 1), x, 'x')['dx'] as Tensor }),
  { s: [3, 3, 3, -1, -1, -1], m: [1, 1, 1, -1 / 3, -1 / 3, -1 / 3] },
)
check('B04: ties of a max share', { x: f([4], 3, 1, 3, 3), c: f([], 6) }, (x) => back(max(T(x, 'x')), x, 'x'), { dx: [2, 0, 2, 2] })
check(
  'B07: max over a middle axis',
  { x: f([2, 2, 3], 1, 5, 2, 4, 0, 2.5, -1, -3, 7, -2, -1, 8), c: f([2, 3], 1, 2, 3, 4, 5, 6) },
  (x) => back(max(T(x, 'x'), 1), x, 'x'),
  { y: [4, 5, 2.5, -1, -1, 8], dx: [0, 2, 0, 1, 0, 3, 4, 0, 0, 0, 5, 6] },
)
check(
  'B33: integer reductions',
  { x: i([4], -7, -5, -5, -9), y: i([2], -2147483648, -2147483648) },
  ({ x, y }) => ({
    max: max(x as Tensor),
    at: argmax(x as Tensor),
    min: min(x as Tensor),
    least: argmin(x as Tensor),
    deep: max(y as Tensor),
    sum: sum(x as Tensor),
  }),
  { max: [-5], at: [1], min: [-9], least: [3], deep: [-2147483648], sum: [-26] },
)
check(
  'B09: variance of a constant row',
  { x: f([3], 3, 3, 3), c: f([], 2) },
  (x) => {
    const centred = sub(T(x, 'x'), mean(T(x, 'x')))
    return back(sqrt(add(mean(square(centred)), 1e-5)), x, 'x')
  },
  { y: [0.0031622776], dx: [0, 0, 0] },
)
check(
  'B02: norm at 0, with eps',
  { x: f([3], 0, 0, 0), c: f([3], 1, 2, -3) },
  (x) => back(div(T(x, 'x'), sqrt(add(sum(square(T(x, 'x'))), 1e-6))), x, 'x'),
  { y: [0, 0, 0], dx: [1000, 2000, -3000] },
)

// ---------------------------------------------------------------- views and joins

check(
  'views',
  { x: M },
  ({ x }) => ({
    reshape: reshape(x as Tensor, [3, -1]),
    transpose: transpose(x as Tensor, [1, 0]),
    swap: swapAxes(x as Tensor, 0, 1),
    slice: sliceLastRange(x as Tensor, 1, 3),
    narrow: narrow(x as Tensor, 0, 1, 1),
    broadcast: broadcastTo(narrow(x as Tensor, 1, 0, 1), [2, 2]),
    flat: mul(reshape(transpose(x as Tensor, [1, 0]), [6]), 2),
  }),
  {
    reshape: [1, -2, 3, 4, 0.5, -6],
    transpose: [1, 4, -2, 0.5, 3, -6],
    swap: [1, 4, -2, 0.5, 3, -6],
    slice: [-2, 3, 0.5, -6],
    narrow: [4, 0.5, -6],
    broadcast: [1, 1, 4, 4],
    flat: [2, 8, -4, 1, 6, -12],
  },
)
check(
  'gradients of slices, joins and transposes',
  { x: M, c: f([2, 2], 1, 2, 3, 4) },
  (x) => ({
    slice: back(sliceLastRange(T(x, 'x'), 1, 3), x, 'x')['dx'] as Tensor,
    narrow: back(transpose(narrow(T(x, 'x'), 1, 0, 2), [1, 0]), x, 'x')['dx'] as Tensor,
    stack: back(stack([sum(T(x, 'x'), 1), max(T(x, 'x'), 1)], 0), x, 'x')['dx'] as Tensor,
  }),
  { slice: [0, 1, 2, 0, 3, 4], narrow: [1, 3, 0, 2, 4, 0], stack: [1, 1, 4, 6, 2, 2] },
)
check(
  'joins',
  { a: f([1, 2], 1, 2), b: f([1, 2], 3, 4), n: i([2], 5, 6), m: b([2], 1, 0) },
  ({ a, b, n, m }) => ({
    concat: concat([a as Tensor, b as Tensor, a as Tensor], 1),
    rows: concat([a as Tensor, b as Tensor], 0),
    stack: stack([a as Tensor, b as Tensor], 2),
    ints: concat([n as Tensor, n as Tensor], 0),
    bools: stack([m as Tensor, m as Tensor], 0),
  }),
  { concat: [1, 2, 3, 4, 1, 2], rows: [1, 2, 3, 4], stack: [1, 3, 2, 4], ints: [5, 6, 5, 6], bools: [1, 0, 1, 0] },
)
check(
  'leaves',
  { x: f([2], 0, 0) },
  ({ x }) => ({
    arange: arange(4),
    floats: add(arange(2, 'f32'), x as Tensor),
    full: full([2], 7, 'i32'),
    zeros: zeros([2]),
    ones: add(ones([2]), x as Tensor),
  }),
  { arange: [0, 1, 2, 3], floats: [0, 1], full: [7, 7], zeros: [0, 0], ones: [1, 1] },
)

// ---------------------------------------------------------------- contractions, indexing

check(
  'matmul and its gradients',
  { x: f([2, 1, 3], 1, 2, 3, -1, 0, 2), w: f([3, 2], 1, 0, 0.5, -1, 2, 1), c: f([2, 1, 2], 1, 2, 3, 4) },
  (x) => back(matmul(T(x, 'x'), T(x, 'w')), x, 'x', 'w'),
  { y: [8, 1, 3, 2], dx: [1, -1.5, 4, 3, -2.5, 10], dw: [-2, -2, 2, 4, 9, 14] },
)
check(
  'B39: K = 1 with a batch axis',
  { a: f([1, 3, 1], 1, 2, 3), b: f([2, 1, 2], 1, -1, 0.5, 2), c: f([2, 3, 2], 1, 1, 1, 1, 1, 1, 2, 0, 0, 2, 1, 1) },
  (x) => ({
    ...back(matmulBatched(T(x, 'a'), T(x, 'b')), x, 'a', 'b'),
    swapped: matmulBatched(swapAxes(T(x, 'b'), 1, 2), swapAxes(T(x, 'a'), 1, 2)),
  }),
  {
    y: [1, -1, 2, -2, 3, -3, 0.5, 2, 1, 4, 1.5, 6],
    da: [1, 4, 2.5],
    db: [6, 6, 5, 7],
    swapped: [1, 2, 3, -1, -2, -3, 0.5, 1, 1.5, 2, 4, 6],
  },
)
check(
  'embedding and one-hot',
  { t: f([3, 2], 1, 2, 3, 4, 5, 6), i: i([4], 2, 0, 2, 2), c: f([4, 2], 1, 10, 2, 20, 3, 30, 4, 40) },
  (x) => ({
    ...back(embedding(T(x, 't'), T(x, 'i')), x, 't'),
    hot: oneHot(T(x, 'i'), 3),
    flags: oneHot(T(x, 'i'), 3, 'bool'),
  }),
  {
    y: [5, 6, 1, 2, 5, 6, 5, 6],
    dt: [2, 20, 0, 0, 8, 80],
    hot: [0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1],
    flags: [0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1],
  },
)
check(
  'B28: one row of a table 4096 times',
  { t: f([3, 1], 0, 0, 0), i: i([4096], ...new Array<number>(4096).fill(2)) },
  ({ t, i }) => ({ dt: grad(sum(embedding(t as Tensor, i as Tensor)), [t as Tensor])[0] as Tensor }),
  { dt: [0, 0, 4096] },
)

// ---------------------------------------------------------------- softmax and losses

check(
  'B05: softmax',
  { x: f([3], 2, 2, 1), c: f([3], 1, -1, 3) },
  (x) => ({
    ...back(softmax(T(x, 'x')), x, 'x'),
    log: logSoftmax(T(x, 'x'), 0),
    last: logSoftmaxLast(T(x, 'x')),
    lse: logsumexp(T(x, 'x')),
  }),
  {
    y: [0.4223188, 0.4223188, 0.1553624],
    dx: [0.2254814, -0.6191562, 0.3936748],
    log: [-0.8619948, -0.8619948, -1.8619948],
    last: [-0.8619948, -0.8619948, -1.8619948],
    lse: [2.8619948],
  },
)
check(
  'B46: masked by a finite fill',
  { x: f([2, 3], -1e9, -1e9, -1e9, 0, -1e9, 1), c: f([2, 3], 1, 2, 3, 1, 2, 3) },
  (x) => back(softmax(T(x, 'x')), x, 'x'),
  { y: [1 / 3, 1 / 3, 1 / 3, 0.2689414, 0, 0.7310586], dx: [-1 / 3, 0, 1 / 3, -0.3932239, 0, 0.3932239] },
)
check(
  'causal',
  { x: f([2, 2], 1, 5, 2, 3), c: f([2, 2], 1, 2, 3, 4) },
  (x) => ({
    ...back(softmaxCausalLast(T(x, 'x')), x, 'x'),
    fill: whereCausal(T(x, 'x'), -7),
    df: back(whereCausal(T(x, 'x'), -7), x, 'x')['dx'] as Tensor,
  }),
  { y: [1, 0, 0.2689414, 0.7310586], dx: [0, 0, -0.1966119, 0.1966119], fill: [1, -7, 2, 3], df: [1, 0, 3, 4] },
)
check(
  'losses',
  { p: f([2], 1, 3), q: f([2], 0, 1), l: f([2, 3], 2, 2, 1, 0, 1, 0), t: i([2], 2, 1), ignored: i([2], -1, 1), none: i([2], -1, -1) },
  ({ p, q, l, t, ignored, none }) => ({
    mse: nn.mse(p as Tensor, q as Tensor),
    bce: nn.bceWithLogits(p as Tensor, q as Tensor),
    each: nn.crossEntropyLast(l as Tensor, t as Tensor),
    mean: nn.crossEntropy(l as Tensor, t as Tensor, -1),
    one: nn.crossEntropy(l as Tensor, ignored as Tensor, -1),
    none: nn.crossEntropy(l as Tensor, none as Tensor),
    dl: grad(nn.crossEntropy(l as Tensor, ignored as Tensor), [l as Tensor])[0] as Tensor,
    dnone: grad(nn.crossEntropy(l as Tensor, none as Tensor), [l as Tensor])[0] as Tensor,
  }),
  {
    mse: [2.5],
    bce: [(Math.log1p(Math.exp(1)) + Math.log1p(Math.exp(-3))) / 2],
    each: [1.8619948, 0.5514447],
    mean: [(1.8619948 + 0.5514447) / 2],
    one: [0.5514447],
    none: [0],
    dl: [0, 0, 0, 0.2119416, -0.4238831, 0.2119416],
    dnone: [0, 0, 0, 0, 0, 0],
  },
)
check(
  'attention', // two heads share a key's head; the second query sees both
  {
    q: f([1, 2, 2, 1], 1, 2, -1, 0.5), k: f([1, 1, 2, 1], 0.5, 1), v: f([1, 1, 2, 1], 3, -1),
    seen: b([2, 2], 0, 0, 1, 1),
  },
  ({ q, k, v, seen }) => ({
    causal: nn.attentionValues(nn.attentionWeights(q as Tensor, k as Tensor, { causal: true }), v as Tensor),
    masked: nn.attentionWeights(q as Tensor, k as Tensor, { mask: seen as Tensor }),
  }),
  {
    causal: [3, 3 - 4 / (1 + Math.exp(-1)), 3, 3 - 4 / (1 + Math.exp(-0.25))],
    masked: [0, 0, 1 / (1 + Math.E), 1 / (1 + Math.exp(-1)), 0, 0, 1 / (1 + Math.exp(0.25)), 1 / (1 + Math.exp(-0.25))],
  },
)
check(
  'losses with options',
  { p: f([2], 1, 3), q: f([2], 0, 1), w: f([2], 2, 3), l: f([2, 3], 2, 2, 1, 0, 1, 0), t: i([2], 2, 4) },
  ({ p, q, w, l, t }) => ({
    mse: nn.mse(p as Tensor, q as Tensor, { reduction: 'sum' }),
    l1: nn.l1(p as Tensor, q as Tensor, { reduction: 'none' }),
    huber: nn.huber(p as Tensor, q as Tensor, { reduction: 'none', delta: 1.5 }),
    weighted: nn.bceWithLogits(p as Tensor, q as Tensor, { reduction: 'none', positiveWeight: w as Tensor }),
    kl: nn.klDiv(p as Tensor, q as Tensor, { reduction: 'none' }),
    logKl: nn.klDiv(p as Tensor, q as Tensor, { reduction: 'sum', logTarget: true }),
    smooth: nn.crossEntropy(l as Tensor, t as Tensor, { reduction: 'none', labelSmoothing: 0.3, ignore: 4 }),
    nll: nn.nll(logSoftmaxLast(l as Tensor), t as Tensor, { reduction: 'sum', ignore: 4 }),
  }),
  {
    mse: [5], l1: [1, 2], huber: [0.5, 1.5 * (2 - 0.75)], weighted: [Math.log1p(Math.exp(1)), 3 * Math.log1p(Math.exp(-3))], kl: [0, -3],
    logKl: [-1 - 2 * Math.E], smooth: [0.7 * 1.8619948 + 0.3 * (1.8619948 + 2 * 0.8619948) / 3, 0], nll: [1.8619948],
  },
)
const logistic = (v: number): number => 1 / (1 + Math.exp(-v))
/** Two steps of each cell from zeros, one unit: gates' inputs 0.5 Wx + bx and so on. */
function cells(): Record<string, number[]> {
  const xs = [0.5, -1], Wx = [0.3, -0.2, 0.7, 0.4], Wh = [-0.6, 0.5, 0.9, -0.3], bx = [0.1, 0.2, -0.1, 0.3], bh = [-0.2, 0.4, 0.6, 0.1]
  const rnn: number[] = [], gru: number[] = [], lstm: number[] = [], cell: number[] = []
  const last = (list: number[]) => list.at(-1) ?? 0
  for (const x of xs) {
    const a = (i: number) => x * Wx[i]! + bx[i]!, b = (i: number, h: number) => h * Wh[i]! + bh[i]!
    rnn.push(Math.tanh(a(0) + b(0, last(rnn))))
    const h = last(gru), z = logistic(a(1) + b(1, h))
    gru.push((1 - z) * Math.tanh(a(2) + logistic(a(0) + b(0, h)) * b(2, h)) + z * h)
    const g = (i: number) => a(i) + b(i, last(lstm))
    const c = logistic(g(1)) * last(cell) + logistic(g(0)) * Math.tanh(g(2))
    lstm.push(logistic(g(3)) * Math.tanh(c))
    cell.push(c)
  }
  return { rnn, gru, lstm, cell, step: [gru[1]!], c: [cell[1]!] }
}
function withWeights<L extends nn.GRU | nn.LSTM | nn.RNN>(layer: L, x: Record<string, Tensor>): L {
  const gates = layer.kind === 'rnn' ? 1 : layer.kind === 'gru' ? 3 : 4
  const first = (name: string, rank2: boolean) => reshape(narrow(T(x, name), 0, 0, gates), rank2 ? [1, gates] : [gates])
  return Object.assign(layer, { Wx: first('Wx', true), Wh: first('Wh', true), bx: first('bx', false), bh: first('bh', false) })
}
check(
  'recurrent',
  {
    x: f([1, 2, 1], 0.5, -1), Wx: f([4], 0.3, -0.2, 0.7, 0.4), Wh: f([4], -0.6, 0.5, 0.9, -0.3), bx: f([4], 0.1, 0.2, -0.1, 0.3),
    bh: f([4], -0.2, 0.4, 0.6, 0.1),
  },
  (x) => {
    const gru = withWeights(new nn.GRU(1, 1), x), lstm = withWeights(new nn.LSTM(1, 1), x)
    const all = gru.fwd(T(x, 'x')), both = lstm.fwd(T(x, 'x'))
    const at = (t: Tensor, i: number) => reshape(narrow(t, 1, i, 1), [1, 1])
    return {
      rnn: withWeights(new nn.RNN(1, 1), x).fwd(T(x, 'x')), gru: all, lstm: both.h, cell: both.c,
      step: gru.step(at(T(x, 'x'), 1), at(all, 0)),
      c: lstm.step(at(T(x, 'x'), 1), { h: at(both.h, 0), c: at(both.c, 0) }).c,
    }
  },
  cells(),
)
check(
  'heads',
  { x: f([1, 2, 4], 1, 2, 3, 4, 5, 6, 7, 8) },
  ({ x }) => ({ split: nn.splitHeads(x as Tensor, 2), merged: nn.mergeHeads(nn.splitHeads(x as Tensor, 2)) }),
  { split: [1, 2, 5, 6, 3, 4, 7, 8], merged: [1, 2, 3, 4, 5, 6, 7, 8] },
)

// ---------------------------------------------------------------- random numbers: what holds whatever is drawn

check(
  'B23: dropout keeps or drops value and gradient together; p = 0 is the identity',
  { x: f([6], 0.5, -1, 2, 3, -0.25, 8), c: f([6], 1, 2, -3, 0.5, 5, -6) },
  (x) => {
    const { y, dx } = back(dropout(T(x, 'x'), 0.5), x, 'x') as { y: Tensor; dx: Tensor } // y = 2 m x, dx = 2 m c
    return { off: sub(mul(dx, T(x, 'x')), mul(y, T(x, 'c'))), odd: mul(y, sub(y, mul(T(x, 'x'), 2))), same: dropout(T(x, 'x'), 0) }
  },
  { off: [0, 0, 0, 0, 0, 0], odd: [0, 0, 0, 0, 0, 0], same: [0.5, -1, 2, 3, -0.25, 8] },
)
check(
  'draws without a choice',
  { x: f([2, 3], -Infinity, 0, -Infinity, 3, -Infinity, -Infinity), p: f([4], 0, 1, 2, -1) },
  (x) => ({
    one: randInt([3], 7, 8),
    never: bernoulli([2], 0),
    always: bernoulli([2], 1),
    tensor: bernoulli([4], T(x, 'p')),
    forced: categorical(T(x, 'x')),
    floor: cast(rand([4]), 'i32'),
    ready: less(abs(randn([4])), 7),
  }),
  { one: [7, 7, 7], never: [0, 0], always: [1, 1], tensor: [0, 1, 1, 0], forced: [1, 0], floor: [0, 0, 0, 0], ready: [1, 1, 1, 1] },
)

// ---------------------------------------------------------------- convolutions, pooling

check(
  'B29: channel counts that are no multiple of 4',
  {
    x: f([1, 3, 2, 2], -1.5, 1, 0, -1, 1.5, 0.5, -0.5, -1.5, 1, 0, -1, 1.5),
    w: f([5, 3, 1, 1], -1, 0, 1, -0.25, 0.75, -0.5, 0.5, -0.75, 0.25, -1, 0, 1, -0.25, 0.75, -0.5),
    c: f([1, 5, 2, 2], ...[0, 1, 2, 3].flatMap(() => [-2, 1, -1, 2, 0])),
  },
  (x) => back(conv2d(T(x, 'x'), T(x, 'w')), x, 'x', 'w'),
  {
    y: [2.5, -1, -1, 2.5, 1, 0.125, 0.125, -1.625, -1.625, 0.125, 0.125, 1, 2.5, -1, -1, 2.5, 1, 0.125, 0.125, -1.625],
    dx: [3.75, -2.25, -0.75, 0.75, -0.75, -2.25, 3.75, -1.5, -3, 4.5, -3, 0.75],
    dw: [2, -5, 2, -1, 0, -2.5, -4, 2.5, 5.5, 5.5, 2.5, -4, -2.5, 0, -1],
  },
)
check(
  'B30: a stride beyond the kernel, that does not divide',
  { x: f([1, 1, 8], 1, 2, 3, 4, 5, 6, 7, 8), w: f([1, 1, 2], 1, -2), c: f([1, 1, 3], 1, -1, 2) },
  (x) => back(conv1d(T(x, 'x'), T(x, 'w'), { stride: 3 }), x, 'x', 'w'),
  { y: [-3, -6, -9], dx: [1, -2, 0, -1, 2, 0, 2, -4], dw: [11, 13] },
)
check(
  'O02: max pooling of what is negative, overlapping',
  {
    x: f([1, 1, 4, 4], -1, -7, -3, -9, -8, -0.5, -6, -4, -12, -5, -2, -11, -10, -16, -13, -15),
    c: f([1, 1, 2, 2], 1, 10, 100, 1000),
  },
  (x) => back(maxPool2d(T(x, 'x'), 3, { stride: 2, padding: 1 }), x, 'x'),
  { y: [-0.5, -0.5, -0.5, -0.5], dx: [0, 0, 0, 0, 0, 1111, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
)

interface Windows { stride: number; padding: [number, number][]; dilation: number; groups: number }
/** Calls `visit` with the place in y, in w and in x of every product of a convolution; returns how
 *  many places y has. */
function products(x: Shape, w: Shape, at: Windows, visit: (y: number, w: number, x: number) => void): number {
  const [n, c, h, v] = x as [number, number, number, number]
  const [o, each, kh, kw] = w as [number, number, number, number]
  const size = [h, v].map((length, d) => {
    const span = ((d === 0 ? kh : kw) - 1) * at.dilation + 1
    return Math.floor((length + at.padding[d]![0] + at.padding[d]![1] - span) / at.stride) + 1
  }) as [number, number]
  let y = 0
  for (let b = 0; b < n; b++)
    for (let out = 0; out < o; out++)
      for (let r = 0; r < size[0]; r++)
        for (let s = 0; s < size[1]; s++, y++)
          for (let k = 0; k < each * kh * kw; k++) {
            const channel = Math.floor(out / (o / at.groups)) * each + Math.floor(k / (kh * kw))
            const row = r * at.stride + (Math.floor(k / kw) % kh) * at.dilation - at.padding[0]![0]
            const column = s * at.stride + (k % kw) * at.dilation - at.padding[1]![0]
            if (row < 0 || row >= h || column < 0 || column >= v) continue
            visit(y, out * each * kh * kw + k, ((b * c + channel) * h + row) * v + column)
          }
  return y
}
const wave = (count: number, step: number) => Array.from({ length: count }, (_, n) => (((n * step) % 17) - 8) / 4)
for (const [name, xs, ws, at] of [
  ['padded', [2, 3, 5, 6], [4, 3, 3, 2], { stride: 1, padding: [[1, 1], [0, 1]], dilation: 1, groups: 1 }],
  ['strided, in groups', [2, 4, 7, 8], [6, 2, 3, 3], { stride: 2, padding: [[1, 0], [1, 1]], dilation: 1, groups: 2 }],
  ['dilated, by channel', [1, 3, 6, 7], [3, 1, 2, 3], { stride: 1, padding: [[2, 0], [2, 2]], dilation: 2, groups: 3 }],
] as [string, number[], number[], Windows][]) {
  const size = (shape: number[]) => shape.reduce((a, b) => a * b, 1)
  const x = wave(size(xs), 5), w = wave(size(ws), 7)
  const count = products(xs, ws, at, () => undefined)
  const c = wave(count, 3), y = new Array<number>(count).fill(0)
  const dx = new Array<number>(x.length).fill(0), dw = new Array<number>(w.length).fill(0)
  products(xs, ws, at, (yi, wi, xi) => {
    y[yi]! += w[wi]! * x[xi]!
    dx[xi]! += w[wi]! * c[yi]!
    dw[wi]! += x[xi]! * c[yi]!
  })
  const places = count / xs[0]! / ws[0]!
  check(
    `convolution, ${name}`,
    { x: f(xs, ...x), w: f(ws, ...w), c: f([xs[0]!, ws[0]!, places], ...c) },
    (given) => {
      const made = conv2d(T(given, 'x'), T(given, 'w'), { ...at, padding: at.padding })
      // the transposed convolution of the cotangent is dx, as far as windows reached
      const turned = convTranspose2d(reshape(T(given, 'c'), made.shape), T(given, 'w'), {
        stride: at.stride,
        dilation: at.dilation,
        groups: at.groups,
        padding: at.padding,
        outputPadding: [0, 1].map((d) => {
          const span = (ws[2 + d]! - 1) * at.dilation + 1, sides = at.padding[d]![0] + at.padding[d]![1]
          return xs[2 + d]! - ((made.shape[2 + d]! - 1) * at.stride + span - sides)
        }) as [number, number],
      })
      return { ...back(reshape(made, [xs[0]!, ws[0]!, places]), given, 'x', 'w'), turned }
    },
    { y, dx, dw, turned: dx },
  )
}
check(
  'averages, upsampling, whole planes',
  { x: f([1, 1, 2, 3], 1, 2, 3, 4, 5, 6), l: f([1, 1, 2], 0, 1) },
  ({ x, l }) => ({
    avg: avgPool2d(x as Tensor, 2, { stride: 1 }),
    padded: avgPool2d(x as Tensor, [1, 2], { padding: [[0, 0], [1, 0]] }),
    excluded: avgPool2d(x as Tensor, [1, 2], { padding: [[0, 0], [1, 0]], excludePadding: true }),
    ceil: avgPool1d(reshape(x as Tensor, [1, 2, 3]), 2, { ceilMode: true }),
    mean: globalAvgPool(x as Tensor),
    most: globalMaxPool(x as Tensor),
    nearest: upsampleNearest(l as Tensor, { factor: 3 }),
    areas: upsampleBilinear(l as Tensor),
    corners: upsampleBilinear(l as Tensor, { alignCorners: true }),
    plane: upsampleBilinear(reshape(x as Tensor, [1, 1, 3, 2]), { factor: [1, 2] }),
  }),
  {
    avg: [3, 4],
    padded: [0.5, 2.5, 2, 5.5],
    excluded: [1, 2.5, 4, 5.5],
    ceil: [1.5, 3, 4.5, 6],
    mean: [3.5],
    most: [6],
    nearest: [0, 0, 0, 1, 1, 1],
    areas: [0, 0.25, 0.75, 1],
    corners: [0, 1 / 3, 2 / 3, 1],
    plane: [1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4, 5, 5.25, 5.75, 6],
  },
)

// ---------------------------------------------------------------- fusion

check(
  'B13: a comparison in the graph has no gradient',
  { x: f([3], -1, 2, 0), c: f([3], 3, 5, 7) },
  (x) => back(mul(T(x, 'x'), cast(less(T(x, 'x'), 0), 'f32')), x, 'x'),
  { dx: [3, 0, 0] },
)
check(
  'B47: helpers used twice in one kernel',
  { x: f([2], 0.5, 2), c: f([2], 1, -1) },
  (x) => ({
    ...back(add(pow(T(x, 'x'), 2.5), pow(T(x, 'x'), 1.5)), x, 'x'),
    tanh: add(tanh(T(x, 'x')), tanh(mul(T(x, 'x'), 2))),
    erf: add(erf(T(x, 'x')), erf(mul(T(x, 'x'), 0.5))),
  }),
  {
    y: [0.5303301, 8.4852814],
    dx: [1.9445436, -9.1923882],
    tanh: [Math.tanh(0.5) + Math.tanh(1), Math.tanh(2) + Math.tanh(4)],
    erf: [erfOf(0.5) + erfOf(0.25), erfOf(2) + erfOf(1)],
  },
)
check(
  'B48: a gain and a bias of 0',
  { x: f([2, 3], 1, -2, 2, 0.5, 0, -1), g: f([2, 1], 0, 0), b: f([2, 1], 0, 0), c: f([2, 3], 1, 2, -1, 0.5, 1, 3) },
  (x) => {
    const n = sqrt(add(sum(square(T(x, 'x')), -1, { keepDims: true }), 1e-5))
    const y = add(add(mul(mul(T(x, 'x'), div(n, mean(n, 0, { keepDims: true }))), T(x, 'g')), T(x, 'b')), T(x, 'x'))
    return back(y, x, 'g', 'b')
  },
  { y: [1, -2, 2, 0.5, 0, -1], dg: [-7.2850229, -1.4932374], db: [2, 4.5] },
)

check(
  'identities that floats do not have',
  { x: f([4], Infinity, NaN, 0, 2), z: f([3], 2, 3, 5), w: f([3], 100, 1, 1) },
  (v) => {
    const [x, z, w] = [T(v, 'x'), T(v, 'z'), T(v, 'w')]
    return {
      times0: mul(x, 0),
      over: div(0, x),
      less: sub(add(z, 1e8), 1e8),
      more: add(sub(z, 1e8), 1e8),
      itself: sub(x, x),
      ratio: div(x, x),
      power: pow(x, 0),
      there: mul(mul(z, 1e38), 1e-37),
      product: div(mul(z, mul(z, 1e38)), z),
      loss: add(1, mul(0, mean(exp(w)))),
    }
  },
  {
    times0: [NaN, NaN, 0, 0],
    over: [0, NaN, NaN, 0],
    less: [0, 0, 8],
    more: [0, 0, 8],
    itself: [NaN, NaN, 0, 0],
    ratio: [NaN, NaN, NaN, 1],
    power: [1, 1, 1, 1],
    there: [20, 30, Infinity],
    product: [Infinity, Infinity, Infinity],
    loss: [NaN],
  },
)

// ---------------------------------------------------------------- reported of other systems: tests/test_reports.c by id

const column = { x: f([3], 3e20, 4e20, 0), c: f([], 1) }
check('N10: norm of large numbers', column, (x) => back(norm(T(x, 'x')), x, 'x'), { y: [5e20], dx: [0.6, 0.8, 0] })
check(
  'N10: norm of small numbers',
  { x: f([3], 3e-25, 4e-25, 0), c: f([], 1) },
  (x) => ({ ...back(norm(T(x, 'x')), x, 'x'), scaled: mul(norm(T(x, 'x')), 1e25) }),
  { scaled: [5], dx: [0.6, 0.8, 0] },
)
check(
  'N12: std of large numbers',
  { x: f([4], 1e20, -1e20, 2e20, 0), c: f([], 1) },
  (x) => back(std(T(x, 'x')), x, 'x'),
  { y: [1.11803399e20], dx: [0.111803399, -0.335410197, 0.335410197, -0.111803399] },
)
check(
  'N41, N42: mod',
  { x: f([5], 1e9, 123456792, 3e7, 5, -5), y: f([5], 7, 7, -7, Infinity, Infinity), u: f([3], 0.7, 1, 5.5), v: f([3], 0.1, 0.1, 1.1) },
  (x) => ({ whole: mod(T(x, 'x'), T(x, 'y')), part: mod(T(x, 'u'), T(x, 'v')), floor: floorDiv(T(x, 'u'), T(x, 'v')) }),
  { whole: [6, 4, -5, 5, Infinity], part: [0.0999999791, 0.0999999866, 1.0999999], floor: [6, 9, 4] },
)
check(
  'N50: bce with logits far out',
  { x: f([6], -Infinity, Infinity, -Infinity, Infinity, 15, 20), t: f([6], 0, 0, 1, 1, 1, 1), c: f([6], 1, 1, 1, 1, 1, 1) },
  (x) => back(nn.bceWithLogits(T(x, 'x'), T(x, 't'), { reduction: 'none' }), x, 'x'),
  { y: [0, Infinity, Infinity, 0, 3.059022737e-7, 2.06115362e-9], dx: [0, 1, -1, 0, -3.059022269e-7, -2.06115362e-9] },
  { atol: 1e-14 },
)
check(
  'N51: an ignored row of infinities',
  { x: f([2, 3], -Infinity, -Infinity, -Infinity, 1, 2, 3), t: i([2], -100, 1), c: f([], 1) },
  (x) => back(nn.crossEntropy(T(x, 'x'), T(x, 't'), -100), x, 'x'),
  { y: [1.40760596], dx: [0, 0, 0, 0.0900305732, -0.755271529, 0.665240956] },
)
check(
  'N53: logsumexp of nothing',
  { x: f([2], -Infinity, -Infinity), c: f([], 1) },
  (x) => back(logsumexp(T(x, 'x'), 0), x, 'x'),
  { y: [-Infinity], dx: [0, 0] },
)
for (const [name, op] of Object.entries({ silu, gelu, geluTanh, hardSwish }))
  check(
    `N54, N55: ${name} far out`,
    { x: f([4], -Infinity, Infinity, -2e19, 2e19), c: f([4], 1, 1, 1, 1) },
    (x) => back(op(T(x, 'x')), x, 'x'),
    { y: [0, Infinity, 0, 2e19], dx: [0, 1, 0, 1] },
  )
check(
  'N56: products that fit',
  { x: f([8], 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30) },
  (x) => ({ all: prod(T(x, 'x')), each: cumprod(T(x, 'x'), 0) }),
  { all: [1], each: [1e30, 1, 1e30, 1, 1e30, 1, 1e30, 1] },
)
check(
  'N60: einsum repeats an axis of 1',
  { a: f([2, 1], 2, -1), b: f([3, 4], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) },
  (x) => ({ y: einsum('ij,jk->ik', T(x, 'a'), T(x, 'b')) }),
  { y: [30, 36, 42, 48, -15, -18, -21, -24] },
)
check(
  'N61: the gradient of a NaN maximum',
  { x: f([3], NaN, 1, NaN), c: f([], 1) },
  (x) => back(max(T(x, 'x')), x, 'x'),
  { y: [NaN], dx: [NaN, NaN, NaN] },
)

export const cases: readonly Case[] = all

// ---------------------------------------------------------------- running them

const typed = ({ dtype, data }: Input): DataArray =>
  dtype === 'f32'
    ? Float32Array.from(data as number[])
    : dtype === 'i32'
      ? Int32Array.from(data as number[])
      : Uint8Array.from(data as number[])

function differs(got: number, want: number, rtol: number, atol: number): boolean {
  if (Number.isNaN(want) || !Number.isFinite(want)) return !Object.is(got, want)
  return !(Math.abs(got - want) <= atol + rtol * Math.abs(want))
}

function complain({ name, expect, rtol = 1e-5, atol = 1e-6 }: Case, output: string, got: ArrayLike<number>): string[] {
  const want = (expect[output] as Values).map(Number)
  const bad = got.length !== want.length || want.some((value, n) => differs(got[n] as number, value, rtol, atol))
  return bad ? [`${name}: ${output} is [${Array.from(got).join(', ')}], not [${want.join(', ')}]`] : []
}

async function runSome(some: readonly Case[], device: Device): Promise<string[]> {
  const feeds: Record<string, DataArray> = {}
  const graph = trace(() => {
    some.forEach(({ inputs, build, expect }, n) => {
      const tensors = Object.entries(inputs).map(([name, input]) => {
        feeds[`${n}.${name}`] = typed(input)
        return [name, tensorInput(`${n}.${name}`, input.shape, input.dtype)] as const
      })
      const outputs = build(Object.fromEntries(tensors))
      for (const name of Object.keys(expect)) capture(`${n}.${name}`, outputs[name] as Tensor)
    })
    return zeros([])
  })
  const model = await compileGraph(graph, { training: false, device })
  try {
    const { captures } = await model.run(feeds as never, { withCaptures: true })
    return some.flatMap((each, n) =>
      Object.keys(each.expect).flatMap((name) => complain(each, name, captures.get<DataArray>(`${n}.${name}`))),
    )
  } finally {
    await model.destroy()
  }
}

/** What is wrong, a line for each wrong output; [] when all is well. */
export async function runCases(device: Device, together = 16): Promise<string[]> {
  const wrong: string[] = []
  for (let first = 0; first < cases.length; first += together) wrong.push(...(await runSome(cases.slice(first, first + together), device)))
  return wrong
}
