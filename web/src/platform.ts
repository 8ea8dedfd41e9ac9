// What a platform must provide: the compiled core, and workers. The entry point of each platform
// (browser, Node, a test) calls setPlatform once; everything else asks here. Must not know a
// platform.

import { Core, type GpuHooks } from './core.js'
import { StateError, TensorgradError, UnsupportedError } from './errors.js'
import { notStarted } from './loading.js'
import type { StartWorker } from './protocol.js'

export interface Platform {
  /** The core's code, compiled. Called once. */
  loadModule(): Promise<WebAssembly.Module>
  /** The same at once, if the bytes are at hand. It lets `trace` and `compileToIR` be called before
   *  anything was awaited. */
  loadModuleNow?(): WebAssembly.Module
  /** The core with threads, if the platform has one and allows shared memory. */
  loadThreaded?(): Promise<WebAssembly.Module>
  startWorker: StartWorker
}

let platform: Platform | null = null
let loading: Promise<Core> | null = null
let code: WebAssembly.Module | null = null
let core: Core | null = null

export function setPlatform(provided: Platform): void {
  platform = provided
  loading = code = core = null
}

function home(): Platform {
  if (platform === null) throw new UnsupportedError('tensorgrad: no platform is set: import the package by its name, not a file of it')
  return platform
}

function start(module: WebAssembly.Module): Core {
  code ??= module
  return (core ??= Core.create(code, planningGpu))
}

/** The page's core: traces and plans, never runs. */
export function loadCore(): Promise<Core> {
  return (loading ??= core !== null ? Promise.resolve(core) : home().loadModule().then(start).catch((error: unknown) => {
    loading = null // a later try may find it
    throw error instanceof TensorgradError ? error : notStarted(error)
  }))
}

export function coreNow(): Core {
  if (core !== null) return core
  const now = home().loadModuleNow
  if (now === undefined) throw new StateError('tensorgrad: the core is not loaded yet: await ready() first')
  return start(now.call(platform))
}

/** The core with threads; null if there is none. */
export const loadThreaded = async (): Promise<WebAssembly.Module | null> => (await home().loadThreaded?.()) ?? null

/** The code, to be posted to workers. */
export const moduleNow = (): WebAssembly.Module | null => code

export const startWorker: StartWorker = () => home().startWorker()

/** Resolves when the core is loaded. Compiling awaits it by itself; `trace` and the rest of the
 *  open IR need it in split builds. */
export async function ready(): Promise<void> {
  await loadCore()
}

// ---------------------------------------------------------------- planning without a device

/** The programs that models made on the page's core were given since the list was last emptied. */
export const planned: import('./core.js').ProgramInfo[] = []

// The limits that every WebGPU device has, so that planBuffers and emitKernels do not depend on the
// machine.
const planningGpu: GpuHooks = {
  open: () => ({ device: 1, limits: [134217728, 8, 256, 16384, 65535, 268435456, 0, 0] }),
  close() {},
  isLost: () => false,
  makeState() {},
  writeState() {},
  load: (_device, program) => planned.push(program),
  unload() {},
  makeFeeder: () => 0,
  dropFeeder() {},
}
