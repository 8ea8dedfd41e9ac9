// The package in Node: workers are threads; the core is a file next to this one. TENSORGRAD_DEVICE
// (auto, cpu, webgpu) and TENSORGRAD_ADAPTER are used if the program names no device or adapter.

import { readFileSync } from 'node:fs'
import { Worker, type TransferListItem } from 'node:worker_threads'
import { WorkerError } from './errors.js'
import { setPlatform } from './platform.js'
import type { Port } from './protocol.js'

export * from './index.js'

const PLACE = "the package's files must lie together: where a bundler packs the program, mark tensorgrad as external"

function moduleOf(name: string): WebAssembly.Module {
  try {
    return new WebAssembly.Module(readFileSync(new URL(name, import.meta.url)))
  } catch (error) {
    throw new WorkerError(`the core does not load: ${(error as Error).message}: ${PLACE}`)
  }
}
const loadModuleNow = (): WebAssembly.Module => moduleOf('./tensorgrad.wasm')

let threaded: Promise<WebAssembly.Module> | null = null
const loadThreaded = (): Promise<WebAssembly.Module> =>
  (threaded ??= (async () => moduleOf('./tensorgrad-threads.wasm'))().catch((error) => {
    threaded = null // a later try may find it
    throw error
  }))

let keeper: Worker | null = null

/** Keeps the GPU's driver loaded by one more thread, asleep, from the first model on a GPU on. In
 *  each model's thread Dawn opens a device. With the last of these the driver would be unloaded,
 *  and some drivers can be loaded only a limited number of times in a process (NVIDIA's about
 *  thirty times). */
function keepDriver(): void {
  if (keeper !== null) return
  keeper = new Worker(new URL('./node-worker.js', import.meta.url), { execArgv: [], workerData: 'keep the driver' })
  keeper.on('error', () => undefined) // then the driver is loaded and unloaded with the models
  keeper.unref()
}

/** A thread keeps the process alive only while a call is in flight. */
function startWorker(): Port {
  const worker = new Worker(new URL('./node-worker.js', import.meta.url), { execArgv: [] }) // the thread does not get the program's flags
  let inFlight = 0, ended = false, answered = false
  worker.unref()
  return {
    post: (message, transfer) => {
      worker.postMessage(message, transfer as TransferListItem[])
      if (inFlight++ === 0) worker.ref()
    },
    onMessage: (listener) => worker.on('message', (message) => {
      answered = true
      if (message === 'on a GPU') return keepDriver()
      if (--inFlight === 0) worker.unref()
      listener(message)
    }),
    onFailure: (listener) => {
      worker.on('error', (error: Error) => listener(answered ? error : new Error(`it could not start: ${error.message}: ${PLACE}`)))
      worker.on('messageerror', listener)
      worker.on('exit', (code) => ended || listener(new Error(`it ended with code ${code}`)))
    },
    terminate: () => {
      ended = true
      void worker.terminate()
    },
  }
}

setPlatform({ loadModule: async () => loadModuleNow(), loadModuleNow, loadThreaded, startWorker })
