// A browser's worker as a Port. Each worker holds a lock that the page waits for, so the page also
// notices a worker that ends without a message.

import type { Port, Request, Response } from './protocol.js'

/** The lock a worker of this name holds while it lives. */
export const lockOf = (workerName: string): string => `tensorgrad worker ${workerName}`
export const newWorkerName = (): string => Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join('')

/** Milliseconds between the end of a worker's work and its own end. Chromium never ends a worker
 *  that is terminated while the workers it made are still ending. */
const LINGER = 1000

/** `hint`: for the message if the worker does not start. */
export function portOf(make: () => Worker, name: string, hint: string): Port {
  const worker = started(make, hint)
  const ended = new AbortController()
  let answered = false
  return {
    post: (message: Request, transfer: Transferable[]) => worker.postMessage(message, transfer),
    onMessage: (listener) => worker.addEventListener('message', (event: MessageEvent<Response>) => {
      answered = true
      listener(event.data)
    }),
    onFailure: (listener) => {
      worker.addEventListener('error', (event) => {
        event.preventDefault()
        listener(new Error(event.message || (answered ? 'it failed' : `it could not start${hint}`)))
      })
      worker.addEventListener('messageerror', () => listener(new Error('a message could not be read')))
      worker.addEventListener('message', () => watch(name, ended.signal, () => listener(new Error('it ended'))), { once: true })
    },
    terminate: () => {
      ended.abort()
      setTimeout(() => worker.terminate(), LINGER)
    },
  }
}

function started(make: () => Worker, hint: string): Worker {
  try {
    return make()
  } catch (error) {
    throw new Error(typeof Worker === 'undefined' ? 'there are no workers here' : `${(error as Error).message}${hint}`)
  }
}

function watch(name: string, signal: AbortSignal, ended: () => void): void {
  if (navigator.locks === undefined || signal.aborted) return // an insecure page has none
  navigator.locks.request(lockOf(name), { signal }, ended).catch(() => undefined)
}
