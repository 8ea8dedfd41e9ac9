// The life of models on a page: one takes the place of another, and of calls that overlap only the newest matters.

import { ArgumentError } from './errors.js'
import { check, checkOptions, flag } from './options.js'
import type { CompiledForward, CompiledModule } from './compiled.js'
import { describe } from './tensor.js'

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type AnyModel = CompiledModule<any, any> | CompiledForward<any, any>

export interface ReplaceOptions {
  /** The new model gets the old one's values of parameters that both have, by name and shape. Default false. */
  carry?: boolean
}

/** Puts a model that `make` compiles in the place of `old`. When the new model is there (and has its
 *  parameters), waits for the calls in flight on `old` and destroys it. Training runs of `old` end at
 *  their next submission, and so do the calls that wait for them. If anything fails before that, it
 *  is thrown and `old` stays as it was. `old` null: there is none yet. */
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

/** Of calls that overlap only the newest matters: while `fn` runs for one, the last of those made meanwhile waits for it, and the others
 *  never begin: their promises resolve with undefined. What `fn` returns or throws is its own caller's. */
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
