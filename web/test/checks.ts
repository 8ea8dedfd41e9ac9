// Comparisons for the tests of every platform. Each throws a text if it fails.

import type { Device } from 'tensorgrad'

/** What a home lends its tests. */
export interface Lent {
  device: Device
  /** Ends every worker, as a crash would. */
  killWorkers(): Promise<void>
}
export type Test = (lent: Lent) => Promise<void>

export function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(what)
}
export function equal(got: unknown, want: unknown, what: string): void {
  check(Object.is(got, want), `${what}: ${String(got)}, not ${String(want)}`)
}
export function near(got: number, want: number, tolerance: number, what: string): void {
  check(Math.abs(got - want) <= tolerance, `${what}: ${got}, not ${want}`)
}
export function same(a: ArrayLike<number>, b: ArrayLike<number>, what: string): void {
  equal(a.length, b.length, `${what}: length`)
  for (let i = 0; i < a.length; i++) equal(a[i], b[i], `${what}[${i}]`)
}
/** Rejects with an error of that class whose message begins as said. */
export async function refused(promise: Promise<unknown>, type: abstract new (...args: never[]) => Error, message: RegExp): Promise<Error> {
  const error = await promise.then(() => null, (thrown: unknown) => thrown)
  check(error !== null, `it did not reject: ${message}`)
  check(error instanceof type, `${String(error)} is no ${type.name}`)
  check(message.test((error as Error).message), `the message is: ${(error as Error).message}, not ${message}`)
  return error as Error
}
