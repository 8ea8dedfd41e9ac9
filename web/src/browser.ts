// The package in one file for browsers: build.mjs inlines the core and the worker, so that nothing
// else is fetched. Needs `blob:` workers; pages whose policy forbids them use split.ts.

import { compileCore, notStarted } from './loading.js'
import { setPlatform } from './platform.js'
import { newWorkerName, portOf } from './port.js'
import { unpackText } from './unpack.js'

export * from './index.js'

/** The text of worker-inlined.ts. */
declare const INLINED_WORKER: string
/** Packed (pack.mjs), base64. */
declare const INLINED_CORE: string

function newWorker(name: string): Worker {
  const url = URL.createObjectURL(new Blob([INLINED_WORKER], { type: 'text/javascript' }))
  const worker = new Worker(url, { type: 'module', name })
  worker.addEventListener('message', () => URL.revokeObjectURL(url), { once: true })
  return worker
}

/** Unpacks and compiles in a worker of its own: it takes about a second, too long for a page. */
function unpackAside(): Promise<WebAssembly.Module> {
  return new Promise((resolve, reject) => {
    const worker = newWorker(newWorkerName())
    worker.onerror = (event) => {
      event.preventDefault()
      worker.terminate()
      reject(new Error(event.message))
    }
    worker.onmessage = (event) => {
      worker.terminate()
      resolve(event.data as WebAssembly.Module)
    }
    worker.postMessage(INLINED_CORE)
  })
}

function startWorker() {
  const name = newWorkerName()
  return portOf(() => newWorker(name), name, ": does the page's policy forbid blob: workers? tensorgrad/split does without")
}

setPlatform({
  // If the worker fails, unpack here, if only to learn why. Without workers, starting one reports
  // it.
  loadModule: () => unpackAside().catch(() => compileCore(unpackText(INLINED_CORE), 'the packed core')),
  loadModuleNow: () => {
    try {
      return new WebAssembly.Module(unpackText(INLINED_CORE))
    } catch (error) {
      throw notStarted(error)
    }
  },
  startWorker,
})
