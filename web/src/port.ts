// A browser's worker as a Port. A worker that ends without a word is noticed too: it holds a lock, which the page waits for.

import type { Port, Request, Response } from './protocol.js'

/** The lock a worker of this name holds while it lives. */
export const lockOf = (workerName: string): string => `tensorgrad worker ${workerName}`
export const newWorkerName = (): string => Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join('')

/** Milliseconds between the end of a worker's work and its own. Chromium keeps a worker for good that is ended while those it made are still
 *  on their way out. */
const LINGER = 1000

/** `hint` for the message of a worker that does not even start. */
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
