// The package in one file for browsers: the core and the worker are inlined (by build.mjs), so that nothing else is to be fetched. Needs
// `blob:` workers; pages whose policy forbids them take split.ts.

import { inflate } from './inflate.js'
import { pause } from './pause.js'
import { setPlatform } from './platform.js'
import { newWorkerName, portOf } from './port.js'

export * from './index.js'

declare const INLINED_WORKER: string
/** Deflated, base64. */
declare const INLINED_CORE: string
declare const INLINED_CORE_SIZE: number

/** Characters unpacked at a time: a multiple of 4. */
const PIECE = 1 << 16

function packed(text = atob(INLINED_CORE)): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(text.length)
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i)
  return bytes
}

/** By the browser, beside the page's own work; a browser of before 2023 may not be able to. */
async function unpack(): Promise<BufferSource> {
  try {
    const stream = new DecompressionStream('deflate-raw')
    const core = new Response(stream.readable).arrayBuffer()
    const writer = stream.writable.getWriter()
    for (let at = 0; at < INLINED_CORE.length; at += PIECE) {
      await pause()
      await writer.write(packed(atob(INLINED_CORE.slice(at, at + PIECE))))
    }
    await writer.close()
    return await core
  } catch {
    return inflate(packed(), INLINED_CORE_SIZE)
  }
}

function startWorker() {
  const url = URL.createObjectURL(new Blob([INLINED_WORKER], { type: 'text/javascript' }))
  const name = newWorkerName()
  const worker = new Worker(url, { type: 'module', name })
  worker.addEventListener('message', () => URL.revokeObjectURL(url), { once: true })
  return portOf(worker, name, ": does the page's policy forbid blob: workers? tensorgrad/split does without")
}

setPlatform({
  loadModule: async () => WebAssembly.compile(await unpack()),
  loadModuleNow: () => new WebAssembly.Module(inflate(packed(), INLINED_CORE_SIZE)),
  startWorker,
})
