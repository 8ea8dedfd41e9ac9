// The package in one file for browsers: the core and the worker are inlined (by build.mjs), so that nothing else is to be fetched. Needs
// `blob:` workers; pages whose policy forbids them take split.ts.

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

/** A worker of its own unpacks and compiles: that is a second or so, too long for a page. */
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
  // Where it cannot be: here, if only to hear why. Without workers, what starts one says so.
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
