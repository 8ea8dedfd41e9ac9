// The threads of a core with shared memory. The core's worker starts them before the core. Then
// each runs the loop of the core's pool (src/base/threads.c), which sleeps and wakes through the
// memory alone. Must not know the platform: `Home.startThread` makes a thread.

import type { SharedMemory } from './core.js'

/** A worker that runs thread.ts. */
export interface Thread {
  post(message: ThreadMessage): void
  /** Called with each message, and once with null when it fails. */
  onMessage(listener: (message: ThreadAnswer | null) => void): void
  terminate(): void
}
/** ended: the pool's loop has ended, and the thread closes itself. */
export type ThreadAnswer = 'ready' | 'ended'
export type ThreadMessage = { module: WebAssembly.Module; memory: WebAssembly.Memory } | { worker: number; stackTop: number }

/** Pages of 64 KiB, as in scripts/build-wasm. */
const FIRST_PAGES = 128, MOST_PAGES = 16384
/** Milliseconds that threads get to end by themselves. */
const PATIENCE = 1000

export class Threads implements SharedMemory {
  readonly memory = new WebAssembly.Memory({ initial: FIRST_PAGES, maximum: MOST_PAGES, shared: true })
  readonly #all: Thread[] = []
  readonly #idle: Thread[] = []
  #running = 0 // loops
  #allEnded: () => void = () => undefined

  get threads(): number { return this.#all.length + 1 }

  /** Starts `count` threads, the caller's included. Rejects if one of them cannot start. */
  static async start(module: WebAssembly.Module, count: number, startThread: () => Thread): Promise<Threads> {
    const threads = new Threads()
    try {
      for (let i = 1; i < count; i++) threads.#all.push(startThread())
      await Promise.all(threads.#all.map((thread) => new Promise<void>((resolve, reject) => {
        thread.onMessage((message) => {
          if (message === 'ready') resolve()
          else if (message === 'ended') threads.#ended()
          else reject(new Error('a thread does not start'))
        })
        thread.post({ module, memory: threads.memory })
      })))
    } catch (error) {
      threads.#terminate()
      throw error
    }
    threads.#idle.push(...threads.#all)
    return threads
  }

  start(worker: number, stackTop: number): boolean {
    const thread = this.#idle.pop()
    thread?.post({ worker, stackTop })
    if (thread !== undefined) this.#running++
    return thread !== undefined
  }

  #ended(): void {
    if (--this.#running === 0) this.#allEnded()
  }

  /** Call it after the core's pool has been told to end. A browser may never end a worker that
   *  waits on memory once the worker that made it is gone, so each thread gets the time to end by
   *  itself. */
  async end(): Promise<void> {
    if (this.#running > 0)
      await new Promise<void>((resolve) => {
        this.#allEnded = resolve
        setTimeout(resolve, PATIENCE)
      })
    this.#terminate()
  }

  #terminate(): void {
    for (const thread of this.#all.splice(0)) thread.terminate()
    this.#idle.length = 0
  }
}
