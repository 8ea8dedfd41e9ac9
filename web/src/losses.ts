// Losses: names, arguments and defaults. The core computes, and reports shapes that do not fit.

import { Reduction } from './boundary.gen.js'
import { ArgumentError } from './errors.js'
import { anything, belowOne, checkOptions, flag, oneOf, positive, whole as wholeNumber, type Kinds } from './options.js'
import { invoke, whole, type Tensor } from './tensor.js'

export interface LossOptions {
  /** 'mean' (default) and 'sum' over all elements (all positions that count) have rank 0. 'none':
   *  one value for each. */
  reduction?: 'mean' | 'sum' | 'none'
}
export interface NLLOptions extends LossOptions {
  /** Positions with this target do not count. Default -1. */
  ignore?: number
}
export interface CrossEntropyOptions extends NLLOptions {
  /** e in [0, 1): the loss times (1 - e), plus e times its mean over all classes. Default 0. */
  labelSmoothing?: number
}
export interface HuberOptions extends LossOptions {
  /** More than 0. Default 1. */
  delta?: number
}
export interface BCEOptions extends LossOptions {
  /** w, f32; this alone may broadcast to the logits. Default 1. */
  positiveWeight?: Tensor
}
export interface KLOptions extends LossOptions {
  /** The target is log p. Default false. */
  logTarget?: boolean
}

/** Checks the options and returns the tg_reduction. */
function reduction(op: string, options: LossOptions, more: Kinds = {}): number {
  checkOptions(op, options, { reduction: oneOf(...Object.keys(Reduction)), ...more })
  return Reduction[options.reduction ?? 'mean']
}

/** logits [..., V], targets i32 [...] -> -log softmax(logits)[target] at each position, [...]. A
 *  target outside [0, V) rejects the call. */
export function crossEntropyLast(logits: Tensor, targets: Tensor): Tensor {
  return invoke('nn_cross_entropy_last', crossEntropyLast, [logits, targets])
}

/** Checks the target to ignore: an i32, default -1. */
function ignored(op: string, ignore = -1): number {
  if (whole(op, 'ignore', ignore) !== (ignore | 0)) throw new ArgumentError(`${op}: ignore is ${ignore}, which is no i32`)
  return ignore
}

/** crossEntropyLast over the positions whose target is not `ignore` (the options may be that
 *  number); 0 if every target is ignored. */
export function crossEntropy(logits: Tensor, targets: Tensor, options: number | CrossEntropyOptions = {}): Tensor {
  const op = 'cross_entropy'
  return invoke('nn_cross_entropy', crossEntropy, [logits, targets], () => {
    const given = typeof options === 'number' ? { ignore: options } : options
    const how = reduction(op, given, { ignore: wholeNumber, labelSmoothing: belowOne })
    return { ignore: ignored(op, given.ignore), reduction: how, labelSmoothing: given.labelSmoothing }
  })
}

/** -logProbabilities[target] over the positions whose target is not `ignore`: logProbabilities
 *  [..., V], targets i32 [...]. */
export function nll(logProbabilities: Tensor, targets: Tensor, options: NLLOptions = {}): Tensor {
  return invoke('nn_nll', nll, [logProbabilities, targets], () => {
    const how = reduction('nll', options, { ignore: wholeNumber })
    return { ignore: ignored('nll', options.ignore), reduction: how }
  })
}

/** (prediction - target)^2. Shapes must be equal: a loss never broadcasts. */
export function mse(prediction: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  return invoke('nn_mse', mse, [prediction, target], () => ({ reduction: reduction('mse', options) }))
}

/** |prediction - target|. Shapes must be equal. */
export function l1(prediction: Tensor, target: Tensor, options: LossOptions = {}): Tensor {
  return invoke('nn_l1', l1, [prediction, target], () => ({ reduction: reduction('l1', options) }))
}

/** With e = |prediction - target|: e^2 / 2 up to delta, delta (e - delta / 2) beyond. Shapes must
 *  be equal. */
export function huber(prediction: Tensor, target: Tensor, options: HuberOptions = {}): Tensor {
  return invoke('nn_huber', huber, [prediction, target], () => {
    const how = reduction('huber', options, { delta: positive })
    return { reduction: how, delta: options.delta }
  })
}

/** -w t log sigmoid(x) - (1 - t) log sigmoid(-x) of logits x and targets t. Shapes must be
 *  equal. */
export function bceWithLogits(logits: Tensor, target: Tensor, options: BCEOptions = {}): Tensor {
  const weight = options?.positiveWeight
  return invoke('nn_bce_with_logits', bceWithLogits, weight === undefined ? [logits, target] : [logits, target, weight], () => ({
    reduction: reduction('bce_with_logits', options, { positiveWeight: anything }),
  }))
}

/** p (log p - log q), the prediction given as log q, the target as p; 0 where p is 0. Summed over a
 *  row: KL(p || q). Shapes must be equal. */
export function klDiv(logPrediction: Tensor, target: Tensor, options: KLOptions = {}): Tensor {
  return invoke('nn_kl_div', klDiv, [logPrediction, target], () => ({
    reduction: reduction('kl_div', options, { logTarget: flag }), logTarget: options.logTarget,
  }))
}
