// Options as a program without types may give them: what is no option of an operation is a mistake, not silence.

import { ArgumentError, blame } from './errors.js'
import { describe, Tensor } from './tensor.js'

/** Whether `options` is an object of these options alone; those that are undefined are left out. */
export function checkOptions(op: string, options: object, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null || options instanceof Tensor) throw new ArgumentError(`${op}: the options are ${describe(options)}`)
  for (const name of Object.keys(options))
    if (!names.includes(name)) throw new ArgumentError(`${op}: there is no option ${name}: ${names.join(', ')}`)
}

/** Runs checks of a constructor or method: what they throw is thrown at the line that called `above`. */
export function check(above: unknown, body: () => void): void {
  try {
    body()
  } catch (error) {
    throw blame(error as Error, above)
  }
}
