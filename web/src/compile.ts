// Compiling: traces on the page, posts the graph's bytes to a worker, and returns the page's object
// for the model there.

import type { CompileForwardOptions, CompileGraphOptions, CompileOptions, Forward } from './compile-types.js'
import { CompiledForward, CompiledModule } from './compiled.js'
import { ArgumentError, blame, blameOnce, holdFrames, siteOf, WorkerError, type Frames } from './errors.js'
import { Family, ROOT, sizesOf, type Started } from './family.js'
import { Graph, markParams } from './ir.js'
import { Module } from './module.js'
import { chooseOptimizer, optimizerMessage } from './optimizer.js'
import { describe, seedArgument } from './options.js'
import { loadCore, loadThreaded, moduleNow, startWorker } from './platform.js'
import { Connection } from './protocol.js'
import { sizeArguments, type Sizes } from './sizes.js'
import { refuseNested } from './tensor.js'
import {
  checked, checkFunctions, checkGraph, graphSource, ofForward, ofGraph, ofModule, ownOptions, sourceOf, writtenModel,
  type Plan, type Source,
} from './traced.js'
import type { Device, InputSpecs, Precision } from './types.js'
import { warn, warningOf } from './warnings.js'

/** Compiles training: `forward` returns the loss, rank 0. It starts a worker, which the model owns
 *  until `destroy`. */
export async function compileModule<M extends Module, const I extends InputSpecs = {}>(
  factory: () => M,
  forward: Forward<M, I>,
  options: CompileOptions<I> = {},
): Promise<CompiledModule<M, I>> {
  const plan: Plan<M> = { what: 'compileModule', above: compileModule, factory, options: ownOptions('compileModule', compileModule, options, ofModule) }
  const { family, message, graph, sizes, source } = await compileRoot(plan, forward, true)
  return new CompiledModule<M, I>(family, graph, message, sizes, source)
}

/** Compiles a forward pass alone: `forward` returns the output, of any shape and dtype. */
export async function compileForward<M extends Module, const I extends InputSpecs = {}>(
  factory: () => M,
  forward: Forward<M, I>,
  options: CompileForwardOptions<I> = {},
): Promise<CompiledForward<M, I>> {
  const plan: Plan<M> = { what: 'compileForward', above: compileForward, factory, options: ownOptions('compileForward', compileForward, options, ofForward) }
  const { family, message, graph, sizes, source } = await compileRoot(plan, forward, false)
  return new CompiledForward<M, I>(family, graph, message, sizes, source)
}

/** Compiles a graph traced by hand (see `trace`), with its writebacks. */
export async function compileGraph(graph: Graph, options: CompileGraphOptions = {}): Promise<CompiledModule<Module, InputSpecs>> {
  const own = ownOptions('compileGraph', compileGraph, options, ofGraph)
  const plan: Plan<Module> = { what: 'compileGraph', above: compileGraph, factory: null, options: own }
  const frames = holdFrames(compileGraph)
  await checked(frames, async () => {
    checkGraph(graph)
    await loadCore()
    markParams(graph.trace.graph, chooseOptimizer(own).config)
    await graph.trace.settleSitesSlowly()
  })
  const training = own.training ?? (chooseOptimizer(own).config !== null || graph.result.shape.length === 0)
  const started = await startRuntime(plan, graph.bytes(), training, frames)
  const { kind, config } = chooseOptimizer(own), source = graphSource(graph, config === null ? { training } : { training, [kind]: config })
  return new CompiledModule<Module, InputSpecs>(started.family, started.graph, started.message, null, source)
}

async function compileRoot<M extends Module, I extends InputSpecs>(
  plan: Plan<M>,
  forward: Forward<M, I>,
  training: boolean,
): Promise<Started<M> & { sizes: Sizes | null; source: Source }> {
  const frames = holdFrames(plan.above)
  refuseNested(frames)
  const whole = forward as Forward<M, InputSpecs>
  const { bytes, sizes } = await checked(frames, async () => {
    checkFunctions(plan.what, plan.factory, forward)
    const chosen = sizeArguments(plan.what, plan.options, null)
    await loadCore()
    return { bytes: await writtenModel(plan, whole, frames, true, training, chosen.batch), sizes: chosen }
  })
  const started = await startRuntime(plan, bytes, training, frames)
  started.family.sizes = sizes
  return { ...started, sizes: sizesOf(plan, whole, training, started, sizes), source: sourceOf(plan, whole, training, sizes.batch) }
}

// ---------------------------------------------------------------- the worker

function deviceArgument(what: string, device: Device = 'auto'): Device {
  if (device === 'auto' || device === 'cpu' || device === 'webgpu') return device
  throw new ArgumentError(`${what}: the device is ${describe(device)}, not 'auto', 'cpu' or 'webgpu'`)
}

function precisionArgument(what: string, precision: Precision = 'f32'): Precision {
  if (precision === 'f32' || precision === 'f16') return precision
  throw new ArgumentError(`${what}: the precision is ${describe(precision)}, not 'f32' or 'f16'`)
}

function threadsArgument(what: string, threads = 1): number {
  if (Number.isInteger(threads) && threads >= 1 && threads <= 16) return threads
  throw new ArgumentError(`${what}: threads is ${describe(threads)}, not a whole number from 1 to 16`)
}

const NOT_SHARED = 'memory cannot be shared here: a page must be isolated (Cross-Origin-Opener-Policy: same-origin, ' +
  'Cross-Origin-Embedder-Policy: require-corp) and load tensorgrad/split'

async function startRuntime<M extends Module>(
  plan: Plan<M>,
  bytes: Uint8Array<ArrayBuffer>,
  training: boolean,
  frames: Frames,
): Promise<Started<M>> {
  const { options, what } = plan
  const body = await checked(frames, () => {
    const { kind, config } = chooseOptimizer(options)
    return {
      kind: 'createRuntime' as const,
      graph: ROOT,
      bytes,
      training,
      optimizer: config === null ? null : optimizerMessage(kind, config),
      seed: seedArgument(what, options.seed),
      device: deviceArgument(what, options.device),
      adapter: options.adapter ?? '',
      noFusion: options.noFusion ?? false,
      checkFinite: options.checkFinite ?? false,
      precision: precisionArgument(what, options.precision),
      lossScale: options.lossScale ?? 0,
      module: moduleNow(),
      threads: threadsArgument(what, options.threads),
      threaded: null as WebAssembly.Module | null,
    }
  })
  if (body.threads > 1 && body.device !== 'webgpu')
    body.threaded = await loadThreaded().then((module) => module ?? Promise.reject(new Error(NOT_SHARED))).catch((error: Error) => {
      warn(options.onWarning, `${what}: one thread instead of ${body.threads}: ${error.message}`, siteOf(frames()))
      return null
    })
  const connection = new Connection(await openPort(what, frames), (text) => {
    const { message, site } = warningOf(text)
    warn(options.onWarning, message, site)
  })
  const family = new Family<M>(connection, plan.factory)
  try {
    return { family, graph: ROOT, message: await connection.request(body, [bytes.buffer], frames, what) }
  } catch (error) {
    void family.destroy()
    throw blameOnce(error, frames)
  }
}

async function openPort(what: string, frames: Frames) {
  try {
    return await startWorker()
  } catch (error) {
    if (!(error instanceof Error)) throw error
    throw blame(new WorkerError(`${what}: the worker does not start: ${error.message}`), null, frames())
  }
}
