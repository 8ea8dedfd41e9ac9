// Normalisations. Parameters and states are named as in C's tg_nn_*: g, b, mean, var. The core
// computes them.

import { defaults } from './boundary.gen.js'
import { ArgumentError } from './errors.js'
import { Module } from './module.js'
import { check, checkAll, checkOptions, flag, positive, unit, type Kinds } from './options.js'
import { currentTrace, invoke, type Tensor } from './tensor.js'

export interface LayerNormOptions {
  /** Default 1e-5. */
  eps?: number
  /** Do not train its parameters: no gradient, no update, like `freeze()`. Default false. */
  frozen?: boolean
}
export interface BatchNormOptions extends LayerNormOptions {
  /** The weight of the newest batch, in (0, 1]. Default 0.1. */
  momentum?: number
}

function settle(layer: Module, options: number | LayerNormOptions): void {
  if (typeof options === 'object' && options.frozen) layer.freeze()
}

/** Checks the options and returns eps. */
function epsOf(op: 'layer_norm' | 'rms_norm' | 'group_norm' | 'batch_norm', above: unknown, options: number | LayerNormOptions, more: Kinds = {}): number {
  const given = typeof options === 'number' ? { eps: options } : options
  check(above, () => {
    checkOptions(op, given, { eps: positive, frozen: flag, ...more })
  })
  return given.eps ?? defaults[op].eps
}

/** (x - mean) / sqrt(variance + eps) g + b over the last axis, biased variance. g [d] (ones), b [d]
 *  (zeros). */
export class LayerNorm extends Module {
  g: Tensor
  b: Tensor
  readonly eps: number
  constructor(
    readonly d: number,
    options: number | LayerNormOptions = {},
  ) {
    super()
    this.eps = epsOf('layer_norm', LayerNorm, options)
    checkAll('layer_norm', LayerNorm, { d })
    this.g = this.param([d], { init: 'ones' })
    this.b = this.param([d], { init: 'zeros' })
    settle(this, options)
  }
  fwd(x: Tensor): Tensor {
    return invoke('nn_layer_norm_fwd', LayerNorm.prototype.fwd, [x, this.g, this.b], () => ({ eps: this.eps }))
  }
}

/** x / sqrt(mean(x^2) + eps) g over the last axis. g [d] (ones). */
export class RMSNorm extends Module {
  g: Tensor
  readonly eps: number
  constructor(
    readonly d: number,
    options: number | LayerNormOptions = {},
  ) {
    super()
    this.eps = epsOf('rms_norm', RMSNorm, options)
    checkAll('rms_norm', RMSNorm, { d })
    this.g = this.param([d], { init: 'ones' })
    settle(this, options)
  }
  fwd(x: Tensor): Tensor {
    return invoke('nn_rms_norm_fwd', RMSNorm.prototype.fwd, [x, this.g], () => ({ eps: this.eps }))
  }
}

/** x [N, C, ...]: LayerNorm over each group of channels and all axes after them, then g and b of
 *  the channel, [channels] (ones, zeros). */
export class GroupNorm extends Module {
  g: Tensor
  b: Tensor
  readonly eps: number
  constructor(
    readonly groups: number,
    channels: number,
    options: number | LayerNormOptions = {},
  ) {
    super()
    this.eps = epsOf('group_norm', GroupNorm, options)
    checkAll('group_norm', GroupNorm, { groups, channels })
    check(GroupNorm, () => {
      if (channels % groups !== 0)
        throw new ArgumentError(`group_norm: ${channels} channels do not divide into ${groups} groups`)
    })
    this.g = this.param([channels], { init: 'ones' })
    this.b = this.param([channels], { init: 'zeros' })
    settle(this, options)
  }
  fwd(x: Tensor): Tensor {
    return invoke('nn_group_norm_fwd', GroupNorm.prototype.fwd, [x, this.g, this.b], () => ({ groups: this.groups, eps: this.eps }))
  }
}

/** x [N, C, ...] -> (x - mean) / sqrt(var + eps) g + b for each channel: g, b [channels] (ones,
 *  zeros). Training uses the mean and variance of the batch; after each step the states mean and
 *  var [channels] (zeros, ones) move towards its mean and unbiased variance. Predicting uses those
 *  states. */
export class BatchNorm extends Module {
  g: Tensor
  b: Tensor
  mean: Tensor
  var: Tensor
  readonly eps: number
  readonly momentum: number
  constructor(channels: number, options: BatchNormOptions = {}) {
    super()
    this.eps = epsOf('batch_norm', BatchNorm, options, { momentum: unit })
    checkAll('batch_norm', BatchNorm, { channels })
    this.momentum = options.momentum ?? defaults.batch_norm.momentum
    this.g = this.param([channels], { init: 'ones' })
    this.b = this.param([channels], { init: 'zeros' })
    settle(this, options)
    this.mean = this.state([channels])
    this.var = this.state([channels], { init: 1 })
  }
  /** `training` has the same default as in nn.Dropout. */
  fwd(x: Tensor, training?: boolean): Tensor {
    const operands = [x, this.g, this.b, this.mean, this.var]
    return invoke('nn_batch_norm_fwd', BatchNorm.prototype.fwd, operands, () => ({
      eps: this.eps, momentum: this.momentum, training: training ?? currentTrace('batch_norm').training,
    }))
  }
}
