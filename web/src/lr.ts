// Learning rates: plain values that are sent to the worker and evaluated in the step itself, at t =
// 1, 2, ...

import { ArgumentError } from './errors.js'
import { rateKinds, scheduleOf } from './numbers.js'
import { anything, check, checkOptions, list, numeric, type Kinds } from './options.js'

/** Schedules as plain data. constant: value. linearDecay: peak + (final - peak) min(t / steps, 1).
 *  cosineDecay: final + (peak - final) (1 + cos(pi min(t / steps, 1))) / 2. warmup: peakLr t /
 *  warmupSteps up to warmupSteps, then `after` from its start; `after` may be a second warm-up, but
 *  not a third. staircase: multiplies the rate by factor after every `steps` updates. multiStep:
 *  multiplies the rate by factor after each milestone (a number of updates; at most 6 milestones).
 *  oneCycle: along a cosine from initial to peak in `rise` updates, then to final at `steps`.
 *  `linear` and `cosine` are short for linearDecay and cosineDecay. */
export type Schedule =
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'linearDecay' | 'linear'; readonly peak: number; readonly final: number; readonly steps: number }
  | { readonly kind: 'cosineDecay' | 'cosine'; readonly peak: number; readonly final: number; readonly steps: number }
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
/** A rate: a number, or a schedule of `lr.*`. */
export type LRSchedule = number | Schedule
/** The same. */
export type LR = LRSchedule

/** Makes a schedule of these options. Errors are thrown at the line that called `above`. */
function make<K extends Schedule['kind']>(kind: K, above: unknown, options: object): Extract<Schedule, { kind: K }> {
  return check(above, () => scheduleArgument(`lr.${kind}`, { ...checkOptions(`lr.${kind}`, options, fields[kind]), kind } as unknown as Schedule, '')) as Extract<Schedule, { kind: K }>
}

const constant = (value: number): Schedule => scheduleOf(value)

function linearDecay(options: { peak: number; final: number; steps: number }): Schedule {
  return make('linearDecay', linearDecay, options)
}

function cosineDecay(options: { peak: number; final: number; steps: number }): Schedule {
  return make('cosineDecay', cosineDecay, options)
}

function warmup(options: { peakLr: number; warmupSteps: number; after: LRSchedule }): Schedule {
  return make('warmup', warmup, options)
}

function staircase(options: { peak: number; factor: number; steps: number }): Schedule {
  return make('staircase', staircase, options)
}

function multiStep(options: { peak: number; factor: number; milestones: readonly number[] }): Schedule {
  return make('multiStep', multiStep, options)
}

/** Defaults: initial peak / 25, final peak / 250,000, rise three tenths of the steps. */
function oneCycle(options: { peak: number; steps: number; initial?: number; final?: number; rise?: number }): Schedule {
  const { peak, steps } = options ?? {}, rise = Math.max(1, Math.floor((steps * 3) / 10))
  return make('oneCycle', oneCycle, { initial: peak / 25, final: peak / 250000, rise, ...options })
}

export const lr = { constant, linearDecay, cosineDecay, warmup, staircase, multiStep, oneCycle }

const linear: Kinds = { peak: numeric, final: numeric, steps: numeric }
/** The fields of each kind. The core judges the numbers. */
const fields: Readonly<Record<Schedule['kind'], Kinds>> = {
  constant: { value: numeric },
  linearDecay: linear,
  linear,
  cosineDecay: linear,
  cosine: linear,
  warmup: { peakLr: numeric, warmupSteps: numeric, after: anything },
  staircase: { peak: numeric, factor: numeric, steps: numeric },
  multiStep: { peak: numeric, factor: numeric, milestones: list },
  oneCycle: { peak: numeric, steps: numeric, initial: numeric, final: numeric, rise: numeric },
}

/** A rate as a user gave it; anything else is an error. */
export function rateArgument(what: string, rate: unknown, name = 'lr'): LRSchedule {
  if (typeof rate === 'number') return rate
  const kind = (rate as Schedule | null | undefined)?.kind
  if (typeof rate !== 'object' || kind === undefined || !Object.hasOwn(rateKinds, kind))
    throw new ArgumentError(`${what}: ${name} is ${rate === undefined ? 'missing: a' : 'not a'} number or a schedule of lr.*`)
  return scheduleArgument(what, rate as Schedule, name)
}

/** The same for an object that has a kind. */
function scheduleArgument(what: string, schedule: Schedule, name: string): Schedule {
  const own = checkOptions(name === '' ? what : `${what}: ${name}`, schedule, { kind: anything, ...fields[schedule.kind] }) as Schedule
  for (const field of Object.keys(fields[own.kind]))
    if (!Object.hasOwn(own, field)) throw new ArgumentError(`${what}: ${name === '' ? '' : `${name}.`}${field} is missing`)
  return own.kind === 'warmup' ? { ...own, after: scheduleOf(rateArgument(what, own.after, name === '' ? 'after' : `${name}.after`)) } : own
}
