// Learning rates: plain values that travel to the worker and are evaluated in the step itself, at t = 1, 2, ...

import { ArgumentError, blame } from './errors.js'

/** A schedule. constant: peak. linear: peak + (final - peak) min(t / steps, 1). cosine: final + (peak - final) (1 + cos(pi min(t / steps,
 *  1))) / 2. warmup: peakLr t / warmupSteps up to warmupSteps, then `after` from its start. staircase: `steps` updates at each rate, then
 *  factor of it. multiStep: after each milestone (a number of updates, at most 6 of them) factor of the rate. oneCycle: along a cosine from
 *  initial to peak in `rise` updates, then to final at `steps`. */
export type LRSchedule =
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'linear'; readonly peak: number; readonly final: number; readonly steps: number }
  | { readonly kind: 'cosine'; readonly peak: number; readonly final: number; readonly steps: number }
  | { readonly kind: 'staircase'; readonly peak: number; readonly factor: number; readonly steps: number }
  | { readonly kind: 'multiStep'; readonly peak: number; readonly factor: number; readonly milestones: readonly number[] }
  | {
      readonly kind: 'oneCycle'
      readonly peak: number
      readonly steps: number
      readonly initial: number
      readonly final: number
      readonly rise: number
    }
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

function staircase(options: { peak: number; factor: number; steps: number }): LRSchedule {
  return { kind: 'staircase', peak: options.peak, factor: options.factor, steps: options.steps }
}

function multiStep(options: { peak: number; factor: number; milestones: readonly number[] }): LRSchedule {
  if (!Array.isArray(options.milestones)) throw blame(new ArgumentError('lr.multiStep: milestones is not an array'), multiStep)
  return { kind: 'multiStep', peak: options.peak, factor: options.factor, milestones: [...options.milestones] }
}

/** initial: peak / 25, final: peak / 250,000, rise: three tenths of the steps, unless said. */
function oneCycle(options: { peak: number; steps: number; initial?: number; final?: number; rise?: number }): LRSchedule {
  const { peak, steps, initial = peak / 25, final = peak / 250000, rise = Math.max(1, Math.floor((steps * 3) / 10)) } = options
  return { kind: 'oneCycle', peak, steps, initial, final, rise }
}

export const lr = { constant, linearDecay, cosineDecay, warmup, staircase, multiStep, oneCycle }

/** A rate as a user gave it: what is none is said, numbers are the core's to judge. */
export function rateArgument(what: string, rate: unknown): LR {
  if (typeof rate === 'number') return rate
  const kind = (rate as LRSchedule | null | undefined)?.kind
  if (typeof rate === 'object' && kind !== undefined && kind in kinds) return rate as LRSchedule
  throw new ArgumentError(`${what}: lr is ${rate === undefined ? 'missing: a' : 'not a'} number or a schedule of lr.*`)
}

const kinds = { constant: 0, linear: 1, cosine: 2, warmup: 3, staircase: 4, multiStep: 5, oneCycle: 6 }
const MILESTONES = 6

/** kind, peak, final, steps */
function plainNumbers(schedule: LRSchedule): [number, number, number, number] {
  const kind = kinds[schedule.kind]
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
function fieldNumbers(schedule: LRSchedule): number[] {
  const milestones = schedule.kind === 'multiStep' ? schedule.milestones : []
  const [factor, initial, rise] = [
    schedule.kind === 'staircase' || schedule.kind === 'multiStep' ? schedule.factor : 0,
    schedule.kind === 'oneCycle' ? schedule.initial : 0,
    schedule.kind === 'oneCycle' ? schedule.rise : 0,
  ]
  return [factor, initial, rise, milestones.length, ...Array.from({ length: MILESTONES }, (_, i) => milestones[i] ?? 0)]
}

/** The fields of C's tg_lr in their order: kind, peak, final, steps, after_kind, after_peak, after_final, after_steps, factor, initial, rise,
 *  milestone_count, milestones. */
export function lrNumbers(rate: LR): number[] {
  const schedule: LRSchedule = typeof rate === 'number' ? constant(rate) : rate
  const after = schedule.kind === 'warmup' ? (typeof schedule.after === 'number' ? constant(schedule.after) : schedule.after) : null
  return [...plainNumbers(schedule), ...(after === null ? [0, 0, 0, 0] : plainNumbers(after)), ...fieldNumbers(after ?? schedule)]
}
