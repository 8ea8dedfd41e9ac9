// The life of models on a page: replacing one by another, and keeping only the newest of calls that
// overlap.

import { ArgumentError } from './errors.js'
import { check, checkOptions, flag } from './options.js'
import type { CompiledForward, CompiledModule } from './compiled.js'
import { describe } from './tensor.js'

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type AnyModel = CompiledModule<any, any> | CompiledForward<any, any>

export interface ReplaceOptions {
  /** Copy the values of parameters that both models have, by name and shape, to the new one.
   *  Default false. */
  carry?: boolean
}

/** Replaces `old` (null: there is none yet) by a model that `make` compiles. When the new model is
 *  ready and has its parameters, waits for the calls in flight on `old` and destroys it. Training
 *  runs of `old` end at their next submission, and so do the calls that wait for them. If anything
 *  fails before that, throws, and `old` stays as it was. */
export async function replaceModel<C extends AnyModel>(old: AnyModel | null, make: () => Promise<C>, options: ReplaceOptions = {}): Promise<C> {
  const { carry = false } = check(replaceModel, () => checkOptions('replaceModel', options, { carry: flag }))
  if (typeof make !== 'function') throw new ArgumentError(`replaceModel: make is ${describe(make)}, not a function that compiles a model`)
  if (old !== null && !isModel(old)) throw new ArgumentError(`replaceModel: old is ${describe(old)}, not a compiled model or null`)
  const made = await make()
  if (!isModel(made)) throw new ArgumentError(`replaceModel: make returned ${describe(made)}, not a compiled model`)
  if ((made as AnyModel) === old) throw new ArgumentError('replaceModel: make returned the old model itself')
  if (old === null) return made
  if (carry)
    try {
      await carryParams(old, made)
    } catch (error) {
      await made.destroy()
      throw error
    }
  await old.settled()
  await old.destroy()
  return made
}

const isModel = (value: unknown): boolean => typeof (value as AnyModel | null | undefined)?.settled === 'function'

async function carryParams(from: AnyModel, to: AnyModel): Promise<void> {
  const params = await from.downloadParams()
  const fits = (name: string): boolean =>
    from.paramNames.includes(name) && String(from.paramShape(name)) === String(to.paramShape(name))
  await to.uploadParams(Object.fromEntries(to.paramNames.filter(fits).map((name) => [name, params[name] as Float32Array])), { partial: true })
}

/** Keeps only the newest of calls that overlap. While `fn` runs for one call, the last call made
 *  meanwhile waits for it; the others never begin, and their promises resolve with undefined. Each
 *  caller gets what `fn` returned or threw for its own call. */
export function latestWins<A extends unknown[], R>(fn: (...args: A) => R | Promise<R>): (...args: A) => Promise<R | undefined> {
  if (typeof fn !== 'function') throw new ArgumentError(`latestWins: takes a function, not ${describe(fn)}`)
  let running = false
  let waiting: { begin(): void; drop(): void } | null = null
  const run = (args: A): Promise<R> => {
    running = true
    const result = (async () => fn(...args))()
    void result.then(() => undefined, () => undefined).then(() => {
      running = false
      const next = waiting
      waiting = null
      next?.begin()
    })
    return result
  }
  return (...args) => {
    if (!running) return run(args)
    waiting?.drop()
    return new Promise((resolve, reject) => {
      waiting = { begin: () => void run(args).then(resolve, reject), drop: () => resolve(undefined) }
    })
  }
}
