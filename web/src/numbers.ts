// Rates and optimisers as the numbers that the core takes: what page and worker share of them. What is given has been checked (lr.ts,
// optimizer.ts).

import type { LRSchedule, Schedule } from './lr.js'
import type { OptimizerKind } from './optimizer.js'
import type { OptimizerMessage } from './protocol.js'

// ---------------------------------------------------------------- rates

/** By kind: tg_lr_kind. */
export const rateKinds = { constant: 0, linearDecay: 1, linear: 1, cosineDecay: 2, cosine: 2, warmup: 3, staircase: 4, multiStep: 5, oneCycle: 6 }
const MILESTONES = 6, WARMUPS = 2

export const scheduleOf = (rate: LRSchedule): Schedule => (typeof rate === 'number' ? { kind: 'constant', value: rate } : rate)

/** kind, peak, final, steps */
function plainNumbers(schedule: Schedule): [number, number, number, number] {
  const kind = rateKinds[schedule.kind]
  switch (schedule.kind) {
    case 'constant':
      return [kind, schedule.value, 0, 0]
    case 'warmup':
      return [kind, schedule.peakLr, 0, schedule.warmupSteps]
    case 'staircase':
      return [kind, schedule.peak, schedule.peak, schedule.steps]
    case 'multiStep':
      return [kind, schedule.peak, schedule.peak, 1]
    default:
      return [kind, schedule.peak, schedule.final, schedule.steps]
  }
}

/** factor, initial, rise, milestone_count, milestones */
function fieldNumbers(schedule: Schedule): number[] {
  const milestones = schedule.kind === 'multiStep' ? schedule.milestones : []
  const [factor, initial, rise] = [
    schedule.kind === 'staircase' || schedule.kind === 'multiStep' ? schedule.factor : 0,
    schedule.kind === 'oneCycle' ? schedule.initial : 0,
    schedule.kind === 'oneCycle' ? schedule.rise : 0,
  ]
  return [factor, initial, rise, milestones.length, ...Array.from({ length: MILESTONES }, (_, i) => milestones[i] ?? 0)]
}

/** Warm-ups, one after another, and what follows the last. */
function warmups(schedule: Schedule): { ramps: [peak: number, steps: number][]; after: Schedule } {
  const ramps: [number, number][] = []
  for (; schedule.kind === 'warmup'; schedule = scheduleOf(schedule.after)) ramps.push([schedule.peakLr, schedule.warmupSteps])
  return { ramps, after: schedule }
}

/** more_count, and more_peaks and more_steps by turns: the warm-ups that follow the first. */
function moreNumbers(ramps: readonly [number, number][]): number[] {
  const more = ramps.slice(1)
  return [more.length, ...Array.from({ length: WARMUPS - 1 }, (_, i) => more[i] ?? [0, 0]).flat()]
}

/** The fields of C's tg_lr in their order: kind, peak, final, steps, after_kind, after_peak, after_final, after_steps, factor, initial, rise,
 *  milestone_count, milestones, more_count, more_peaks and more_steps by turns. */
export function lrNumbers(rate: LRSchedule): number[] {
  const schedule = scheduleOf(rate), { ramps, after } = warmups(schedule)
  const following = ramps.length > 0 ? plainNumbers(after) : [0, 0, 0, 0]
  return [...plainNumbers(schedule), ...following, ...fieldNumbers(after), ...moreNumbers(ramps)]
}

// ---------------------------------------------------------------- optimisers

/** By tg_optimizer_kind less 1. */
export const optimizerKinds: readonly OptimizerKind[] = ['sgd', 'adam', 'adamw', 'lion', 'rmsprop', 'adagrad', 'muon']

/** As the core takes a number: 0 is "not given" there, and -0 a 0 on purpose. */
export const told = (value: number | undefined): number => (value === undefined ? 0 : value === 0 ? -0 : value)

/** kind, beta1, beta2, eps, epsMode, weightDecay, momentum, nesterov, clipNorm, clipValue, normalize, accumulate, average,
 *  skipNonFinite, then the schedule's. 0: the default; -0: a 0. */
export function messageNumbers(message: OptimizerMessage): number[] {
  return [
    optimizerKinds.indexOf(message.kind === 'adamw' && message.weightDecay === 0 ? 'adam' : message.kind) + 1, // 0 is a default of AdamW's alone
    told(message.beta1),
    told(message.beta2),
    told(message.eps),
    Number(message.epsMode === 'corrected'),
    told(message.weightDecay),
    told(message.momentum),
    Number(message.nesterov ?? false),
    message.clipNorm ?? 0,
    message.clipValue ?? 0,
    Number(message.normalize ?? false),
    message.accumulate ?? 0,
    message.average ?? 0,
    Number(message.skipNonFinite ?? false),
    ...lrNumbers(message.lr),
  ]
}
