// The package in three files, for bundlers and pages with a strict policy: the core and the worker lie beside this file.

import { setPlatform } from './platform.js'
import { newWorkerName, portOf } from './port.js'

export * from './index.js'

async function loadModule(): Promise<WebAssembly.Module> {
  const url = new URL('./tensorgrad.wasm', import.meta.url)
  const response = await fetch(url)
  if (!response.ok) throw new Error(`tensorgrad: ${url.href}: ${response.status} ${response.statusText}`)
  return WebAssembly.compile(await response.arrayBuffer()) // not streaming: servers often name another type
}

function startWorker() {
  const name = newWorkerName()
  return portOf(new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name }), name, ': is worker.js beside this file?')
}

setPlatform({ loadModule, startWorker })
