// The package in three files, for bundlers and pages with a strict policy: the core and the worker lie beside this file.

import { setPlatform } from './platform.js'
import { newWorkerName, portOf } from './port.js'

export * from './index.js'

async function load(url: URL): Promise<WebAssembly.Module> {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`tensorgrad: ${url.href}: ${response.status} ${response.statusText}`)
  return WebAssembly.compile(await response.arrayBuffer()) // not streaming: servers often name another type
}

function startWorker() {
  const name = newWorkerName()
  return portOf(new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }), name, ': is worker.js beside this file?')
}

let threaded: Promise<WebAssembly.Module> | null = null
const loadThreaded = (): Promise<WebAssembly.Module> => (threaded ??= load(new URL('./tensorgrad-threads.wasm', import.meta.url)).catch((error) => {
  threaded = null // another try may find it
  throw error
}))

setPlatform({
  loadModule: () => load(new URL('./tensorgrad.wasm', import.meta.url)),
  ...(globalThis.crossOriginIsolated ? { loadThreaded } : {}),
  startWorker,
})
