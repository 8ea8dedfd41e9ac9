// Learning rates: plain values that travel to the worker and are evaluated in the step itself, at t = 1, 2, ...

import { ArgumentError, blame } from './errors.js'

/** A schedule. constant: peak. linear: peak + (final - peak) min(t / steps, 1). cosine: final + (peak - final) (1 + cos(pi min(t / steps,
 *  1))) / 2. warmup: peakLr t / warmupSteps up to warmupSteps, then `after` from its start. */
export type LRSchedule =
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'linear'; readonly peak: number; readonly final: number; readonly steps: number }
  | { readonly kind: 'cosine'; readonly peak: number; readonly final: number; readonly steps: number }
  | { readonly kind: 'warmup'; readonly peakLr: number; readonly warmupSteps: number; readonly after: LRSchedule }
export type LR = number | LRSchedule

function constant(value: number): LRSchedule {
  return { kind: 'constant', value }
}

function linearDecay(options: { peak: number; final: number; steps: number }): LRSchedule {
  return { kind: 'linear', peak: options.peak, final: options.final, steps: options.steps }
}

function cosineDecay(options: { peak: number; final: number; steps: number }): LRSchedule {
  return { kind: 'cosine', peak: options.peak, final: options.final, steps: options.steps }
}

function warmup(options: { peakLr: number; warmupSteps: number; after: LR }): LRSchedule {
  const after = typeof options.after === 'number' ? constant(options.after) : options.after
  if (after.kind === 'warmup') throw blame(new ArgumentError('lr.warmup: what follows a warm-up cannot be another warm-up'), warmup)
  return { kind: 'warmup', peakLr: options.peakLr, warmupSteps: options.warmupSteps, after }
}

export const lr = { constant, linearDecay, cosineDecay, warmup }

/** A rate as a user gave it: what is none is said, numbers are the core's to judge. */
export function rateArgument(what: string, rate: unknown): LR {
  if (typeof rate === 'number') return rate
  const kind = (rate as LRSchedule | null | undefined)?.kind
  if (typeof rate === 'object' && kind !== undefined && kind in kinds) return rate as LRSchedule
  throw new ArgumentError(`${what}: lr is ${rate === undefined ? 'missing: a' : 'not a'} number or a schedule of lr.*`)
}

const kinds = { constant: 0, linear: 1, cosine: 2, warmup: 3 }

function plainNumbers(schedule: LRSchedule): [number, number, number, number] {
  if (schedule.kind === 'constant') return [kinds.constant, schedule.value, 0, 0]
  if (schedule.kind === 'warmup') return [kinds.warmup, schedule.peakLr, 0, schedule.warmupSteps]
  return [kinds[schedule.kind], schedule.peak, schedule.final, schedule.steps]
}

/** The fields of C's tg_lr in their order: kind, peak, final, steps, after_kind, after_peak, after_final, after_steps. */
export function lrNumbers(rate: LR): number[] {
  const schedule: LRSchedule = typeof rate === 'number' ? constant(rate) : rate
  const after: readonly number[] = schedule.kind === 'warmup' ? plainNumbers(schedule.after) : [0, 0, 0, 0]
  return [...plainNumbers(schedule), ...after]
}
