// The promises of the types: checked by tsc, never run. A line under @ts-expect-error must not
// compile.

import {
  add,
  appendAdam,
  appendGrad,
  argmax,
  compileForward,
  compileModule,
  emitKernels,
  init,
  lr,
  materializeParams,
  Module,
  mul,
  nn,
  paramInput,
  planBuffers,
  resolveLR,
  stateInput,
  sub,
  sum,
  tensorInput,
  trace,
  traceInto,
  type AdamConfig,
  type AdamResult,
  type BufferPlan,
  type CallSite,
  type Captures,
  type CompiledForward,
  type CompiledForwardModule,
  type CompiledIR,
  type CompiledModule,
  type CompileModuleOptions,
  type Dtype,
  type ForwardFn,
  type Graph,
  type InitFn,
  type InitSpec,
  type InputDecl,
  type InputsTensors,
  type KernelSpec,
  type LRSchedule,
  type MaterializedParams,
  type OpNode,
  type ParamOptions,
  type RunOptions,
  type RunResult,
  type Shape,
  type StepOptions,
  type StepResult,
  type Tensor,
  type WritebackDecl,
} from 'tensorgrad'

class Model extends Module {
  l = new nn.Linear(2, 3)
  W: Tensor = this.param([3], { init: 'zeros', decay: false })
}
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const holds = <T extends true>(): T => true as T

export async function training(): Promise<void> {
  const model = await compileModule(
    () => new Model(),
    (m, { x, y, mask }) => nn.mse(mul(m.l.fwd(x), mask), y),
    {
      adam: { lr: lr.warmup({ peakLr: 0.1, warmupSteps: 3, after: 0.1 }), b1: 0.8, weightDecay: 0.1, decayFilter: (name) => name !== 'W' },
      inputs: { x: { shape: [4, 2], dtype: 'f32' }, y: { shape: [4, 3] }, mask: { shape: [4, 3], dtype: 'bool' } },
      seed: 7n,
      device: 'cpu',
    },
  )
  const x = new Float32Array(8)
  const y = new Float32Array(12)
  const mask = new Uint8Array(12)

  const loss = await model.step({ x, y, mask })
  holds<Equal<typeof loss, number>>()
  const both = await model.step({ x, y, mask }, { withCaptures: true })
  holds<Equal<typeof both.loss, number>>()
  holds<Equal<ReturnType<typeof both.captures.names>, string[]>>()
  const output = await model.run({ x, y, mask })
  holds<Equal<typeof output, Float32Array>>()
  const run = await model.run<Int32Array>({ x, y, mask }, { withCaptures: true })
  holds<Equal<typeof run.output, Int32Array>>()
  holds<Equal<typeof model.paramNames, readonly string[]>>()
  const params = await model.downloadParams()
  await model.uploadParams(params, { partial: true })
  await model.setLR(0.1)

  // @ts-expect-error: y and mask are missing
  await model.step({ x })
  // @ts-expect-error: there is no input z
  await model.step({ x, y, mask, z: x })
  // @ts-expect-error: mask is bool
  await model.step({ x, y, mask: y })
  // @ts-expect-error: x is f32
  await model.run({ x: new Int32Array(8), y, mask })
  // @ts-expect-error: no plain numbers
  await model.step({ x: [1, 2], y, mask })
  // @ts-expect-error: parameters are Float32Arrays
  await model.uploadParams({ 'l.W': new Int32Array(6) })
  // @ts-expect-error: loss is a number
  both.loss.toUpperCase()
}

export async function forwards(): Promise<void> {
  const model = await compileForward(
    () => new Model(),
    (m, { tokens }) => add(m.W, sum(tokens)),
    {
      inputs: { tokens: { shape: [4], dtype: 'i32' } },
    },
  )
  await model.run({ tokens: new Int32Array(4) })
  // @ts-expect-error: a forward pass does not train
  await model.step({ tokens: new Int32Array(4) })
  // @ts-expect-error: tokens are i32
  await model.run({ tokens: new Float32Array(4) })

  const sibling = await model.compileForward((m, { x }) => argmax(m.l.fwd(x)), { inputs: { x: { shape: [1, 2] } } })
  await sibling.run({ x: new Float32Array(2) })
  // @ts-expect-error: its inputs are its own
  await sibling.run({ tokens: new Int32Array(4) })

  const none = await compileModule(
    () => new Model(),
    (m) => sum(m.W),
  )
  await none.step({})
}

const make = () => new Model()
const total = (m: Model) => sum(m.W)

export async function mistakes(): Promise<void> {
  // @ts-expect-error: there is no input z
  await compileModule(make, (m, { z }) => add(m.W, z), { inputs: { x: { shape: [3] } } })
  // @ts-expect-error: forward returns a tensor
  await compileModule(make, () => 3)
  // @ts-expect-error: the factory makes a module
  await compileModule(() => ({}), total)
  // @ts-expect-error: no such dtype
  await compileModule(make, total, { inputs: { x: { shape: [3], dtype: 'f64' } } })
  // @ts-expect-error: no such device
  await compileModule(make, total, { device: 'gpu' })
  // @ts-expect-error: no such schedule
  await compileModule(make, total, { adam: { lr: { kind: 'sawtooth' } } })
  // @ts-expect-error: param is for subclasses
  make().param([3])
  // @ts-expect-error: no such option
  new nn.Linear(2, 3, { biases: false })
  const w = make().W
  // @ts-expect-error: a text is no operand
  sub(w, '3')
  // @ts-expect-error: argmax takes one axis
  argmax(w, [0])
  // @ts-expect-error: shapes are read only
  w.shape[0] = 3
}

export type Named = CompiledModule<Model, { x: { shape: [2]; dtype: 'i32' } }> | CompiledForward<Model, { x: { shape: [2] } }>

// ---------------------------------------------------------------- programs as they were written for 0.0.17

export async function seed(): Promise<void> {
  let m: CompiledModule<Model>
  m = await compileModule(() => new Model(), (model, { tokens, x }) => add(sum(model.l.fwd(x)), sum(tokens)), {
    adam: { lr: 0.005 },
    inputs: { tokens: { shape: [4], dtype: 'i32' }, x: { shape: [4, 2] } },
  })
  const batch: Record<string, Float32Array | Int32Array> = { tokens: new Int32Array(4), x: new Float32Array(8) }
  const loss: number = await m.step(batch)
  const { captures } = await m.step(batch, { withCaptures: true })
  const output: Float32Array = await m.run(batch)
  await m.step({ tokens: new Int32Array(4), x: new Float32Array(8) })
  const known = await compileModule(() => new Model(), (model, { x }) => sum(model.l.fwd(x)), { inputs: { x: { shape: [4, 2] } } })
  const data: Record<string, Float32Array> = { x: new Float32Array(8) }
  await known.step(data)
  await known.step(batch)
  await known.run(data, { withCaptures: true })
  // @ts-expect-error: there is no input y
  await known.step({ y: new Float32Array(8) })
  // @ts-expect-error: no plain numbers
  await known.step({ x: [1, 2] })
  console.log(loss, captures.names(), output)
}

export function seedValues(): void {
  const rate: LRSchedule = 0.005
  const decay: LRSchedule = { kind: 'linearDecay', peak: 0.005, final: 0.0005, steps: 1500 }
  const wave: LRSchedule = { kind: 'cosineDecay', peak: 0.005, final: 0.0001, steps: 5000 }
  const flat: LRSchedule = { kind: 'constant', value: 0.005 }
  const warm: LRSchedule = { kind: 'warmup', peakLr: 0.001, warmupSteps: 200, after: decay }
  const twice: LRSchedule = { kind: 'warmup', peakLr: 0.001, warmupSteps: 200, after: { kind: 'warmup', peakLr: 0.01, warmupSteps: 10, after: 0.001 } }
  const inits: InitSpec[] = ['zeros', 'ones', 'randn', { kind: 'kaiming' }, { kind: 'randn' }, { kind: 'randn', scale: 0 }, init.kaiming(), init.zeros()]
  const config: AdamConfig = { lr: lr.warmup({ peakLr: 0.001, warmupSteps: 200, after: lr.constant(0.001) }), b1: 0, b2: 0, eps: 0 }
  const options: ParamOptions = { init: 'zeros', decay: true, dtype: 'f32' }
  const linear = new nn.Linear(2, 3), norm = new nn.LayerNorm(4, 1e-5)
  holds<Equal<typeof linear.inDim | typeof linear.outDim | typeof norm.d, number>>()
  // @ts-expect-error: no such schedule
  const none: LRSchedule = { kind: 'sawtooth', peak: 1 }
  // @ts-expect-error: no such initial value
  const bad: InitSpec = 'uniform'
  console.log(rate, wave, flat, warm, twice, inits, config, options, none, bad)
}

export async function seedIR(): Promise<void> {
  const forward: ForwardFn<Model, { x: { shape: [2] } }> = (m, { x }) => sum(m.l.fwd(x))
  const options: CompileModuleOptions<{ x: { shape: [2] } }> = { inputs: { x: { shape: [2] } }, adam: { lr: 0.005 } }
  const declared: InputDecl = { shape: [2], dtype: 'i32' }
  const tensors: InputsTensors<{ x: InputDecl }> | null = null
  const model = await compileModule(() => new Model(), forward, options)
  const infer: CompiledForwardModule<Model> = await model.compileForward((m, { x }) => m.l.fwd(x), { inputs: { x: { shape: [1, 2] } } })
  const how: RunOptions & StepOptions = { withCaptures: true }
  const result: StepResult | number = await model.step({ x: new Float32Array(2) }, how)
  const output: RunResult<Float32Array> = await infer.run({ x: new Float32Array(2) }, { withCaptures: true })
  const ir: CompiledIR = model.ir
  const graph: Graph = ir.graph
  const op: OpNode | undefined = graph.ops[0]
  const site: CallSite | null | undefined = op?.site
  const plan: BufferPlan = planBuffers(graph, ir.paramGrads, [])
  const kernels: KernelSpec[] = emitKernels(graph, plan)
  const captures: Captures = output.captures
  const loss: Tensor = ir.loss
  const shape: Shape = loss.shape
  const dtype: Dtype = loss.dtype
  const parts: string[] = kernels.map((kernel) => `${kernel.opKind} ${kernel.wgsl.length} ${kernel.bindings.join()}`)
  const pair: Graph = trace(() => [tensorInput('a', [2]), tensorInput('b', [2])])
  const { graph: same, paramGrads } = appendGrad(graph)
  const materialized: MaterializedParams = materializeParams(new Model())
  const { writebacks }: AdamResult = appendAdam(same, paramGrads, materialized.tensors, { lr: 0.1 }, materialized.decayFlags)
  const decl: readonly WritebackDecl<Tensor>[] = writebacks
  const init0: InitFn | undefined = materialized.initFns['W']
  const values: Float32Array | undefined = init0?.(3, [3])
  const rate: number = resolveLR(0.1, 3)
  traceInto(graph, () => ({ state: stateInput('s', [2], 'f32', 0), param: paramInput('p', [2], 'f32') }))
  console.log(declared, tensors, result, site, captures, shape, dtype, parts, pair, decl, values, rate)
}
