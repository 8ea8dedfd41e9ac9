// Rates and optimisers as the structs of the core, for page and worker. Their input has been
// checked (lr.ts, optimizer.ts).

import { EpsMode, LrKind, OptimizerKind as KindNumber, type LrFields, type OptimizerFields } from './boundary.gen.js'
import type { LRSchedule, Schedule } from './lr.js'
import type { OptimizerKind } from './optimizer.js'
import type { OptimizerMessage } from './protocol.js'

// ---------------------------------------------------------------- rates

/** By kind: tg_lr_kind. */
export const rateKinds = { ...LrKind, linearDecay: LrKind.linear, cosineDecay: LrKind.cosine }

export const scheduleOf = (rate: LRSchedule): Schedule => (typeof rate === 'number' ? { kind: 'constant', value: rate } : rate)

function plainFields(schedule: Schedule): { kind: number; peak: number; final: number; steps: number } {
  const kind = rateKinds[schedule.kind]
  switch (schedule.kind) {
    case 'constant':
      return { kind, peak: schedule.value, final: 0, steps: 0 }
    case 'warmup':
      return { kind, peak: schedule.peakLr, final: 0, steps: schedule.warmupSteps }
    case 'staircase':
      return { kind, peak: schedule.peak, final: schedule.peak, steps: schedule.steps }
    case 'multiStep':
      return { kind, peak: schedule.peak, final: schedule.peak, steps: 1 }
    default:
      return { kind, peak: schedule.peak, final: schedule.final, steps: schedule.steps }
  }
}

/** The further fields of some kinds. */
function furtherFields(schedule: Schedule): LrFields {
  switch (schedule.kind) {
    case 'staircase':
      return { factor: schedule.factor }
    case 'multiStep':
      return { factor: schedule.factor, milestones: schedule.milestones, milestoneCount: schedule.milestones.length }
    case 'oneCycle':
      return { initial: schedule.initial, rise: schedule.rise }
    default:
      return {}
  }
}

/** The warm-ups, one after another, and the schedule after the last. */
function warmups(schedule: Schedule): { ramps: [peak: number, steps: number][]; after: Schedule } {
  const ramps: [number, number][] = []
  for (; schedule.kind === 'warmup'; schedule = scheduleOf(schedule.after)) ramps.push([schedule.peakLr, schedule.warmupSteps])
  return { ramps, after: schedule }
}

/** C's tg_lr. If there are more warm-ups or milestones than it has room for, it keeps their count,
 *  and the core refuses it. */
export function lrFields(rate: LRSchedule): LrFields {
  const schedule = scheduleOf(rate), { ramps, after } = warmups(schedule), more = ramps.slice(1)
  const fields: LrFields = { ...plainFields(schedule), ...furtherFields(after) }
  if (ramps.length === 0) return fields
  const { kind, peak, final, steps } = plainFields(after)
  return {
    ...fields, afterKind: kind, afterPeak: peak, afterFinal: final, afterSteps: steps,
    moreCount: more.length, morePeaks: more.map(([each]) => each), moreSteps: more.map(([, each]) => each),
  }
}

// ---------------------------------------------------------------- optimisers

export const optimizerKinds = /* @__PURE__ */ Object.keys(KindNumber).filter((kind) => kind !== 'none') as OptimizerKind[]

/** A number for the core, where 0 means "not given" and -0 means 0. */
export const told = (value: number | undefined): number => (value === undefined ? 0 : value === 0 ? -0 : value)

/** C's tg_optimizer. */
export function optimizerFields({ kind, lr, beta1, beta2, eps, epsMode, weightDecay, momentum, ...others }: OptimizerMessage): OptimizerFields {
  return {
    ...others,
    kind: KindNumber[kind === 'adamw' && weightDecay === 0 ? 'adam' : kind], // 0 is a default of AdamW's alone
    lr: lrFields(lr),
    beta1: told(beta1),
    beta2: told(beta2),
    eps: told(eps),
    epsMode: EpsMode[epsMode ?? 'uncorrected'],
    weightDecay: told(weightDecay),
    momentum: told(momentum),
  }
}
