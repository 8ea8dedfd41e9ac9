// The worker's entry in a browser.

import { lockOf } from './port.js'
import type { Request } from './protocol.js'
import type { Thread } from './threads.js'
import { serve, type Home } from './worker.js'

const scope = self as unknown as { name: string; postMessage(message: unknown, transfer: Transferable[]): void; onmessage: unknown }

/** Resolves once this worker holds the lock by which the page knows that it lives. */
const locked = new Promise<void>((resolve) => {
  if (navigator.locks === undefined) resolve()
  else void navigator.locks.request(lockOf(scope.name), () => new Promise<never>(() => resolve()))
})
const home: Home = { gpu: async () => navigator.gpu ?? null, noGpu: 'this browser has no WebGPU', device: 'auto', adapter: '' }
/** Sets how threads are started, for worker-split.ts. */
export const setStartThread = (startThread: () => Thread): void => void (home.startThread = startThread)
const answer = serve(
  home,
  (message, transfer) => void locked.then(() => scope.postMessage(message, transfer)),
)
export const receive = (event: MessageEvent<Request>): void => answer(event.data)
scope.onmessage = receive
