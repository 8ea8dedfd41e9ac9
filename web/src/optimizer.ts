// Optimisers as plain values: a user's options, and the message that is posted. Formulas and
// sources are beside tg_optimizer in the C header.

import type { OptimizerFields } from './boundary.gen.js'
import { ArgumentError } from './errors.js'
import { anything, belowOne, callback, checkOptions, count, flag, fromZero, list, oneOf, text, type Kind, type Kinds } from './options.js'
import { rateArgument, type LR } from './lr.js'
import { optimizerFields, optimizerKinds } from './numbers.js'
import type { OptimizerMessage } from './protocol.js'

/** Options for the parameters whose names match. '*' matches any characters, '?' any one. A
 *  parameter belongs to the first group that matches its name; a group without parameters is a
 *  NotFoundError. */
export interface ParamGroup {
  match: string
  /** Factor on the schedule's rate, also for decay. Default 1. */
  rate?: number
  /** The decay of its parameters that decay; 0: none does. Default: the optimiser's. */
  weightDecay?: number
  /** Whether its parameters decay. Default: their own flags (or decayFilter). */
  decay?: boolean
  /** Not trained; no gradient is computed. */
  frozen?: boolean
  /** Muon: Adam's update for matrices too (embeddings, the last layer). */
  plain?: boolean
}

interface Common {
  lr: LR
  /** Decoupled: p <- (1 - lr weightDecay) p. Default 0. */
  weightDecay?: number
  /** Which parameters decay: overrides their flags. */
  decayFilter?: (name: string) => boolean
  groups?: readonly ParamGroup[]
  /** Scales all gradients by min(1, clipNorm / norm), the norm over all parameters. Default, and 0:
   *  off. */
  clipNorm?: number
  /** Cuts each element of the gradient to [-clipValue, clipValue], before clipNorm. Default, and 0:
   *  off. */
  clipValue?: number
  /** The gradient over its norm; not together with clipNorm. */
  normalize?: boolean
  /** A step whose loss or gradient is not finite leaves parameters and optimiser as they were; it
   *  still rejects. Default false. */
  skipNonFinite?: boolean
  /** Parameters change once in this many steps, by the mean of their gradients. Default 1. */
  accumulate?: number
  /** Keep averages of the parameters, avg <- avg + (1 - average) (p - avg), with average in (0, 1):
   *  see `compileForward(..., { average: true })`. Default: off. */
  average?: number
}

/** m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt v
 *  + eps). */
export interface AdamConfig extends Common {
  /** Default 0.9. */
  b1?: number
  /** Default 0.999. */
  b2?: number
  /** Default 1e-8. */
  eps?: number
  /** 'corrected': eps is added to the bias-corrected sqrt v, as in PyTorch. Default 'uncorrected',
   *  as above. */
  epsMode?: 'uncorrected' | 'corrected'
}
/** Adam with a default weightDecay of 0.01. */
export type AdamWConfig = AdamConfig

/** buf = momentum buf + g; p -= lr (nesterov ? g + momentum buf : buf). */
export interface SGDConfig extends Common {
  /** Default 0. */
  momentum?: number
  nesterov?: boolean
}

/** p -= lr sign(b1 m + (1 - b1) g); then m = b2 m + (1 - b2) g. */
export interface LionConfig extends Common {
  /** Default 0.9. */
  b1?: number
  /** Default 0.99. */
  b2?: number
}

/** v = b2 v + (1 - b2) g g; d = g / (sqrt v + eps); with momentum buf = momentum buf + d, d = buf;
 *  p -= lr d. */
export interface RMSPropConfig extends Common {
  /** Default 0.99. */
  b2?: number
  /** Default 1e-8. */
  eps?: number
  /** Default 0. */
  momentum?: number
}

/** v = v + g g; p -= lr g / (sqrt v + eps). */
export interface AdagradConfig extends Common {
  /** Default 1e-10. */
  eps?: number
}

/** For matrices: momentum, then the nearest orthogonal matrix by five Newton-Schulz steps, times
 *  0.2 sqrt(max(rows, columns)). For all other parameters: Adam. */
export interface MuonConfig extends AdamConfig {
  /** Default 0.95. */
  momentum?: number
}

/** Give at most one of them. */
export interface Optimizers {
  sgd?: SGDConfig
  adam?: AdamConfig
  adamw?: AdamWConfig
  lion?: LionConfig
  rmsprop?: RMSPropConfig
  adagrad?: AdagradConfig
  muon?: MuonConfig
}
export type OptimizerKind = keyof Optimizers
export type OptimizerConfig = Common & Partial<Omit<AdamConfig & SGDConfig, keyof Common>>

const betweenOnes: Kind = { text: 'a number over 0 and below 1', is: (value: unknown) => typeof value === 'number' && value > 0 && value < 1 }
const common: Kinds = {
  lr: anything, weightDecay: fromZero, decayFilter: callback, groups: list, clipNorm: fromZero, clipValue: fromZero, normalize: flag,
  skipNonFinite: flag, accumulate: count, average: betweenOnes,
}
const adam: Kinds = { b1: belowOne, b2: belowOne, eps: fromZero, epsMode: oneOf('uncorrected', 'corrected') }
/** The options of each kind, besides the common ones. */
const known: Readonly<Record<OptimizerKind, Kinds>> = {
  sgd: { momentum: belowOne, nesterov: flag },
  adam,
  adamw: adam,
  lion: { b1: belowOne, b2: belowOne },
  rmsprop: { b2: belowOne, eps: fromZero, momentum: belowOne },
  adagrad: { eps: fromZero },
  muon: { ...adam, momentum: belowOne },
}
const ofGroups: Kinds = { match: text, rate: fromZero, weightDecay: fromZero, decay: flag, frozen: flag, plain: flag }
/** The optimisers among the options of a call. */
export const optimizers: Kinds = Object.fromEntries(optimizerKinds.map((kind) => [kind, anything]))

function checkConfig(kind: OptimizerKind, config: OptimizerConfig): OptimizerConfig {
  const own = checkOptions(kind, config, { ...common, ...known[kind] }), { groups = [] } = own
  if (own.nesterov === true && !own.momentum) throw new ArgumentError(`${kind}: nesterov needs a momentum over 0`)
  for (const group of groups as readonly ParamGroup[]) {
    const { match = '', rate, decay, weightDecay } = checkOptions(`${kind}: a group`, group, ofGroups)
    if (match === '') throw new ArgumentError(`${kind}: a group needs a string to match`)
    const what = `${kind}: group "${match}"`
    if (rate === 0) throw new ArgumentError(`${what}: rate must be over 0: what is not to be trained is frozen`)
    if (decay === true && weightDecay === 0) throw new ArgumentError(`${what}: decay is true and weightDecay 0`)
  }
  return own
}

export function chooseOptimizer(options: Optimizers): { kind: OptimizerKind; config: OptimizerConfig | null } {
  const [kind = 'adam', second] = optimizerKinds.filter((each) => options[each] !== undefined).sort()
  if (second !== undefined) throw new ArgumentError(`compile: ${kind} and ${second} are both given: choose one`)
  const config: OptimizerConfig | undefined = options[kind]
  if (config === undefined) return { kind, config: null }
  return { kind, config: checkConfig(kind, config) }
}

/** The message to post: without decayFilter and groups, which mark the graph, and without undefined
 *  fields. */
export function optimizerMessage(kind: OptimizerKind, config: OptimizerConfig): OptimizerMessage {
  const { lr, b1, b2, eps, epsMode, weightDecay, momentum, nesterov, clipNorm, clipValue, normalize, skipNonFinite, accumulate, average } = config
  const all = {
    ...{ kind, lr: rateArgument(kind, lr), beta1: b1, beta2: b2, eps, epsMode, weightDecay, momentum, nesterov },
    ...{ clipNorm, clipValue, normalize, skipNonFinite, accumulate, average },
  }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as unknown as OptimizerMessage
}

export const optimizerOf = (kind: OptimizerKind, config: OptimizerConfig): OptimizerFields => optimizerFields(optimizerMessage(kind, config))
