// Options as a program without types may give them. An unknown option or a wrong value is an error.
// Owns the kinds of values, the name of a value in a message, and the nearest name. Must not know
// an operation.

import { ArgumentError, blame } from './errors.js'

const TENSOR = Symbol.for('tensorgrad.tensor')

/** A value, for a message. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'object') {
    const name = value.constructor?.name ?? 'plain object'
    return `${/^[AEIOU]/i.test(name) ? 'an' : 'a'} ${name}`
  }
  if (typeof value === 'function') return 'a function'
  return `the ${typeof value} ${typeof value === 'string' ? JSON.stringify(value) : String(value)}`
}

const INSPECT = Symbol.for('nodejs.util.inspect.custom')

/** Sets how texts and Node's console.log show the objects of a class, whose fields do not help a
 *  reader. */
export function shown<T extends object>(type: { prototype: T }, text: (object: T) => string): void {
  const value = function (this: T): string {
    return text(this)
  }
  for (const name of ['toString', INSPECT]) Object.defineProperty(type.prototype, name, { value, configurable: true, writable: true })
}

const plainly = (value: unknown): string => (typeof value === 'object' || typeof value === 'function' ? describe(value) : typeof value === 'string' ? JSON.stringify(value) : String(value))

/** The values of an option. `text` ends "keepDims is 1, not ...". */
export interface Kind {
  readonly text: string
  is(value: never): boolean
}
/** The options of a call, by name. */
export type Kinds = Readonly<Record<string, Kind>>
export type Hints = Readonly<Record<string, string>>

const number = (text: string, is: (value: number) => boolean): Kind => ({ text, is: (value: unknown) => typeof value === 'number' && is(value) })
const typed = (text: string, type: string): Kind => ({ text, is: (value: unknown) => typeof value === type })

/** For values that are checked elsewhere: tensors among the operands, groups, data. */
export const anything: Kind = { text: '', is: () => true }
export const flag = /* @__PURE__ */ typed('true or false', 'boolean')
export const text = /* @__PURE__ */ typed('a string', 'string')
/** By name. */
export const record: Kind = { text: 'an object', is: (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value) }
export const list: Kind = { text: 'an array', is: Array.isArray }
export const callback = /* @__PURE__ */ typed('a function', 'function')
/** NaN and infinities too: the core judges the value. */
export const numeric = /* @__PURE__ */ typed('a number', 'number')
export const finite = /* @__PURE__ */ number('a finite number', Number.isFinite)
export const positive = /* @__PURE__ */ number('a finite number over 0', (x) => x > 0 && x < Infinity)
export const fromZero = /* @__PURE__ */ number('a finite number from 0 on', (x) => x >= 0 && x < Infinity)
/** [0, 1) */
export const belowOne = /* @__PURE__ */ number('a number from 0 to below 1', (x) => x >= 0 && x < 1)
/** (0, 1] */
export const unit = /* @__PURE__ */ number('a number over 0, up to 1', (x) => x > 0 && x <= 1)
export const whole = /* @__PURE__ */ number('a whole number', Number.isSafeInteger)
export const wholeFromZero = /* @__PURE__ */ number('a whole number from 0 on', (x) => Number.isSafeInteger(x) && x >= 0)
export const count = /* @__PURE__ */ number('a whole number from 1 on', (x) => Number.isSafeInteger(x) && x >= 1)
export function oneOf(...values: readonly unknown[]): Kind {
  const texts = values.map((value) => (typeof value === 'string' ? `'${value}'` : String(value)))
  return { text: texts.length > 1 ? `${texts.slice(0, -1).join(', ')} or ${texts.at(-1)}` : texts.join(), is: (value) => values.includes(value) }
}

/** Checks values that must be given, by name; sizes by default. */
export function checkAll(op: string, above: unknown, values: Readonly<Record<string, unknown>>, kind: Kind = count): void {
  check(above, () => {
    for (const [name, value] of Object.entries(values))
      if (!kind.is(value as never)) throw new ArgumentError(`${op}: ${name} is ${plainly(value)}, not ${kind.text}`)
  })
}

/** Checks that `options` is an object with only these options and values of their kinds. Returns a
 *  plain copy, without undefined options and with those of a prototype. `hints`: what to say of an
 *  unknown name, where the nearest name would not help. */
export function checkOptions<O extends object>(op: string, options: O, kinds: Kinds, hints: Hints = {}): O {
  if (typeof options !== 'object' || options === null || Array.isArray(options) || TENSOR in options)
    throw new ArgumentError(`${op}: the options are ${describe(options)}`)
  for (const [name, value] of Object.entries(options))
    if (value !== undefined && !Object.hasOwn(kinds, name)) throw new ArgumentError(unknownOption(op, name, Object.keys(kinds), hints))
  const own: Record<string, unknown> = {}
  for (const [name, kind] of Object.entries(kinds)) {
    const value = (options as Record<string, never>)[name]
    if (value === undefined) continue
    if (!kind.is(value)) throw new ArgumentError(`${op}: ${name} is ${plainly(value)}, not ${kind.text}`)
    own[name] = value
  }
  return own as O
}

function unknownOption(op: string, name: string, names: readonly string[], hints: Hints): string {
  const near = nearest(name, names), hint = Object.hasOwn(hints, name) ? hints[name] : near === null ? '' : `did you mean ${near}?`
  return `${op}: there is no option ${name}${hint ? `: ${hint}` : ''} (options: ${names.join(', ')})`
}

/** The one of `names` that `name` most likely means, if one is similar. */
export function nearest(name: string, names: readonly string[]): string | null {
  const wanted = plain(name)
  let best: string | null = null, least = Infinity
  for (const each of names) {
    const known = plain(each), [short, long] = known.length < wanted.length ? [known, wanted] : [wanted, known]
    const distance = edits(wanted, known)
    // few letters differ, the first four agree, or one is the other with letters left out (beta1,
    // b1)
    const isNear = distance <= Math.max(1, Math.floor(long.length / 3)) || (short.length > 3 && long.startsWith(short.slice(0, 4))) || (short[0] === long[0] && isWithin(short, long))
    if (isNear && (short.length > 1 || short[0] === long[0]) && distance < least) [best, least] = [each, distance]
  }
  return best
}

const plain = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')

function isWithin(short: string, long: string): boolean {
  let at = 0
  for (const letter of long) if (letter === short[at]) at++
  return at === short.length
}

/** How many letters are changed, left out, inserted, or swapped with the next. */
function edits(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i++) {
    const row = [i], above = rows[i - 1]!
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(above[j]! + 1, row[j - 1]! + 1, above[j - 1]! + Number(a[i - 1] !== b[j - 1]))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j]!, rows[i - 2]![j - 2]! + 1)
    }
    rows.push(row)
  }
  return rows[a.length]![b.length]!
}

const MAX_SEED = (1n << 64n) - 1n

/** Checks the seed of initial values, random numbers or an order. */
export function seedArgument(what: string, seed: number | bigint = 0): bigint {
  const whole = typeof seed === 'bigint' || Number.isSafeInteger(seed)
  const value = whole ? BigInt(seed) : -1n
  if (value < 0n || value > MAX_SEED) throw new ArgumentError(`${what}: the seed is ${typeof seed === 'number' || typeof seed === 'bigint' ? seed : describe(seed)}, not a whole number from 0 on`)
  return value
}

/** Runs checks of a constructor or method. Their errors are thrown at the line that called
 *  `above`. */
export function check<R>(above: unknown, body: () => R): R {
  try {
    return body()
  } catch (error) {
    throw blame(error as Error, above)
  }
}
