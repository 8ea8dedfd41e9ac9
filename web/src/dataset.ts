// The data set of trainings, and the options of a training. Must not know a worker.

import { MOST_STEPS } from './boundary.gen.js'
import type { TrainOptions } from './compile-types.js'
import { ArgumentError } from './errors.js'
import { told } from './numbers.js'
import { anything, callback, checkOptions, describe, record, seedArgument, shown, type Kind, type Kinds } from './options.js'
import type { TrainMessage } from './protocol.js'
import { copyOf, dtypeOfArray } from './tensor.js'
import type { DataArray } from './types.js'

/** Rows on the device, for many calls of `train`. */
export class Dataset {
  readonly #drop: (atOnce: boolean) => Promise<unknown>
  /** @internal */
  readonly owner: object
  /** @internal The graph whose batches it makes. */
  readonly graph: number
  /** @internal */
  readonly number: number
  #destroyed = false

  /** @internal */
  constructor(owner: object, graph: number, number: number, drop: (atOnce: boolean) => Promise<unknown>) {
    this.owner = owner
    this.graph = graph
    this.number = number
    this.#drop = drop
  }
  get destroyed(): boolean {
    return this.#destroyed
  }
  /** Frees its memory, after the runs that use it. A second call does nothing. */
  destroy(): Promise<void>
  /** @internal atOnce: without waiting for a turn, because a run has it. */
  destroy(atOnce: boolean): Promise<void>
  async destroy(atOnce = false): Promise<void> {
    if (this.#destroyed) return
    this.#destroyed = true
    await this.#drop(atOnce)
  }
}

const abortable: Kind = { text: 'an AbortSignal', is: (value: unknown) => typeof (value as AbortSignal | null)?.throwIfAborted === 'function' }
const ofTraining: Kinds = {
  data: anything, inputs: record, batch: anything, steps: anything, order: anything, seed: anything, stepsPerSubmission: anything,
  onProgress: callback, targetLoss: anything, patience: anything, signal: abortable,
}

export interface TrainRun {
  message: TrainMessage
  onProgress: TrainOptions['onProgress']
  signal: AbortSignal | undefined
}

const MAX_STEPS = 2 ** 31 - 1

export function trainArguments(options: TrainOptions): TrainRun {
  const { data, steps, order = 'random', stepsPerSubmission = 0, targetLoss, patience = 0, onProgress, signal } = checkOptions('train', options, ofTraining)
  const whole = (what: string, value: unknown, most: number): void => {
    if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > most)
      throw new ArgumentError(`train: ${what} is ${typeof value === 'number' ? value : describe(value)}, not a whole number from 0 to ${most}`)
  }
  if (typeof data !== 'object' || data === null) throw new ArgumentError(`train: data is ${describe(data)}, not arrays by name or a data set`)
  whole('steps', steps, MAX_STEPS)
  whole('stepsPerSubmission', stepsPerSubmission, MOST_STEPS)
  whole('patience', patience, Number.MAX_SAFE_INTEGER)
  if (order !== 'random' && order !== 'sequential') throw new ArgumentError(`train: order is ${describe(order)}, not 'random' or 'sequential'`)
  if (targetLoss !== undefined && typeof targetLoss !== 'number') throw new ArgumentError(`train: targetLoss is ${describe(targetLoss)}, not a number`)
  if (Number.isNaN(targetLoss ?? 0)) throw new ArgumentError('train: targetLoss is NaN: no loss is below it')
  if (Math.abs(targetLoss ?? 0) === Infinity) throw new ArgumentError(`train: targetLoss is ${targetLoss}, not a finite number`)
  const message = { steps, order, seed: seedArgument('train', options.seed), stepsPerSubmission, targetLoss: told(targetLoss), patience }
  return { message, onProgress, signal }
}

/** Copies, so that the caller may change or reuse the arrays at once. Anything that is not an array
 *  is refused later. */
export function copiesOf<R extends Readonly<Record<string, unknown>>>(record: R): R {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, dtypeOfArray(value) === null ? value : copyOf(value as DataArray)])) as R
}

shown(Dataset, (data) => `Dataset${data.destroyed ? ', destroyed' : ''}`)
