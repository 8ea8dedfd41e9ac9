// Convolutions, poolings and upsampling: names, arguments and defaults. Channels come first, as in
// PyTorch: [N, C, L] or [N, C, H, W]. The core computes, and reports shapes that do not fit.

import { PaddingMode, type OpNumbers, type PaddingFields } from './boundary.gen.js'
import { ArgumentError } from './errors.js'
import { anything, checkOptions, flag, type Kinds } from './options.js'
import { describe, invoke, pair, whole, type OpLike, type Tensor } from './tensor.js'

/** One number for every axis, or one for H and one for W. */
export type Pair = number | readonly [number, number]
/** One number for every side; [H, W]; [before, after] for each axis; 'same': as many outputs as
 *  inputs (stride 1); 'valid': none. */
export type Padding = number | readonly [number, number] | readonly (readonly [number, number])[] | 'same' | 'valid'

export interface ConvOptions {
  /** Default 1. */
  stride?: Pair
  /** Default none. */
  padding?: Padding
  /** Default 1. */
  dilation?: Pair
  /** Default 1. */
  groups?: number
  /** [O]. */
  bias?: Tensor
}
export interface ConvTransposeOptions extends ConvOptions {
  /** Extra elements at the end of each axis; less than the stride or the dilation. Default 0. */
  outputPadding?: Pair
}
export interface PoolOptions {
  /** Default: the kernel. */
  stride?: Pair
  /** Less than the kernel. Default none. */
  padding?: Padding
  /** The last window may reach beyond the end if it begins before it. Default false. */
  ceilMode?: boolean
  /** For averages: divide by the number of elements of x in the window. Default false: padding
   *  counts as zeros. */
  excludePadding?: boolean
}
export interface UpsampleOptions {
  /** Default 2. */
  factor?: Pair
  /** Bilinear: map the centres of the first and last elements to each other. Default false: map the
   *  edges. */
  alignCorners?: boolean
}

type Axes = 1 | 2

function paddingFields(op: string, value: Padding | undefined, axes: Axes): PaddingFields | undefined {
  if (value === undefined || value === 'valid') return undefined
  if (value === 'same') return { mode: PaddingMode.same }
  if (typeof value === 'number' || (Array.isArray(value) && typeof value[0] === 'number')) {
    const sides = pair(op, 'padding', value, axes, 0)
    return { before: sides, after: sides }
  }
  if (!Array.isArray(value) || value.length !== axes)
    throw new ArgumentError(`${op}: padding is ${describe(value)}: a number, a pair, [before, after] of each axis, 'same' or 'valid'`)
  const sides = (value as unknown[]).map((side) => pair(op, 'padding', side, 2, 0))
  return { before: sides.map(([before]) => before), after: sides.map(([, after]) => after) }
}

/** Returns nothing if nothing is given: the core has a default. */
const pairOrNone = (op: string, what: string, value: unknown, axes: Axes, least: number) =>
  value === undefined || value === null ? undefined : pair(op, what, value, axes, least)

const ofConv: Kinds = { stride: anything, padding: anything, dilation: anything, groups: anything, bias: anything }
type ConvOp = OpLike<'conv1d'>
function convNumbers(op: ConvOp, options: ConvTransposeOptions, axes: Axes): OpNumbers[ConvOp] {
  checkOptions(op, options, op.includes('transpose') ? { ...ofConv, outputPadding: anything } : ofConv)
  const groups = whole(op, 'groups', options.groups ?? 1)
  if (groups < 1) throw new ArgumentError(`${op}: groups need to be at least 1, not ${groups}`)
  return {
    stride: pairOrNone(op, 'the stride', options.stride, axes, 1),
    padding: paddingFields(op, options.padding, axes),
    dilation: pairOrNone(op, 'the dilation', options.dilation, axes, 1),
    groups,
    outputPadding: pairOrNone(op, 'outputPadding', options.outputPadding, axes, 0)?.slice(0, axes),
  }
}

function conv(op: ConvOp, above: unknown, x: Tensor, w: Tensor, options: ConvTransposeOptions, axes: Axes): Tensor {
  const bias = options?.bias, operands = bias === undefined ? [x, w] : [x, w, bias]
  return invoke(op, above, operands, () => convNumbers(op, options, axes))
}

/** A cross-correlation: x [N, C, L], w [O, C / groups, k] -> [N, O, (L + padding - dilation (k - 1)
 *  - 1) / stride + 1]. */
export function conv1d(x: Tensor, w: Tensor, options: ConvOptions = {}): Tensor {
  return conv('conv1d', conv1d, x, w, options, 1)
}
/** A cross-correlation: x [N, C, H, W], w [O, C / groups, kh, kw] -> [N, O, ..., ...]. */
export function conv2d(x: Tensor, w: Tensor, options: ConvOptions = {}): Tensor {
  return conv('conv2d', conv2d, x, w, options, 2)
}
/** The gradient of a convolution with respect to its input: x [N, C, L], w [C, O / groups, k] ->
 *  [N, O, (L - 1) stride + dilation (k - 1) + 1 - padding + outputPadding]. */
export function convTranspose1d(x: Tensor, w: Tensor, options: ConvTransposeOptions = {}): Tensor {
  return conv('conv_transpose1d', convTranspose1d, x, w, options, 1)
}
/** As convTranspose1d over H and W: w [C, O / groups, kh, kw]. */
export function convTranspose2d(x: Tensor, w: Tensor, options: ConvTransposeOptions = {}): Tensor {
  return conv('conv_transpose2d', convTranspose2d, x, w, options, 2)
}

function pool(op: `${'max' | 'avg'}_pool${Axes}d`, above: unknown, x: Tensor, kernel: Pair, options: PoolOptions, axes: Axes): Tensor {
  return invoke(op, above, [x], () => {
    checkOptions(op, options, { stride: anything, padding: anything, ceilMode: flag, ...(op.startsWith('avg') ? { excludePadding: flag } : {}) })
    const [kernelH, kernelW] = pair(op, 'the kernel', kernel, axes, 1)
    return {
      ...{ kernel: kernelH, kernelH, kernelW },
      stride: pairOrNone(op, 'the stride', options.stride, axes, 1),
      padding: paddingFields(op, options.padding, axes),
      ceilMode: options.ceilMode,
      excludePadding: options.excludePadding,
    }
  })
}
/** The largest of each window: [N, C, L] -> [N, C, out]. Padding never wins; equal elements share
 *  the gradient; NaN wins. */
export function maxPool1d(x: Tensor, kernel: number, options: PoolOptions = {}): Tensor {
  return pool('max_pool1d', maxPool1d, x, kernel, options, 1)
}
export function maxPool2d(x: Tensor, kernel: Pair, options: PoolOptions = {}): Tensor {
  return pool('max_pool2d', maxPool2d, x, kernel, options, 2)
}
/** The mean of each window: [N, C, L] -> [N, C, out]. */
export function avgPool1d(x: Tensor, kernel: number, options: PoolOptions = {}): Tensor {
  return pool('avg_pool1d', avgPool1d, x, kernel, options, 1)
}
export function avgPool2d(x: Tensor, kernel: Pair, options: PoolOptions = {}): Tensor {
  return pool('avg_pool2d', avgPool2d, x, kernel, options, 2)
}
/** [N, C, ...] -> [N, C]. */
export function globalAvgPool(x: Tensor): Tensor {
  return invoke('global_avg_pool', globalAvgPool, [x])
}
/** [N, C, ...] -> [N, C]. */
export function globalMaxPool(x: Tensor): Tensor {
  return invoke('global_max_pool', globalMaxPool, [x])
}

function upsample(op: OpLike<'upsample_nearest'>, above: unknown, x: Tensor, options: UpsampleOptions): Tensor {
  return invoke(op, above, [x], () => {
    checkOptions(op, options, { factor: anything, ...(op.endsWith('bilinear') ? { alignCorners: flag } : {}) })
    return { factor: pairOrNone(op, 'the factor', options.factor, 2, 1), alignCorners: options.alignCorners }
  })
}
/** Every element `factor` times along each axis: [N, C, H, W] (or [N, C, L]). */
export function upsampleNearest(x: Tensor, options: UpsampleOptions = {}): Tensor {
  return upsample('upsample_nearest', upsampleNearest, x, options)
}
/** Between the two nearest elements of each axis: [N, C, H, W] (or [N, C, L]). As
 *  torch.nn.functional.interpolate. */
export function upsampleBilinear(x: Tensor, options: UpsampleOptions = {}): Tensor {
  return upsample('upsample_bilinear', upsampleBilinear, x, options)
}
