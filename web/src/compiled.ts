// A compiled model on the page: its methods post calls to the model in the worker.

import { Captures } from './captures.js'
import type { AverageOption, CallOptions, Forward, ForwardOptions, LaunchProfile, ProfileOptions, RunResult, StepResult, TrainOptions } from './compile-types.js'
import { copiesOf, Dataset, trainArguments, type TrainRun } from './dataset.js'
import { ArgumentError, blame, blameOnce, holdFrames, NotFiniteError, StateError, type Frames } from './errors.js'
import { ROOT, sizesOf, WAITS_FOR_TRAINING, type Family } from './family.js'
import { Graph, type CompiledIR } from './ir.js'
import { rateArgument, type LR } from './lr.js'
import { Module } from './module.js'
import { anything, check, checkOptions, describe, flag, oneOf, shown, type Kinds } from './options.js'
import {
  joined, type Answers, type ArrayMessage, type CaptureMessage, type GraphMessage, type RequestBody,
  type RequestKind, type TextKind, type TrainMessage,
} from './protocol.js'
import { sizeArguments, Sizes, type Sized } from './sizes.js'
import { call, copyOf, dtypeOfArray, refuseNested } from './tensor.js'
import { average, checkFunctions, checkGraph, graphSource, ownOptions, sized, sourceOf, writtenModel, type Plan, type Source } from './traced.js'
import type { AnyArrays, Batch, DataArray, Dtype, InputArrays, InputSpecs, Precision, Shape } from './types.js'

const texts = oneOf('ir', 'kernels', 'plan', 'dot', 'c', 'wgsl')
const ofCall: Kinds = { withCaptures: flag }

interface Sibling {
  bytes: Uint8Array<ArrayBuffer>
  sizes: (graph: number, message: GraphMessage) => Sizes | null
  source: Source
}

/** What training models and forward passes have in common. */
abstract class Compiled<M extends Module, I extends InputSpecs> {
  readonly #family: Family<M>
  readonly #graph: number
  /** @internal Null: all inputs have fixed shapes. */
  protected readonly sizes: Sizes | null
  /** The message of the size whose call was answered last. */
  #message: GraphMessage
  #device: string
  #precision: Precision
  #destroyed = false
  #ir: CompiledIR | null = null
  /** @internal */
  protected readonly source: Source

  /** @internal */
  constructor(family: Family<M>, graph: number, message: GraphMessage, sizes: Sizes | null, source: Source) {
    this.source = source
    this.#family = family
    this.#graph = graph
    this.#message = message
    this.sizes = sizes
    this.#device = message.device
    this.#precision = message.precision
  }

  /** Kernels of one step or run. If inputs have a null axis, this and the next properties belong to
   *  the size whose call was answered last. */
  get kernelCount(): number {
    return this.#message.kernelCount
  }
  /** Launches of one step or run. On a GPU a launch can hold several kernels, and a large reduction
   *  takes more than one. */
  get dispatchCount(): number {
    return this.#message.dispatchCount
  }
  /** Bytes of parameters, gradients, optimiser state, inputs, constants and workspace. */
  get peakBytes(): number {
    return this.#message.peakBytes
  }
  get outputShape(): Shape {
    return this.#message.outputShape
  }
  get outputDtype(): Dtype {
    return this.#message.outputDtype
  }
  get paramNames(): readonly string[] {
    return this.#message.params.map((param) => param.name)
  }
  /** What was compiled, as data: the graph with its gradients, the plan, and the kernels as WGSL on
   *  every device. Made at the first use, by tracing once more. With inputs that have a null axis
   *  it is that of the size compiled first. The optimiser's update is in the plan and the kernels;
   *  `text` is the whole IR after the passes, of the call answered last. */
  get ir(): CompiledIR {
    this.#ir ??= check(irGetter, () => this.source.ir(irGetter))
    return { ...this.#ir, text: this.#message.ir }
  }
  /** Where it runs: "webgpu (NVIDIA H200)", or "cpu (simd128): this browser has no WebGPU". */
  get device(): string {
    return this.#device
  }
  /** The precision of contractions in use: 'f32' if f16 was asked for and the device does not offer
   *  it. */
  get precision(): Precision {
    return this.#precision
  }
  get destroyed(): boolean {
    return this.#destroyed || this.#family.connection.closed !== null
  }

  paramShape(name: string): Shape {
    const param = this.#message.params.find((each) => each.name === name)
    if (param !== undefined) return param.shape
    throw blame(new ArgumentError(`paramShape: there is no ${describe(name)} (parameters: ${this.paramNames.join(', ')})`), this.paramShape)
  }

  /** The traced result for these inputs (the loss of a training model), without update and
   *  writebacks. */
  run<A extends DataArray = Float32Array, R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options?: { withCaptures?: false }): Promise<A>
  run<A extends DataArray = Float32Array, R extends Batch = never>(
    inputs: InputArrays<I> | AnyArrays<R>,
    options: { withCaptures: true },
  ): Promise<RunResult<A>>
  run<A extends DataArray = Float32Array, R extends Batch = never>(
    inputs: InputArrays<I> | AnyArrays<R>,
    options: CallOptions,
  ): Promise<A | RunResult<A>>
  async run(inputs: Batch, options: CallOptions = {}): Promise<DataArray | RunResult<DataArray>> {
    const above = Compiled.prototype.run
    const { withCaptures = false } = check(above, () => checkOptions('run', options, ofCall))
    const { feeds, transfer } = this.arrays('run', 'input', inputs, above)
    const body = { kind: 'run' as const, graph: this.#graph, feeds, withCaptures }
    const answer = await this.ask(body, above, transfer, (sizes) => sizes.sizeOf('run', feeds))
    return withCaptures ? { output: answer.output, captures: new Captures(answer.captures ?? []) } : answer.output
  }

  /** What each launch of a step (of a forward pass: of a run) takes on the GPU, in order: makes
   *  `steps` steps with these inputs, 20 if left out, after one that is not timed, and gives the
   *  mean of each launch. The steps are real ones: a training model learns. Each launch waits for
   *  the one before, so the sum is more than a step takes. Rejects with an UnsupportedError on the
   *  CPU, and where the adapter does not offer timestamp-query. */
  async profile<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options: ProfileOptions = {}): Promise<LaunchProfile[]> {
    const above = Compiled.prototype.profile
    const { steps = 20 } = check(above, () => checkOptions('profile', options, { steps: anything }))
    if (!Number.isInteger(steps) || steps < 1) throw blame(new ArgumentError(`profile: steps is ${typeof steps === 'number' ? steps : describe(steps)}, not a whole number from 1 on`), above)
    const { feeds, transfer } = this.arrays('profile', 'input', inputs, above)
    const { launches } = await this.ask({ kind: 'profile', graph: this.#graph, feeds, steps }, above, transfer, (sizes) => sizes.sizeOf('profile', feeds))
    const all = launches.reduce((sum, { ms }) => sum + ms, 0), over = (amount: number, ms: number) => (ms > 0 ? amount / ms : 0)
    return launches.map((launch) => ({
      ...launch, share: over(launch.ms, all), tflops: over(launch.flops, launch.ms) / 1e9, gbps: over(launch.bytes, launch.ms) / 1e6,
    }))
  }

  /** Writes parameters. Checks every name and length first. partial: names may be missing. */
  async uploadParams(params: Readonly<Record<string, Float32Array>>, options: { partial?: boolean } = {}): Promise<void> {
    const above = Compiled.prototype.uploadParams
    const { partial = false } = check(above, () => checkOptions('uploadParams', options, { partial: flag }))
    const { feeds, transfer } = this.arrays('uploadParams', 'parameter', params, above)
    await this.ask({ kind: 'uploadParams', graph: this.#graph, params: feeds, partial }, above, transfer)
  }

  /** Every parameter by name; average: the averages that an optimiser with `average` keeps. */
  async downloadParams(options: AverageOption = {}): Promise<Record<string, Float32Array>> {
    const above = Compiled.prototype.downloadParams
    const { average: averages = false } = check(above, () => checkOptions('downloadParams', options, average))
    return byName(await this.ask({ kind: 'downloadParams', graph: this.#graph, average: averages }, above))
  }

  /** Sets the initial values again (the same seed gives the same values), and puts optimiser state,
   *  random numbers and step counter back to the start. */
  async reset(): Promise<void> {
    await this.ask({ kind: 'reset', graph: this.#graph }, Compiled.prototype.reset)
  }

  /** After a lost GPU: opens a device again and goes on from the last snapshot. Does nothing if no
   *  GPU was lost. */
  async recover(): Promise<void> {
    const { device, precision } = await this.ask({ kind: 'recover', graph: this.#graph }, Compiled.prototype.recover)
    this.#device = device
    this.#precision = precision
  }

  /** Copies every parameter and state; `recover` goes on from this copy. */
  async snapshot(): Promise<void> {
    await this.ask({ kind: 'snapshot', graph: this.#graph }, Compiled.prototype.snapshot)
  }

  /** The program as text: its IR, kernels, plan, WGSL, ... */
  async inspect(what: TextKind): Promise<string> {
    const above = Compiled.prototype.inspect
    check(above, () => {
      if (!texts.is(what as never)) throw new ArgumentError(`inspect: takes ${texts.text}, not ${describe(what)}`)
    })
    return this.ask({ kind: 'text', graph: this.#graph, what }, above, [], (sizes) => sizes.last.size)
  }

  /** A forward pass that shares this model's parameters and worker. `forward` gets a new module
   *  from the same factory. */
  async compileForward<const J extends InputSpecs = {}>(
    forward: Forward<M, J>,
    options: ForwardOptions<J> & AverageOption = {},
  ): Promise<CompiledForward<M, J>> {
    const above = Compiled.prototype.compileForward
    const own = ownOptions('compileForward', above, options, { ...sized, ...average }), whole = forward as Forward<M, InputSpecs>
    const plan: Plan<M> = { what: 'compileForward', above, factory: this.#family.factory, options: own }
    return this.#sibling<J>('compileForward', above, own.average ?? false, async (frames) => {
      if (plan.factory === null) throw new ArgumentError('compileForward: the model was compiled from a graph: use compileGraph')
      checkFunctions(plan.what, plan.factory, forward)
      const chosen = sizeArguments(plan.what, own, this.#family.sizes)
      const bytes = await writtenModel(plan, whole, frames, false, false, chosen.batch)
      const sizes = (graph: number, message: GraphMessage) => sizesOf(plan, whole, false, { family: this.#family, graph, message }, chosen)
      return { bytes, sizes, source: sourceOf(plan, whole, false, chosen.batch) }
    })
  }

  /** The same for a graph traced by hand, whose parameters must all be this model's. */
  async compileGraph(graph: Graph, options: AverageOption = {}): Promise<CompiledForward<M, InputSpecs>> {
    const above = Compiled.prototype.compileGraph
    const { average: averages = false } = check(above, () => checkOptions('compileGraph', options, average))
    return this.#sibling<InputSpecs>('compileGraph', above, averages, async () => {
      checkGraph(graph)
      await graph.trace.settleSitesSlowly()
      return { bytes: graph.bytes(), sizes: () => null, source: graphSource(graph, { training: false }) }
    })
  }

  async #sibling<J extends InputSpecs>(
    what: string,
    above: unknown,
    average: boolean,
    write: (frames: Frames) => Promise<Sibling>,
  ): Promise<CompiledForward<M, J>> {
    const frames = holdFrames(above)
    try {
      refuseNested(frames)
      this.#refuseDestroyed(what)
      const { bytes, sizes, source } = await write(frames)
      const graph = this.#family.nextGraph()
      const body = { kind: 'compileForward' as const, graph, parent: ROOT, bytes, average }
      const message = await this.#family.connection.request(body, [bytes.buffer], frames, what)
      return new CompiledForward<M, J>(this.#family, graph, message, sizes(graph, message), source)
    } catch (error) {
      throw blameOnce(error, frames)
    }
  }

  /** Ends the model, its siblings and its worker (a sibling ends only itself). Calls in flight and
   *  later calls reject. A second call does nothing. */
  async destroy(): Promise<void> {
    if (this.#graph === ROOT) return this.#family.destroy()
    if (this.destroyed) return
    this.#destroyed = true
    const { connection } = this.#family
    for (const graph of [this.#graph, ...(this.sizes?.graphs ?? [])])
      connection.abandon(graph, (what) => new StateError(`${what}: the model is destroyed`))
    await connection.request({ kind: 'destroy', graph: this.#graph }, [], () => '').catch(() => undefined)
  }

  /** @internal Resolves when all calls so far, also those of siblings, have been answered. */
  settled(): Promise<void> {
    return this.#family.settled()
  }

  /** @internal */
  protected get family(): Family<M> {
    return this.#family
  }

  #refuseDestroyed(what: string): void {
    if (this.#destroyed) throw new StateError(`${what}: the model is destroyed`)
    const reason = this.#family.connection.closed
    if (reason !== null) throw reason(what)
  }

  /** @internal */
  protected get graph(): number {
    return this.#graph
  }

  /** @internal `size`: the size that the request is for, if there are several. `use` is called
   *  right before the request goes out. */
  protected async ask<K extends RequestKind>(
    body: Extract<RequestBody, { kind: K }>,
    above: unknown,
    transfer: Transferable[] = [],
    size: ((sizes: Sizes) => number) | null = null,
    use: (sized: Sized) => void = () => undefined,
    frames: Frames = holdFrames(above),
    what: string = body.kind,
  ): Promise<Answers[K]> {
    try {
      this.#refuseDestroyed(what)
      const wanted = this.sizes === null || size === null ? null : size(this.sizes)
      const { turn } = this.#family
      if (turn !== null && WAITS_FOR_TRAINING.has(body.kind)) await turn
      return await this.#send(body, transfer, frames, wanted, use, what)
    } catch (error) {
      throw blameOnce(error, frames)
    }
  }

  #send<K extends RequestKind>(
    body: Extract<RequestBody, { kind: K }>,
    transfer: Transferable[],
    frames: Frames,
    size: number | null,
    use: (sized: Sized) => void,
    what: string,
  ): Promise<Answers[K]> {
    let sized: Sized | null = null
    const take = (found: Sized): void => use((sized = found))
    const prepare = (): void | Promise<void> => {
      this.#refuseDestroyed(what)
      const found = this.sizes === null || size === null ? null : this.sizes.get(size, what, frames)
      if (found instanceof Promise) return found.then(take)
      if (found !== null) take(found)
    }
    return this.#family.send(prepare, async () => {
      this.#refuseDestroyed(what)
      const answer = await this.#family.connection.request(sized === null ? body : { ...body, graph: sized.graph }, transfer, frames, what)
      if (sized !== null) this.#message = sized.message
      return answer
    })
  }

  /** @internal Private copies, made now, that may be transferred. The core checks names and
   *  lengths. */
  protected arrays(
    what: string,
    kind: string,
    record: Readonly<Record<string, unknown>>,
    above: unknown,
  ): {
    feeds: ArrayMessage[]
    transfer: Transferable[]
  } {
    if (typeof record !== 'object' || record === null)
      throw blame(new ArgumentError(`${what}: takes ${kind}s by name, not ${describe(record)}`), above)
    const feeds: ArrayMessage[] = []
    for (const [name, value] of Object.entries(record)) {
      if (value === undefined) continue // missing: the core reports it
      const dtype = dtypeOfArray(value)
      if (dtype === null) throw blame(new ArgumentError(`${what}: the ${kind} ${name} is ${describe(value)}, ${typesText(kind)}`), above)
      feeds.push({ name, dtype, data: copyOf(value as DataArray) })
    }
    return { feeds, transfer: feeds.map((feed) => feed.data.buffer as ArrayBuffer) }
  }
}

function typesText(kind: string): string {
  return kind === 'parameter' ? 'not a Float32Array' : 'not a Float32Array (f32), Int32Array (i32) or Uint8Array (bool)'
}

function byName(arrays: readonly ArrayMessage[]): Record<string, Float32Array> {
  return Object.fromEntries(arrays.map(({ name, data }) => [name, data as Float32Array]))
}

const irGetter = Object.getOwnPropertyDescriptor(Compiled.prototype, 'ir')?.get

/** A forward pass. */
export class CompiledForward<M extends Module = Module, I extends InputSpecs = InputSpecs> extends Compiled<M, I> {}

/** Of 0.0.17. */
export type CompiledForwardModule<M extends Module = Module, I extends InputSpecs = InputSpecs> = CompiledForward<M, I>

/** A training model. */
export class CompiledModule<M extends Module = Module, I extends InputSpecs = InputSpecs> extends Compiled<M, I> {
  /** Makes one training step and returns the loss. A loss that is not finite rejects with a
   *  NotFiniteError after the step was made; with the optimiser's `skipNonFinite` only the count of
   *  steps changes. With skipNonFinite, clipNorm or normalize a gradient that is not finite rejects
   *  too (the error's loss is then NaN). */
  step<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options?: { withCaptures?: false }): Promise<number>
  step<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options: { withCaptures: true }): Promise<StepResult>
  step<R extends Batch = never>(inputs: InputArrays<I> | AnyArrays<R>, options: CallOptions): Promise<number | StepResult>
  async step(inputs: Batch, options: CallOptions = {}): Promise<number | StepResult> {
    const above = CompiledModule.prototype.step
    const { withCaptures = false } = check(above, () => checkOptions('step', options, ofCall))
    const { feeds, transfer } = this.arrays('step', 'input', inputs, above)
    try {
      const body = { kind: 'step' as const, graph: this.graph, feeds, withCaptures }
      const { loss, captures } = await this.ask(body, above, transfer, (sizes) => sizes.sizeOf('step', feeds))
      return withCaptures ? { loss, captures: new Captures(captures ?? []) } : loss
    } catch (error) {
      if (error instanceof NotFiniteError) error.captures = withCaptures ? new Captures((error.captures ?? []) as CaptureMessage[]) : null
      throw error
    }
  }

  /** Uploads rows for inputs once, [N, ...] for an input [B, ...]. Checks all names, lengths and
   *  indices. batch: B of inputs with a null axis; default: `batch` of the compile options. */
  async dataset(data: Partial<InputArrays<I>>, options: Pick<TrainOptions, 'batch'> = {}): Promise<Dataset> {
    const above = CompiledModule.prototype.dataset
    return this.#dataset('dataset', data, check(above, () => checkOptions('dataset', options, { batch: anything })).batch, above)
  }
  async #dataset(what: string, data: Partial<InputArrays<I>>, batch: number | undefined, above: unknown, frames: Frames = holdFrames(above)): Promise<Dataset> {
    const { feeds, transfer } = this.arrays(what, 'input', data, above)
    const number = this.family.nextDataset(), size = call(above, () => this.#batchSize(what, batch))
    let users: Sized | null = null, graph = this.graph
    const free = (): void => {
      if (users !== null) users.users--
    }
    const use = (sized: Sized): void => {
      users = sized
      sized.users++
      graph = sized.graph
    }
    try {
      await this.ask({ kind: 'dataset', graph, dataset: number, arrays: feeds }, above, transfer, () => size, use, frames, what)
    } catch (error) {
      free()
      throw error
    }
    const drop = async (): Promise<void> => {
      await this.ask({ kind: 'dataset', graph, dataset: number, arrays: null }, Dataset.prototype.destroy).catch(() => undefined)
      free()
    }
    return new Dataset(this, graph, number, (atOnce) => (atOnce ? drop() : this.family.inTurn(drop)))
  }
  #batchSize(what: string, batch: number | undefined): number {
    const { sizes } = this
    if (batch !== undefined && (!Number.isInteger(batch) || batch < 1))
      throw new ArgumentError(`${what}: batch is ${typeof batch === 'number' ? batch : describe(batch)}, not a whole number from 1 on`)
    if (sizes === null && batch !== undefined) throw new ArgumentError(`${what}: batch is for models whose inputs have a null axis`)
    if (sizes !== null && batch === undefined && !sizes.options.isDeclared)
      throw new ArgumentError(`${what}: how many rows has a batch? Give \`batch\` here or where the model is compiled`)
    return batch ?? sizes?.first.size ?? 0
  }

  /** Makes many steps on batches drawn from data on the device, each like `step` with those rows.
   *  Returns the losses of the steps made. Calls that change the model wait for it; those that read
   *  it (run, downloadParams, inspect, snapshot) are answered meanwhile. */
  async train(options: TrainOptions<I>): Promise<Float32Array> {
    const above = CompiledModule.prototype.train
    const frames = holdFrames(above), run = call(above, () => trainArguments(options))
    const { feeds, transfer } = this.arrays('train', 'input', options.inputs ?? {}, above)
    if (options.data instanceof Dataset) {
      const { data } = options
      if (data.destroyed) throw blame(new StateError('train: the data set is destroyed'), above)
      if (data.owner !== this) throw blame(new ArgumentError("train: the data set is another model's"), above)
      if (options.batch !== undefined) throw blame(new ArgumentError('train: batch is given, and a data set, which has its own'), above)
      return this.family.inTurn(() => this.#trainOn(data, run, feeds, transfer, frames))
    }
    call(above, () => this.#batchSize('train', options.batch))
    const arrays = copiesOf(options.data)
    return this.family.inTurn(async () => {
      const data = await this.#dataset('train', arrays, options.batch, above, frames)
      try {
        return await this.#trainOn(data, run, feeds, transfer, frames)
      } finally {
        void data.destroy(true)
      }
    })
  }

  async #trainOn(data: Dataset, run: TrainRun, feeds: ArrayMessage[], transfer: Transferable[], frames: Frames): Promise<Float32Array> {
    const { message, onProgress, signal } = run
    const parts: Float32Array[] = []
    const ask = (options: TrainMessage | 'end' | null, arrays: ArrayMessage[] = [], moved: Transferable[] = []) =>
      this.ask({ kind: 'train', graph: data.graph, dataset: data.number, feeds: arrays, options }, null, moved, null, undefined, frames)
    signal?.throwIfAborted()
    try {
      for (let answer = await ask(message, feeds, transfer), more = true; more && !answer.isOver; ) {
        answer = await ask(null)
        parts.push(answer.losses)
        for (let i = 0; i < answer.losses.length && more; i++)
          more = onProgress?.(answer.step + i, answer.losses[i] as number) !== false
        signal?.throwIfAborted()
      }
    } finally {
      void ask('end').catch(() => undefined)
    }
    return joined(parts)
  }

  /** The gradients of the last step, before clipping, for every parameter (zeros for a frozen
   *  one). */
  async downloadParamGrads(): Promise<Record<string, Float32Array>> {
    return byName(await this.ask({ kind: 'downloadParamGrads', graph: this.graph }, CompiledModule.prototype.downloadParamGrads))
  }

  /** Puts optimiser state and step counter back to the start; parameters stay. */
  async resetOptimizerState(): Promise<void> {
    await this.ask({ kind: 'resetOptimizer', graph: this.graph }, CompiledModule.prototype.resetOptimizerState)
  }

  /** Replaces the rate or schedule; a schedule begins at its start. */
  async setLR(rate: LR): Promise<void> {
    const above = CompiledModule.prototype.setLR
    const lr = call(above, () => rateArgument('setLR', rate))
    await this.ask({ kind: 'setLR', graph: this.graph, lr }, above)
  }
}

const many = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`
shown(Compiled, (model) => {
  const kind = model instanceof CompiledModule ? 'CompiledModule' : 'CompiledForward'
  const sizes = `${many(model.paramNames.length, 'parameter')}, ${many(model.kernelCount, 'kernel')}`
  return `${kind} on ${model.device}: ${sizes}${model.destroyed ? ', destroyed' : ''}`
})
