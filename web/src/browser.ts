// The package in one file for browsers: the core and the worker are inlined (by build.mjs), so that nothing else is to be fetched. Needs
// `blob:` workers; pages whose policy forbids them take split.ts.

import { inflate } from './inflate.js'
import { setPlatform } from './platform.js'
import { newWorkerName, portOf } from './port.js'

export * from './index.js'

declare const INLINED_WORKER: string
/** Deflated, base64. */
declare const INLINED_CORE: string
declare const INLINED_CORE_SIZE: number

function unpack(): Uint8Array<ArrayBuffer> {
  return inflate(Uint8Array.from(atob(INLINED_CORE), (character) => character.charCodeAt(0)), INLINED_CORE_SIZE)
}

function startWorker() {
  const url = URL.createObjectURL(new Blob([INLINED_WORKER], { type: 'text/javascript' }))
  const name = newWorkerName()
  const worker = new Worker(url, { type: 'module', name })
  worker.addEventListener('message', () => URL.revokeObjectURL(url), { once: true })
  return portOf(worker, name, ": does the page's policy forbid blob: workers? tensorgrad/split does without")
}

setPlatform({
  loadModule: async () => WebAssembly.compile(unpack()),
  loadModuleNow: () => new WebAssembly.Module(unpack()),
  startWorker,
})
