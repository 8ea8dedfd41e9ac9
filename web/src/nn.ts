// Layers. Parameter names are those of C's tg_nn_*: Linear has W and b, Embedding W, LayerNorm g
// and b.

import { Captures } from './captures.js'
import { ArgumentError, blame, ShapeError } from './errors.js'
import { conv1d, conv2d, convTranspose2d, type ConvOptions, type ConvTransposeOptions, type Pair } from './conv.js'
import { init, type Init } from './init.js'
import { Module } from './module.js'
import { anything, belowOne, check, checkAll, checkOptions, count, flag } from './options.js'
import { currentTrace, describe, invoke, NONE, pair, whole, type Tensor } from './tensor.js'

export interface LinearOptions {
  /** Default true. */
  bias?: boolean
  /** Of W. Default kaiming. */
  init?: Init
  /** Do not train its parameters: no gradient, no update, like `freeze()`. Default false. */
  frozen?: boolean
}

/** x W + b: [..., in] -> [..., out]. W [in, out] (kaiming), b [out] (zeros). */
export class Linear extends Module {
  W: Tensor
  b: Tensor | null = null
  constructor(
    readonly inDim: number,
    readonly outDim: number,
    options: LinearOptions = {},
  ) {
    super()
    const { bias = true, init: wanted = init.kaiming(), frozen } = check(Linear, () => checkOptions('linear', options, { bias: flag, init: anything, frozen: flag }))
    checkAll('linear', Linear, { inDim, outDim })
    this.W = this.param([inDim, outDim], { init: wanted })
    if (bias) this.b = this.param([outDim], { init: 'zeros' })
    if (frozen) this.freeze()
  }
  fwd(x: Tensor): Tensor {
    return invoke('nn_linear_fwd', Linear.prototype.fwd, [x, this.W, this.b ?? NONE], () => ({ hasBias: this.b !== null }))
  }
}

/** Rows of a table by i32 indices: [...] -> [..., dim]. W [vocab, dim] (normal, std .02). */
export class Embedding extends Module {
  W: Tensor
  constructor(
    readonly vocab: number,
    readonly dim: number,
    options: { init?: Init; frozen?: boolean } = {},
  ) {
    super()
    check(Embedding, () => checkOptions('embedding', options, { init: anything, frozen: flag }))
    checkAll('embedding', Embedding, { vocab, dim })
    this.W = this.param([vocab, dim], options.init === undefined ? {} : { init: options.init })
    if (options.frozen) this.freeze()
  }
  fwd(indices: Tensor): Tensor {
    return invoke('embedding', Embedding.prototype.fwd, [this.W, indices])
  }
}

/** In training, each element independently becomes x / (1 - p) with probability 1 - p, else 0. In
 *  predicting it stays x. p in [0, 1). */
export class Dropout extends Module {
  readonly p: number
  constructor(p: number) {
    super()
    checkAll('dropout', Dropout, { p }, belowOne)
    this.p = p
  }
  /** `training` is true by default in compileModule and in a trace made by hand, false in
   *  compileForward. So `run` of a training model drops elements; a forward pass compiled beside it
   *  does not. */
  fwd(x: Tensor, training?: boolean): Tensor {
    return invoke('dropout', Dropout.prototype.fwd, [x], () => ({ p: (training ?? currentTrace('dropout').training) ? this.p : 0 }))
  }
}

export interface ConvLayerOptions extends Omit<ConvOptions, 'bias'> {
  /** Default true. */
  bias?: boolean
  /** Of W. Default kaiming: std = gain / sqrt(fan in), fan in = in / groups times the kernel's
   *  elements. */
  init?: Init
  /** Do not train its parameters: no gradient, no update, like `freeze()`. Default false. */
  frozen?: boolean
}
export interface ConvTransposeLayerOptions extends ConvLayerOptions {
  outputPadding?: Pair
}

export * from './attention.js'
export * from './losses.js'
export * from './norm.js'
export * from './recurrent.js'

const product = (numbers: readonly number[]) => numbers.reduce((a, b) => a * b, 1)

/** Sets the fan-in of a kaiming init; any other init is returned as given. */
function convInit(value: Init | undefined, fanIn: number): Init {
  if (value !== undefined && (typeof value === 'string' || value.kind !== 'kaiming')) return value
  return init.randn({ scale: (value?.gain ?? Math.SQRT2) / Math.sqrt(fanIn) })
}

/** Shared by the three layers: W and b, and the options of their operation. */
abstract class Conv extends Module {
  W: Tensor
  b: Tensor | null = null
  protected readonly options: ConvTransposeOptions
  constructor(op: string, inDim: number, outDim: number, kernel: Pair, axes: 1 | 2, options: ConvTransposeLayerOptions, transposed = false) {
    super()
    const more = transposed ? { outputPadding: anything } : {}, above = new.target
    const known = { stride: anything, padding: anything, dilation: anything, groups: count, ...more, bias: flag, init: anything, frozen: flag }
    const { bias = true, init: wanted, frozen, ...rest } = check(above, () => checkOptions(op, options, known)), { groups = 1, stride = 1 } = rest
    checkAll(op, above, { inDim, outDim })
    const [sides, steps] = check(above, () => {
      if (inDim % groups !== 0 || outDim % groups !== 0)
        throw new ArgumentError(`${op}: ${inDim} and ${outDim} channels do not divide into ${groups} groups`)
      return [pair(op, 'the kernel', kernel, axes, 1).slice(0, axes), pair(op, 'the stride', stride, axes, 1).slice(0, axes)]
    })
    const meet = (inDim / groups) * product(sides), across = product(steps)
    const fanIn = transposed && meet >= across ? Math.floor(meet / across) : meet
    this.options = rest
    this.W = this.param([...(transposed ? [inDim, outDim / groups] : [outDim, inDim / groups]), ...sides], { init: convInit(wanted, fanIn) })
    if (bias) this.b = this.param([outDim], { init: 'zeros' })
    if (frozen) this.freeze()
  }
  protected withBias(): ConvTransposeOptions {
    return this.b === null ? this.options : { ...this.options, bias: this.b }
  }
}

/** [N, in, L] -> [N, out, ...]. W [out, in / groups, kernel] (kaiming), b [out] (zeros). */
export class Conv1d extends Conv {
  constructor(inDim: number, outDim: number, kernel: number, options: ConvLayerOptions = {}) {
    super('conv1d', inDim, outDim, kernel, 1, options)
  }
  fwd(x: Tensor): Tensor {
    return conv1d(x, this.W, this.withBias())
  }
}

/** [N, in, H, W] -> [N, out, ..., ...]. W [out, in / groups, kh, kw] (kaiming), b [out] (zeros). */
export class Conv2d extends Conv {
  constructor(inDim: number, outDim: number, kernel: Pair, options: ConvLayerOptions = {}) {
    super('conv2d', inDim, outDim, kernel, 2, options)
  }
  fwd(x: Tensor): Tensor {
    return conv2d(x, this.W, this.withBias())
  }
}

/** [N, in, H, W] -> [N, out, ..., ...]. W [in, out / groups, kh, kw] (kaiming, fan in over the
 *  strides), b [out] (zeros). */
export class ConvTranspose2d extends Conv {
  constructor(inDim: number, outDim: number, kernel: Pair, options: ConvTransposeLayerOptions = {}) {
    super('conv_transpose2d', inDim, outDim, kernel, 2, options, true)
  }
  fwd(x: Tensor): Tensor {
    return convTranspose2d(x, this.W, this.withBias())
  }
}

/** [..., T, H d] -> [..., H, T, d]. */
export function splitHeads(x: Tensor, heads: number): Tensor {
  return invoke('nn_split_heads', splitHeads, [x], () => ({ heads: whole('split_heads', 'the number of heads', heads) }))
}

/** [..., H, T, d] -> [..., T, H d]. */
export function mergeHeads(x: Tensor): Tensor {
  return invoke('nn_merge_heads', mergeHeads, [x])
}

/** A capture [H, ...] or [1, H, ...] as one array for each of its H heads. */
export function unsplitHeads(captures: Captures, name: string): Float32Array[] {
  if (!(captures instanceof Captures))
    throw blame(new ArgumentError(`unsplit_heads: takes the captures of a step or run, not ${describe(captures)}`), unsplitHeads)
  let shape = captures.shapeOf(name)
  const data = captures.get(name)
  if (shape.length > 2 && shape[0] === 1) shape = shape.slice(1)
  const heads = shape[0]
  if (heads === undefined || shape.length < 2)
    throw blame(new ShapeError(`unsplit_heads: ${name} needs at least 2 axes, [H, ...]: it is [${shape.join(', ')}]`), unsplitHeads)
  const each = data.length / heads
  return Array.from({ length: heads }, (_, head) => data.subarray(head * each, (head + 1) * each))
}
