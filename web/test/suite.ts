// Runs a native test suite, compiled as a WebAssembly command (scripts/build-wasm-tests), to its
// end: on the module's CPU executor, or on a GPU, for whose answers the module is suspended (JSPI).
// Owns the part of WASI that a suite needs.

import { dtypes, type Core, type ProgramInfo } from '../src/core.js'
import { Executable, findAdapter, openGpu, type Gpu } from '../src/gpu.js'
import type { Dtype } from '../src/types.js'

export interface Ended {
  code: number
  output: string
}
type Functions = Record<string, (...given: never[]) => unknown>

/** proc_exit, and what ends a test before its end. */
class End {
  constructor(readonly code: number) {}
}
const NOT_THERE = 8 // EBADF: there are no files

/** JavaScript's promises for WebAssembly, which TypeScript does not know yet. */
const { Suspending, promising } = WebAssembly as unknown as {
  Suspending?: new (body: (...given: never[]) => Promise<unknown>) => () => unknown
  promising?(body: unknown): (...given: unknown[]) => Promise<number>
}
function waiting(body: unknown): (...given: unknown[]) => Promise<number> {
  return (promising as NonNullable<typeof promising>)(body)
}

class Suite {
  readonly #decoder = new TextDecoder()
  readonly #executables = new Map<number, Executable>()
  #exports: Record<string, unknown> = {}
  #last = 0
  output = ''

  constructor(
    readonly environment: Record<string, string>,
    readonly gpu: Gpu | null,
  ) {}

  get #buffer(): ArrayBuffer { return (this.#exports['memory'] as WebAssembly.Memory).buffer as ArrayBuffer }
  get #view(): DataView { return new DataView(this.#buffer) }

  /** What an Executable reads and writes of the core. */
  readonly memory = {
    view: (dtype: Dtype, at: number, count: number) =>
      new { f32: Float32Array, i32: Int32Array, bool: Uint8Array }[dtype](this.#buffer, at, count),
    u8: (at: number, count: number) => new Uint8Array(this.#buffer, at, count),
  } as unknown as Core
  #words(at: number, count: number): number[] { return [...new Uint32Array(this.#buffer, at, count)] }
  #text(at: number): string {
    const all = new Uint8Array(this.#buffer, at)
    return this.#decoder.decode(all.subarray(0, all.indexOf(0)))
  }

  // ---- WASI

  readonly wasi: Functions = {
    args_sizes_get: (count: number, bytes: number) => this.#put(count, 0, bytes, 0),
    args_get: () => 0,
    environ_sizes_get: (count: number, bytes: number) =>
      this.#put(count, this.#settings.length, bytes, this.#settings.reduce((sum, text) => sum + text.length, 0)),
    environ_get: (list: number, at: number) => {
      for (const text of this.#settings) {
        this.#view.setUint32(list, at, true)
        new TextEncoder().encodeInto(text, new Uint8Array(this.#buffer, at, text.length))
        list += 4
        at += text.length
      }
      return 0
    },
    clock_time_get: (_: number, __: bigint, at: number) => {
      this.#view.setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true)
      return 0
    },
    fd_fdstat_get: (_: number, at: number) => {
      new Uint8Array(this.#buffer, at, 24).fill(0)
      this.#view.setUint8(at, 2) // a terminal: written line by line
      return 0
    },
    fd_write: (_: number, list: number, count: number, written: number) => {
      let bytes = 0
      for (let i = 0; i < count; i++) {
        const [at, size] = this.#words(list + 8 * i, 2) as [number, number]
        this.output += this.#decoder.decode(new Uint8Array(this.#buffer, at, size))
        bytes += size
      }
      this.#view.setUint32(written, bytes, true)
      return 0
    },
    proc_exit: (code: number) => { throw new End(code) },
  }
  get #settings(): string[] { return Object.entries(this.environment).map(([name, value]) => `${name}=${value}\0`) }
  #put(at: number, value: number, at2: number, value2: number): number {
    this.#view.setUint32(at, value, true)
    this.#view.setUint32(at2, value2, true)
    return 0
  }

  // ---- the GPU, as src/run/web/web.h has it

  readonly tg: Functions = {
    gpu_open: (limits: number) => {
      if (this.gpu === null) return 0
      new Float64Array(this.#buffer, limits, this.gpu.limits.length).set(this.gpu.limits)
      return 1
    },
    gpu_close: () => undefined,
    gpu_lost: () => Number(this.gpu?.isLost ?? false),
    gpu_make_state: (_: number, slot: number, dtype: number, count: number) => {
      this.gpu?.drop(this.gpu.states[slot]?.buffer ?? null) // of a case before
      this.gpu?.makeState(slot, dtypes[dtype] as Dtype, count)
    },
    gpu_write_state: (_: number, slot: number, first: number, data: number, count: number, dtype: number) =>
      this.gpu?.writeState(slot, first, this.memory.view(dtypes[dtype] as Dtype, data, count)),
    gpu_load: (_: number, program: number) => {
      this.#executables.set(++this.#last, new Executable(this.gpu as Gpu, JSON.parse(this.#text(program)) as ProgramInfo, this.memory))
      return this.#last
    },
    gpu_feeder: () => 0, // the suites' executor has none
    gpu_drop_feeder: () => undefined,
    gpu_unload: (_: number, number: number) => {
      this.#executables.get(number)?.unload()
      this.#executables.delete(number)
    },
  }

  async #gpuRun(number: number, inputs: number, outputs: number): Promise<number> {
    const executable = this.#executables.get(number) as Executable
    const { program } = executable
    return this.#said(executable.run(this.memory, this.#words(inputs, program.inputs.length), this.#words(outputs, program.outputs.length)))
  }
  async #gpuReadState(slot: number, first: number, data: number, count: number): Promise<number> {
    return this.#said((this.gpu as Gpu).readStates([{ slot, first, count }]).then(([values]) => {
      const array = values as NonNullable<typeof values>
      this.memory.u8(data, array.byteLength).set(new Uint8Array(array.buffer))
    }))
  }
  async #said(work: Promise<unknown>): Promise<number> {
    return work.then(() => 0, (error: unknown) => {
      this.output += `${String(error)}\n`
      return 1
    })
  }

  // ---- tests, each of which may end before its end

  #ended(error: unknown, stack: number): number {
    if (!(error instanceof End)) throw error
    ;(this.#exports['__stack_pointer'] as WebAssembly.Global<'i32'>).value = stack
    return error.code
  }
  get #stack(): number { return (this.#exports['__stack_pointer'] as WebAssembly.Global<'i32'>).value }
  #function(pointer: number): (...given: number[]) => number {
    return (this.#exports['__indirect_function_table'] as WebAssembly.Table).get(pointer) as never
  }
  #call(body: number, test: number, state: number): number {
    const stack = this.#stack
    try {
      return this.#function(body)(test, state)
    } catch (error) {
      return this.#ended(error, stack)
    }
  }
  async #callWaiting(body: number, test: number, state: number): Promise<number> {
    const stack = this.#stack
    return waiting(this.#function(body))(test, state).catch((error: unknown) => this.#ended(error, stack))
  }

  get #tests(): Functions {
    const end = (code: number) => { throw new End(code) }
    if (this.gpu === null) return { call: (body: number, test: number, state: number) => this.#call(body, test, state), end }
    if (Suspending === undefined) throw new Error('this engine cannot suspend WebAssembly (JSPI)')
    return {
      call: new Suspending((body: number, test: number, state: number) => this.#callWaiting(body, test, state)),
      gpu_run: new Suspending((number: number, inputs: number, outputs: number) => this.#gpuRun(number, inputs, outputs)),
      gpu_read_state: new Suspending((slot: number, first: number, data: number, count: number) =>
        this.#gpuReadState(slot, first, data, count)),
      end,
    }
  }

  async run(module: WebAssembly.Module): Promise<number> {
    const provided: Record<string, Functions> = { wasi_snapshot_preview1: this.wasi, tg: this.tg, tg_test: this.#tests }
    const imports: Record<string, Record<string, WebAssembly.ImportValue>> = {}
    for (const { module: from, name } of WebAssembly.Module.imports(module))
      (imports[from] ??= {})[name] = (provided[from]?.[name] ?? (() => NOT_THERE)) as () => unknown
    this.#exports = (await WebAssembly.instantiate(module, imports)).exports
    try {
      if (this.gpu === null) (this.#exports['_start'] as () => void)()
      else await waiting(this.#exports['_start'])()
      return 0
    } catch (error) {
      if (error instanceof End) return error.code
      throw error
    }
  }
}

/** `only`: part of the names of the tests to run. */
export async function runSuite(module: WebAssembly.Module, device: 'cpu' | 'webgpu', only = ''): Promise<Ended> {
  const gpu = device === 'cpu' ? null : await openGpu(await findAdapter(navigator.gpu, '', false))
  const home = { TENSORGRAD_TEST_HOME: device, TENSORGRAD_WEBGPU_LIB: 'the page', TENSORGRAD_TEST_WEBGPU: 'required' }
  const suite = new Suite({ ...(gpu === null ? {} : home), ...(only === '' ? {} : { CMOCKA_SHIM_ONLY: `*${only}*` }) }, gpu)
  const code = await suite.run(module)
  gpu?.close()
  return { code, output: suite.output }
}
