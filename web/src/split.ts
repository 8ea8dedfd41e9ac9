// The package in three files, for bundlers and pages with a strict policy: the core and the worker
// are beside this file.

import { fetchCore } from './loading.js'
import { setPlatform } from './platform.js'
import { newWorkerName, portOf } from './port.js'

export * from './index.js'

function startWorker() {
  const name = newWorkerName()
  return portOf(() => new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }), name,
    ": is worker.js beside this file, served as JavaScript, and does the page's policy (worker-src) allow it?")
}

let threaded: Promise<WebAssembly.Module> | null = null
const loadThreaded = (): Promise<WebAssembly.Module> => (threaded ??= fetchCore(new URL('./tensorgrad-threads.wasm', import.meta.url)).catch((error) => {
  threaded = null // a later try may find it
  throw error
}))

setPlatform({
  loadModule: () => fetchCore(new URL('./tensorgrad.wasm', import.meta.url)),
  ...(globalThis.crossOriginIsolated ? { loadThreaded } : {}),
  startWorker,
})
