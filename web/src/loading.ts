// Loading the core, with errors that say what to do. Must not know a platform or a worker.

import { WorkerError } from './errors.js'

/** A module with one SIMD instruction. */
const SIMD = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11)
const IS_POLICY = /unsafe-eval|content.security|\bcsp\b|by embedder/i

/** The error of compiling or starting the core. */
export function notStarted(error: unknown): WorkerError {
  const message = error instanceof Error ? error.message : String(error)
  return new WorkerError(`the core does not start: ${message}${remedy(message)}`)
}
function remedy(message: string): string {
  if (typeof WebAssembly === 'undefined') return ': this browser has no WebAssembly (a lockdown mode turns it off)'
  if (IS_POLICY.test(message)) return ": the page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to its script-src"
  if (!WebAssembly.validate(SIMD)) return ': this browser has no SIMD in WebAssembly (Chrome 91, Firefox 89, Safari 16.4 have)'
  return ''
}

/** Compiles the core's bytes. `from`: where they come from. */
export async function compileCore(bytes: Uint8Array<ArrayBuffer>, from: string): Promise<WebAssembly.Module> {
  const start = String.fromCharCode(...bytes.subarray(0, 4))
  if (start !== '\0asm')
    throw new WorkerError(`the core does not load: ${from} is ${/^\s*</.test(start) ? 'a page (HTML)' : 'no WebAssembly'}: ` +
      'the server answers with something else: tensorgrad.wasm must lie beside the program, as it is in the package')
  try {
    return await WebAssembly.compile(bytes)
  } catch (error) {
    throw notStarted(error)
  }
}

/** The core from a file of the package. */
export async function fetchCore(url: URL): Promise<WebAssembly.Module> {
  const failed = (why: string, what: string) => new WorkerError(`the core does not load: ${url.href}: ${why}: ${what}`)
  const response = await fetch(url).catch((error: Error) => {
    throw failed(error.message, "is the page offline, or does its policy (connect-src) or the server's (CORS) forbid it?")
  })
  if (!response.ok)
    throw failed(`${response.status} ${response.statusText}`.trim(), 'the file must lie beside the program: does the bundler copy it?')
  const bytes = await response.arrayBuffer().catch((error: Error) => {
    throw failed(error.message, 'the connection broke off: try again')
  })
  return compileCore(new Uint8Array(bytes), url.href) // not compileStreaming, since servers often send another type
}
