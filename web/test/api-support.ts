// Shared by the tests of the API: the core from a file, a worker that answers as a test tells it,
// and errors as values.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setPlatform } from '../src/platform.js'
import type { Answers, GraphMessage, Port, Request, RequestKind, Response } from '../src/protocol.js'
import type { SerialisedError } from '../src/errors.js'
import { trace, type Tensor } from '../src/index.js'

const bytes = readFileSync(process.env['TENSORGRAD_WASM'] as string)

/** The platform of a page in Node, with workers that are the test's own. */
export function usePlatform(startWorker: () => Port | Promise<Port> = () => new FakePort()): void {
  setPlatform({ loadModule: () => WebAssembly.compile(bytes), loadModuleNow: () => new WebAssembly.Module(bytes), startWorker })
}

export const aGraph: GraphMessage = {
  device: 'cpu (fake)',
  deviceKind: 'cpu',
  fallback: '',
  precision: 'f32',
  kernelCount: 3,
  dispatchCount: 4,
  programBytes: 5,
  peakBytes: 6,
  outputShape: [],
  outputDtype: 'f32',
  params: [
    { name: 'l.W', shape: [2, 3] },
    { name: 'l.b', shape: [3] },
  ],
  ir: 'the ir',
}

type Answer<K extends RequestKind> = (request: Extract<Request, { kind: K }>) => Answers[K] | Promise<Answers[K]>
export type Script = { [K in RequestKind]?: Answer<K> }

/** Answers requests one after another, each when the one before is answered; records them all. */
export class FakePort implements Port {
  readonly requests: Request[] = []
  readonly transfers: Transferable[][] = []
  terminated = false
  #message: (message: Response) => void = () => undefined
  #failure: (error: Error) => void = () => undefined
  #queue: Promise<void> = Promise.resolve()

  /** `warnings` come with the answers of a kind, each time. */
  constructor(readonly script: Script = {}, readonly warnings: Partial<Record<RequestKind, string[]>> = {}) {}

  post(message: Request, transfer: Transferable[]): void {
    const arrived = structuredClone(message, { transfer: transfer as ArrayBuffer[] })
    this.requests.push(arrived)
    this.transfers.push(transfer)
    this.#queue = this.#queue.then(() => this.#answer(arrived))
  }
  onMessage(listener: (message: Response) => void): void {
    this.#message = listener
  }
  onFailure(listener: (error: Error) => void): void {
    this.#failure = listener
  }
  terminate(): void {
    this.terminated = true
  }
  crash(message: string): void {
    this.#failure(new Error(message))
  }

  async #answer(request: Request): Promise<void> {
    const plain: Partial<Record<RequestKind, unknown>> = { createRuntime: aGraph, compileForward: aGraph }
    const said = this.warnings[request.kind], more = said === undefined ? {} : { warnings: said }
    try {
      const scripted = this.script[request.kind] as ((request: Request) => unknown) | undefined
      const value = scripted !== undefined ? await scripted(request) : (plain[request.kind] ?? null)
      if (!this.terminated) this.#message({ id: request.id, ok: true, value: value as never, ...more })
    } catch (error) {
      if (!this.terminated) this.#message({ id: request.id, ok: false, error: error as SerialisedError, ...more })
    }
  }
}

/** What a worker posts of an error. */
export function posted(name: string, message: string, status: number, more: Partial<SerialisedError> = {}): SerialisedError {
  return { name, message, stack: `${name}: ${message}\n    at inside (worker.js:1:1)`, status, site: null, ...more }
}

export async function rejection(promise: Promise<unknown>): Promise<Error> {
  try {
    await promise
  } catch (error) {
    assert.ok(error instanceof Error)
    return error
  }
  assert.fail('it did not reject')
}

export function thrown(body: () => unknown): Error {
  try {
    body()
  } catch (error) {
    assert.ok(error instanceof Error)
    return error
  }
  assert.fail('it did not throw')
}

/** The error of an operation in a fresh trace. */
export function opError(body: () => Tensor): Error {
  return thrown(() => trace(body))
}

/** The first line of a message: what follows says where operands come from. */
export const firstLine = (error: Error): string => error.message.split('\n')[0] as string

/** The file that a stack begins with. */
export function topFile(error: Error): string {
  const frame = (error.stack ?? '').split('\n').find((line) => /^\s+at /.test(line)) ?? ''
  return /([\w.-]+):\d+:\d+\)?$/.exec(frame)?.[1] ?? frame
}
