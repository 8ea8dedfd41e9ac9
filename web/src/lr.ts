// Learning rates: plain values that travel to the worker and are evaluated in the step itself, at t = 1, 2, ...

import { ArgumentError } from './errors.js'
import { anything, check, checkOptions, list, numeric, type Kinds } from './options.js'

/** Schedules as plain data. constant: value. linearDecay: peak + (final - peak) min(t / steps, 1). cosineDecay: final + (peak - final)
 *  (1 + cos(pi min(t / steps, 1))) / 2. warmup: peakLr t / warmupSteps up to warmupSteps, then `after` from its start, which may be a
 *  warm-up itself, with no third after it. staircase: `steps` updates at each rate, then factor of it. multiStep: after each milestone (a number
 *  of updates, at most 6 of them) factor of the rate. oneCycle: along a cosine from initial to peak in `rise` updates, then to final at
 *  `steps`. `linear` and `cosine` are short for linearDecay and cosineDecay. */
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

/** A schedule of these options: what is wrong with them is said at the line that called `above`. */
function make<K extends Schedule['kind']>(kind: K, above: unknown, options: object): Extract<Schedule, { kind: K }> {
  return check(above, () => scheduleArgument(`lr.${kind}`, { ...checkOptions(`lr.${kind}`, options, fields[kind]), kind } as unknown as Schedule, '')) as Extract<Schedule, { kind: K }>
}

function constant(value: number): Schedule {
  return { kind: 'constant', value }
}

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

/** initial: peak / 25, final: peak / 250,000, rise: three tenths of the steps, unless said. */
function oneCycle(options: { peak: number; steps: number; initial?: number; final?: number; rise?: number }): Schedule {
  const { peak, steps } = options ?? {}, rise = Math.max(1, Math.floor((steps * 3) / 10))
  return make('oneCycle', oneCycle, { initial: peak / 25, final: peak / 250000, rise, ...options })
}

export const lr = { constant, linearDecay, cosineDecay, warmup, staircase, multiStep, oneCycle }

const linear: Kinds = { peak: numeric, final: numeric, steps: numeric }
/** What each kind holds; whether the numbers are any good is the core's to judge. */
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

/** A rate as a user gave it: what is none is said. */
export function rateArgument(what: string, rate: unknown, name = 'lr'): LRSchedule {
  if (typeof rate === 'number') return rate
  const kind = (rate as Schedule | null | undefined)?.kind
  if (typeof rate !== 'object' || kind === undefined || !Object.hasOwn(kinds, kind))
    throw new ArgumentError(`${what}: ${name} is ${rate === undefined ? 'missing: a' : 'not a'} number or a schedule of lr.*`)
  return scheduleArgument(what, rate as Schedule, name)
}

/** The same of an object that has a kind. */
function scheduleArgument(what: string, schedule: Schedule, name: string): Schedule {
  const own = checkOptions(name === '' ? what : `${what}: ${name}`, schedule, { kind: anything, ...fields[schedule.kind] }) as Schedule
  for (const field of Object.keys(fields[own.kind]))
    if (!Object.hasOwn(own, field)) throw new ArgumentError(`${what}: ${name === '' ? '' : `${name}.`}${field} is missing`)
  return own.kind === 'warmup' ? { ...own, after: scheduleOf(rateArgument(what, own.after, name === '' ? 'after' : `${name}.after`)) } : own
}

const kinds = { constant: 0, linearDecay: 1, linear: 1, cosineDecay: 2, cosine: 2, warmup: 3, staircase: 4, multiStep: 5, oneCycle: 6 }
const MILESTONES = 6, WARMUPS = 2

const scheduleOf = (rate: LRSchedule): Schedule => (typeof rate === 'number' ? constant(rate) : rate)

/** kind, peak, final, steps */
function plainNumbers(schedule: Schedule): [number, number, number, number] {
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
