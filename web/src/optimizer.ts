// Optimisers as plain values: what a user writes, what is posted, and the numbers of C's tg_optimizer.

import { lrNumbers, rateArgument, type LR } from './lr.js'
import type { OptimizerMessage } from './protocol.js'

interface Common {
  lr: LR
  /** Decoupled: p <- (1 - lr weightDecay) p. Default 0. */
  weightDecay?: number
  /** Which parameters decay: overrides their flags. */
  decayFilter?: (name: string) => boolean
  /** Scales all gradients by min(1, clipNorm / norm), the norm over all parameters. Default: off. */
  clipNorm?: number
}

/** m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt v + eps). */
export interface AdamConfig extends Common {
  /** Default 0.9. */
  b1?: number
  /** Default 0.999. */
  b2?: number
  /** Default 1e-8. */
  eps?: number
  /** 'corrected': eps beside the bias-corrected sqrt v, as PyTorch has it. Default 'uncorrected', as above. */
  epsMode?: 'uncorrected' | 'corrected'
}

/** buf = momentum buf + g; p -= lr (nesterov ? g + momentum buf : buf). */
export interface SGDConfig extends Common {
  /** Default 0. */
  momentum?: number
  nesterov?: boolean
}

/** As it is posted: without the function. Undefined fields are left out. */
export function optimizerMessage(kind: 'adam' | 'sgd', config: AdamConfig | SGDConfig): OptimizerMessage {
  const { lr, weightDecay, clipNorm, b1, b2, eps, epsMode, momentum, nesterov } = config as AdamConfig & SGDConfig
  const all = { kind, lr: rateArgument(kind, lr), beta1: b1, beta2: b2, eps, epsMode, weightDecay, momentum, nesterov, clipNorm }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as unknown as OptimizerMessage
}

/** kind (2 Adam, 1 SGD), beta1, beta2, eps, epsMode, weightDecay, momentum, nesterov, clipNorm, the schedule's eight. 0: the default. */
export function messageNumbers(message: OptimizerMessage): number[] {
  return [
    message.kind === 'adam' ? 2 : 1,
    message.beta1 ?? 0,
    message.beta2 ?? 0,
    message.eps ?? 0,
    Number(message.epsMode === 'corrected'),
    message.weightDecay ?? 0,
    message.momentum ?? 0,
    Number(message.nesterov ?? false),
    message.clipNorm ?? 0,
    ...lrNumbers(message.lr),
  ]
}

export const optimizerNumbers = (kind: 'adam' | 'sgd', config: AdamConfig | SGDConfig): number[] =>
  messageNumbers(optimizerMessage(kind, config))
