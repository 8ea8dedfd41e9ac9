// Errors: owns one class for each kind of mistake, where in the user's program it was made, and how
// an error crosses to the page. Stacks begin with the user's frames, in the formats of V8, Firefox
// and Safari. Must not know tensors or workers.

import { Status } from './boundary.gen.js'
import { inJavaScript, namedFirst } from './names.js'
import type { CaptureMessage } from './protocol.js'
import { fromCore, NOWHERE, siteText, withTrueSites, type CoreSite } from './sites.js'

/** A position in the user's program. `file` is a URL or a path as the engine has it. line and
 *  column count from 1; 0 means unknown. */
export interface Site {
  file: string
  line: number
  column: number
}

/** The base of every error of the library. `status` is the C core's number (tg_status). */
export class TensorgradError extends Error {
  /** Where the call or the tensor that the error names was made. */
  site: Site | null = null
  constructor(
    message: string,
    readonly status: number = 0,
  ) {
    super(namedFirst(message))
    Object.defineProperty(this, 'name', { value: new.target.name, configurable: true, writable: true })
    Object.defineProperty(this, 'stack', { value: withHeader(this, userFrames(this.stack)), configurable: true, writable: true })
  }
}

// Names are spelt out, because they cross the worker's boundary and a minifier may rename classes.
function named<T extends abstract new (...a: never[]) => TensorgradError>(type: T, name: string): T {
  Object.defineProperty(type, 'name', { value: name, configurable: true })
  return type
}

/** Shapes or dtypes that do not fit the operation. */
export class ShapeError extends TensorgradError {
  constructor(message: string, status: number = Status.shape) {
    super(message, status)
  }
}
/** A value outside what the call accepts. */
export class ArgumentError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.argument)
  }
}
export class MemoryError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.memory)
  }
}
/** No parameter, input, capture or state of that name. */
export class NotFoundError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.notFound)
  }
}
/** A name used twice. */
export class DuplicateError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.duplicate)
  }
}
/** An index outside its table. */
export class IndexError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.index)
  }
}
/** A tensor of another trace, a nested trace, an operation outside a trace. */
export class TraceError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.trace)
  }
}
/** A gradient of something that has none; a loss that is not rank 0. */
export class GradientError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.gradient)
  }
}
export class FormatError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.format)
  }
}
/** The device or its shader compiler refused. */
export class DeviceError extends TensorgradError {
  constructor(message: string, status: number = Status.device) {
    super(message, status)
  }
}
/** The GPU is gone: `recover()` opens another. */
export class DeviceLostError extends DeviceError {
  constructor(message: string) {
    super(message, Status.deviceLost)
  }
}
/** A size beyond what the library or the device can hold. */
export class LimitError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.limit)
  }
}
/** The loss is NaN or infinite. The step has been made. */
export class NotFiniteError extends TensorgradError {
  loss = NaN
  /** The step's captures, if it had any: see `Captures`. */
  captures: unknown = null
  constructor(message: string) {
    super(message, Status.notFinite)
  }
}
/** The model is destroyed, or in the wrong state for the call. */
export class StateError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.state)
  }
}
export class UnsupportedError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.unsupported)
  }
}
/** A fault of this library: please report it. */
export class InternalError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.internal)
  }
}
/** The worker died or could not start, or the core could not be loaded: the message says what to
 *  do. */
export class WorkerError extends TensorgradError {
  constructor(message: string) {
    super(message, Status.ok)
  }
}

const byName = {
  TensorgradError,
  ShapeError,
  ArgumentError,
  MemoryError,
  NotFoundError,
  DuplicateError,
  IndexError,
  TraceError,
  GradientError,
  FormatError,
  DeviceError,
  DeviceLostError,
  LimitError,
  NotFiniteError,
  StateError,
  UnsupportedError,
  InternalError,
  WorkerError,
}
for (const [name, type] of Object.entries(byName)) named(type, name)

const byStatus: Record<number, new (message: string, status?: number) => TensorgradError> = {
  [Status.argument]: ArgumentError,
  [Status.shape]: ShapeError,
  [Status.dtype]: ShapeError,
  [Status.memory]: MemoryError,
  [Status.notFound]: NotFoundError,
  [Status.duplicate]: DuplicateError,
  [Status.index]: IndexError,
  [Status.trace]: TraceError,
  [Status.gradient]: GradientError,
  [Status.format]: FormatError,
  [Status.device]: DeviceError,
  [Status.deviceLost]: DeviceLostError,
  [Status.limit]: LimitError,
  [Status.notFinite]: NotFiniteError,
  [Status.state]: StateError,
  [Status.unsupported]: UnsupportedError,
  [Status.internal]: InternalError,
}

/** The error of a C status. `site`: where the mistake was made, as the C core reports it. */
export function errorOfStatus(status: number, message: string, site: CoreSite | null = null): TensorgradError {
  const error = new (byStatus[status] ?? TensorgradError)(inJavaScript(withTrueSites(message)), status)
  error.site = site && fromCore(site)
  return error
}

// ---------------------------------------------------------------- across the worker's boundary

export interface SerialisedError {
  name: string
  message: string
  stack: string
  status: number
  site: Site | null
  /** Only of a NotFiniteError. */
  loss?: number
  captures?: CaptureMessage[] | null
}

export function serialiseError(thrown: unknown): SerialisedError {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  const ours = error instanceof TensorgradError ? error : null
  const plain: SerialisedError = {
    name: error.name,
    message: error.message,
    stack: error.stack ?? '',
    status: ours?.status ?? 0,
    site: ours?.site ?? null,
  }
  if (error instanceof NotFiniteError) {
    plain.loss = error.loss
    plain.captures = error.captures as CaptureMessage[] | null
  }
  return plain
}

/** Makes the error again, of its own class. Its stack is the site that it names (a line of the
 *  user's, kept by the graph), then the frames of the call. An error that is not the library's is a
 *  fault in the worker and keeps the worker's frames. */
export function restoreError(plain: SerialisedError, callFrames: string): Error {
  const type = (byName as Record<string, new (message: string, status?: number) => TensorgradError>)[plain.name]
  if (type === undefined) {
    const error = new InternalError(`${plain.name} in the worker: ${plain.message}`)
    error.stack = `${plain.stack}\n${callFrames}`
    blamed.add(error)
    return error
  }
  const error = plain.status !== 0 ? new type(plain.message, plain.status) : new type(plain.message)
  error.site = plain.site
  if (error instanceof NotFiniteError) {
    error.loss = plain.loss ?? NaN
    error.captures = plain.captures ?? null
  }
  blamed.add(error)
  const at = plain.site !== null && plain.site.line > 0 ? `    at ${siteText(plain.site)}\n` : ''
  error.stack = withHeader(error, at + callFrames)
  return error
}

// ---------------------------------------------------------------- frames

const ownUrl: string = import.meta.url
// As source, the library is the folder of this file. Bundled, it is one file. If that file holds
// the application too, only captureStackTrace keeps the library's frames out.
const ownFolder = /\/src\/errors\.[jt]s$/.test(ownUrl) ? ownUrl.slice(0, ownUrl.lastIndexOf('/') + 1) : null
const ownPath = ownUrl.replace(/^file:\/\//, '')
// Beside it: src/compat.ts.
const compatUrl = `${ownUrl.slice(0, ownUrl.lastIndexOf('/') + 1)}compat.js`, compatPath = compatUrl.replace(/^file:\/\//, '')
const ownFolderPath = ownFolder?.replace(/^file:\/\//, '') ?? null

function isOwn(file: string): boolean {
  if (ownFolder !== null) return file.startsWith(ownFolder) || file.startsWith(ownFolderPath as string)
  return file === ownUrl || file === ownPath || file === compatUrl || file === compatPath
}

/** " at f (file:12:3)", " at file:12:3" (V8); "f@file:12:3" (Firefox, Safari). Null for other
 *  lines. */
export function parseFrame(line: string): Site | null {
  const place = /:(\d+):(\d+)\)?$/.exec(line)
  if (place === null) return null
  const v8 = /^\s*at (?:async )?/.exec(line)
  const at = v8 === null ? line.indexOf('@') + 1 : line.endsWith(')') ? line.indexOf(' (', v8[0].length) + 2 : v8[0].length
  if (v8 === null && at === 0) return null
  return { file: line.slice(at, place.index), line: Number(place[1]), column: Number(place[2]) }
}

function isUsers(line: string): boolean {
  const frame = parseFrame(line)
  return frame !== null && !isOwn(frame.file) && !frame.file.startsWith('node:')
}

/** The frames of a stack, without its header and without the library's and the engine's frames. If
 *  none would be left, all of them. */
export function userFrames(stack: string | undefined): string {
  const frames = (stack ?? '').split('\n').filter((line) => parseFrame(line) !== null)
  const users = frames.filter(isUsers)
  return (users.length > 0 ? users : frames).join('\n')
}

function withHeader(error: Error, frames: string): string {
  const v8 = frames === '' || /^\s*at /.test(frames)
  return v8 ? `${error.name}: ${error.message}\n${frames}` : frames // Firefox and Safari keep no header
}

type Capturing = typeof Error & { captureStackTrace?(target: object, above?: unknown): void; stackTraceLimit?: number }
const engine = Error as Capturing

/** A stack kept for later: it costs little until it is called. */
export type Frames = () => string
/** The same for a site. */
export type HeldSite = () => Site

export const ALL_FRAMES = 50
const SITE_FRAMES = 4
const OWN_FRAMES = 12 // the most frames of the library above a call, where the engine cannot leave them out

function capture(above: unknown, limit: number): { stack?: string } {
  const saved = engine.stackTraceLimit
  const cuts = engine.captureStackTrace !== undefined
  if (saved !== undefined) engine.stackTraceLimit = cuts ? limit : limit + OWN_FRAMES
  const holder: { stack?: string } = cuts ? {} : new Error()
  engine.captureStackTrace?.(holder, above)
  if (saved !== undefined) engine.stackTraceLimit = saved
  return holder
}

/** Keeps the user's frames of now, without those of `above` (the public function being called) and
 *  its callees. */
export function holdFrames(above: unknown): Frames {
  const holder = capture(above, ALL_FRAMES)
  return () => userFrames(holder.stack)
}

/** The same at once. */
export function framesAbove(above: unknown): string {
  return holdFrames(above)() || userFrames(capture(undefined, ALL_FRAMES).stack) // `above` may be on no stack
}

/** Keeps the user's frame that called `above`. */
export function holdSite(above: unknown): HeldSite {
  let holder: { stack?: string } | null = capture(above, SITE_FRAMES)
  let site = NOWHERE
  return () => {
    if (holder === null) return site
    const line = (holder.stack ?? '').split('\n').find(isUsers)
    if (line !== undefined) site = siteOf(line)
    holder = null
    return site
  }
}

/** The site at which kept frames begin. */
export function siteOf(frames: string): Site {
  const end = frames.indexOf('\n')
  return parseFrame(end < 0 ? frames : frames.slice(0, end)) ?? NOWHERE
}

/** Gives `error` the user's frames at the call of `above`, or `frames` kept from an earlier
 *  call. */
export function blame<E extends Error>(error: E, above: unknown, frames: string = framesAbove(above)): E {
  error.stack = withHeader(error, frames)
  blamed.add(error)
  return error
}

const blamed = new WeakSet<Error>()

/** The same if `error` is the library's own and has no frames yet: an error of an operation keeps
 *  those of its line. */
export function blameOnce(error: unknown, frames: Frames): unknown {
  return error instanceof TensorgradError && !blamed.has(error) ? blame(error, null, frames()) : error
}

/** Checks a number for which 0 would mean the core's default. */
export function given(op: string, what: string, value: number): number {
  if (value === 0) throw new ArgumentError(`${op}: ${what} is 0`)
  return value
}
