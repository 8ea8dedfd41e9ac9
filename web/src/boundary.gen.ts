// What crosses between the C core and TypeScript. Written by scripts/make-boundary from web/core/boundary.def: change that.

import type { Address, CallAddress, GraphAddress, ModelAddress } from './core.js'

// ---------------------------------------------------------------- numbers of the core

export const MAX_RANK = 8
export const LR_MILESTONES = 6
export const LR_WARMUPS = 2
export const MOST_STEPS = 4096
export const DRAW_WORDS = 8

export const dtypes = ['f32', 'i32', 'bool'] as const // by tg_dtype
export const dtypeBytes = [4, 4, 1] as const
export const dtypeArrays = [Float32Array, Int32Array, Uint8Array] as const
/** tg_status */
export const enum Status {
  ok = 0,
  argument = 1,
  shape = 2,
  dtype = 3,
  memory = 4,
  notFound = 5,
  duplicate = 6,
  index = 7,
  trace = 8,
  gradient = 9,
  io = 10,
  format = 11,
  device = 12,
  deviceLost = 13,
  limit = 14,
  notFinite = 15,
  state = 16,
  unsupported = 17,
  internal = 18,
}
/** tg_choice */
export const enum Choice {
  default = 0,
  yes = 1,
  no = 2,
}
/** tg_init_kind */
export const InitKind = { randn: 0, zeros: 1, ones: 2, kaiming: 3, uniform: 4, literal: 5 } as const
/** tg_reduction */
export const Reduction = { mean: 0, sum: 1, none: 2 } as const
/** tg_padding_mode */
export const enum PaddingMode {
  sides = 0,
  same = 1,
}
/** tg_lr_kind */
export const LrKind = { constant: 0, linear: 1, cosine: 2, warmup: 3, staircase: 4, multiStep: 5, oneCycle: 6 } as const
/** tg_optimizer_kind */
export const OptimizerKind = { none: 0, sgd: 1, adam: 2, adamw: 3, lion: 4, rmsprop: 5, adagrad: 6, muon: 7 } as const
/** tg_eps_mode */
export const EpsMode = { uncorrected: 0, corrected: 1 } as const
/** tg_device_kind */
export const DeviceKind = { auto: 0, cpu: 1, webgpu: 2 } as const
/** tg_precision */
export const Precision = { f32: 0, f16: 1 } as const
/** tg_batch_order */
export const BatchOrder = { random: 0, sequential: 1 } as const
/** tg_text */
export const Text = { ir: 0, kernels: 1, plan: 2, dot: 3, c: 4, wgsl: 5 } as const
/** web_draw_kind */
export const enum DrawKind {
  rand = 0,
  randn = 1,
  randInt = 2,
  bernoulli = 3,
}
/** web_call_kind */
export const enum CallKind {
  step = 0,
  run = 1,
  stepWithCaptures = 2,
  runWithCaptures = 3,
}
/** What the core takes for an option that is not given. */
export const defaults = {
  init: { randn: 0.02, kaiming: 1.4142135623730951 },
  layer_norm: { eps: 1e-05 },
  rms_norm: { eps: 1e-05 },
  group_norm: { eps: 1e-05 },
  batch_norm: { eps: 1e-05, momentum: 0.1 },
  optimizer: { beta1: 0.9, beta2: 0.999, eps: 1e-08 },
} as const

// ---------------------------------------------------------------- structs

/** tg_lr: what is left out is 0, the core's default. */
export interface LrFields {
  peak?: number | undefined
  kind?: number | undefined
  final?: number | undefined
  steps?: number | undefined
  afterKind?: number | undefined
  afterPeak?: number | undefined
  afterFinal?: number | undefined
  afterSteps?: number | undefined
  factor?: number | undefined
  initial?: number | undefined
  rise?: number | undefined
  milestones?: readonly number[] | undefined
  milestoneCount?: number | undefined
  moreCount?: number | undefined
  morePeaks?: readonly number[] | undefined
  moreSteps?: readonly number[] | undefined
}
/** tg_optimizer: what is left out is 0, the core's default. */
export interface OptimizerFields {
  kind?: number | undefined
  lr?: LrFields | undefined
  beta1?: number | undefined
  beta2?: number | undefined
  eps?: number | undefined
  epsMode?: number | undefined
  weightDecay?: number | undefined
  momentum?: number | undefined
  nesterov?: boolean | undefined
  clipNorm?: number | undefined
  clipValue?: number | undefined
  normalize?: boolean | undefined
  skipNonFinite?: boolean | undefined
  accumulate?: number | undefined
  average?: number | undefined
}
/** tg_param_group: what is left out is 0, the core's default. */
export interface ParamGroupFields {
  rate?: number | undefined
  weightDecay?: number | undefined
  decay?: number | undefined
  frozen?: boolean | undefined
  plain?: boolean | undefined
}
/** tg_padding: what is left out is 0, the core's default. */
export interface PaddingFields {
  mode?: number | undefined
  before?: readonly number[] | undefined
  after?: readonly number[] | undefined
}
/** tg_compile_options: what is left out is 0, the core's default. */
export interface CompileOptionsFields {
  optimizer?: OptimizerFields | undefined
  seed?: bigint | undefined
  device?: number | undefined
  noFusion?: boolean | undefined
  checkFinite?: boolean | undefined
  precision?: number | undefined
  lossScale?: number | undefined
}
/** tg_train_options: what is left out is 0, the core's default. */
export interface TrainOptionsFields {
  steps?: number | undefined
  order?: number | undefined
  seed?: bigint | undefined
  stepsPerSubmission?: number | undefined
  targetLoss?: number | undefined
  patience?: number | undefined
}

/** The numbers of each in their order. name[n]: n of them; name[]: how many, then those; name$: a text, as a list of its characters;
 *  name!: low and high 32 bits; name:struct: its numbers. */
export const layouts = {
  lr: 'peak kind final steps afterKind afterPeak afterFinal afterSteps factor initial rise milestones[6] milestoneCount moreCount morePeaks[1] moreSteps[1]',
  optimizer: 'kind lr:lr beta1 beta2 eps epsMode weightDecay momentum nesterov clipNorm clipValue normalize skipNonFinite accumulate average',
  paramGroup: 'rate weightDecay decay frozen plain',
  padding: 'mode before[2] after[2]',
  compileOptions: 'optimizer:optimizer seed! device noFusion checkFinite precision lossScale',
  trainOptions: 'steps order seed! stepsPerSubmission targetLoss patience',
} as const

// ---------------------------------------------------------------- operations

/** The numbers that each operation takes beside its operands. Axes null: every axis. */
export interface OpNumbers {
  neg: {}
  abs: {}
  sign: {}
  square: {}
  sqrt: {}
  rsqrt: {}
  reciprocal: {}
  exp: {}
  log: {}
  sin: {}
  cos: {}
  tanh: {}
  erf: {}
  sigmoid: {}
  softplus: {}
  expm1: {}
  log1p: {}
  floor: {}
  ceil: {}
  round: {}
  tan: {}
  log_sigmoid: {}
  hard_sigmoid: {}
  hard_swish: {}
  silu: {}
  gelu: {}
  gelu_tanh: {}
  relu: {}
  logical_not: {}
  stop_gradient: {}
  softmax_causal_last: {}
  nn_merge_heads: {}
  global_avg_pool: {}
  global_max_pool: {}
  add: {}
  sub: {}
  mul: {}
  div: {}
  floor_div: {}
  mod: {}
  pow: {}
  minimum: {}
  maximum: {}
  less: {}
  less_equal: {}
  greater: {}
  greater_equal: {}
  equal: {}
  not_equal: {}
  logical_and: {}
  logical_or: {}
  matmul: {}
  matmul_batched: {}
  embedding: {}
  nn_cross_entropy_last: {}
  where: {}
  nn_attention_values: {}
  sum: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  mean: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  max: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  min: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  prod: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  any: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  all: { axes: readonly number[] | null; keepdims?: boolean | undefined }
  argmax: { axis: number; keepdims?: boolean | undefined }
  argmin: { axis: number; keepdims?: boolean | undefined }
  softmax: { axis: number }
  log_softmax: { axis: number }
  logsumexp: { axis: number }
  categorical: { axis: number }
  concat: { axis: number }
  stack: { axis: number }
  expand_dims: { axis: number }
  gather: { axis: number }
  take_along_axis: { axis: number }
  scatter_add: { axis: number }
  masked_softmax: { axis: number }
  reshape: { shape: readonly number[] }
  broadcast_to: { shape: readonly number[] }
  squeeze: { axes: readonly number[] | null }
  flip: { axes: readonly number[] | null }
  sort: { axis: number; descending?: boolean | undefined }
  argsort: { axis: number; descending?: boolean | undefined }
  variance: { axes: readonly number[] | null; keepdims?: boolean | undefined; correction?: number | undefined }
  std: { axes: readonly number[] | null; keepdims?: boolean | undefined; correction?: number | undefined }
  cumsum: { axis: number; exclusive?: boolean | undefined; reverse?: boolean | undefined }
  cumprod: { axis: number; exclusive?: boolean | undefined; reverse?: boolean | undefined }
  tril: { diagonal: number }
  triu: { diagonal: number }
  nn_layer_norm_fwd: { eps: number }
  nn_rms_norm_fwd: { eps: number }
  nn_rnn_fwd: { hasBias: boolean; relu: boolean }
  nn_rnn_step: { hasBias: boolean; relu: boolean }
  nn_gru_fwd: { hasBias: boolean; relu: boolean }
  nn_gru_step: { hasBias: boolean; relu: boolean }
  nn_lstm_fwd: { hasBias: boolean; relu: boolean }
  nn_lstm_step: { hasBias: boolean; relu: boolean }
  nn_mse: { reduction?: number | undefined }
  nn_l1: { reduction?: number | undefined }
  nn_bce_with_logits: { reduction?: number | undefined }
  conv1d: { stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; dilation?: readonly number[] | undefined; groups?: number | undefined; outputPadding?: readonly number[] | undefined }
  conv2d: { stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; dilation?: readonly number[] | undefined; groups?: number | undefined; outputPadding?: readonly number[] | undefined }
  conv_transpose1d: { stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; dilation?: readonly number[] | undefined; groups?: number | undefined; outputPadding?: readonly number[] | undefined }
  conv_transpose2d: { stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; dilation?: readonly number[] | undefined; groups?: number | undefined; outputPadding?: readonly number[] | undefined }
  max_pool1d: { kernel: number; stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; ceilMode?: boolean | undefined; excludePadding?: boolean | undefined }
  avg_pool1d: { kernel: number; stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; ceilMode?: boolean | undefined; excludePadding?: boolean | undefined }
  max_pool2d: { kernelH: number; kernelW: number; stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; ceilMode?: boolean | undefined; excludePadding?: boolean | undefined }
  avg_pool2d: { kernelH: number; kernelW: number; stride?: readonly number[] | undefined; padding?: PaddingFields | undefined; ceilMode?: boolean | undefined; excludePadding?: boolean | undefined }
  upsample_nearest: { factor?: readonly number[] | undefined; alignCorners?: boolean | undefined }
  upsample_bilinear: { factor?: readonly number[] | undefined; alignCorners?: boolean | undefined }
  tile: { times: readonly number[] }
  clamp: { lo: number; hi: number }
  leaky_relu: { slope: number }
  elu: { alpha: number }
  cast: { dtype: number }
  transpose: { perm: readonly number[] | null }
  swap_axes: { a: number; b: number }
  slice_last_range: { start: number; end: number }
  narrow: { axis: number; start: number; length: number }
  one_hot: { depth: number; dtype: number }
  where_causal: { fill: number }
  dropout: { p: number }
  pad: { before: readonly number[]; after: readonly number[]; value: number }
  roll: { shift: number; axis: number }
  repeat: { times: number; axis: number }
  top_k: { k: number; axis: number; indices: boolean }
  einsum: { equation: string }
  rope: { base?: number | undefined; interleaved?: boolean | undefined }
  norm: { axes: readonly number[] | null; keepdims?: boolean | undefined; ord?: number | undefined }
  nn_cross_entropy: { ignore: number; reduction?: number | undefined; labelSmoothing?: number | undefined }
  nn_split_heads: { heads: number }
  nn_linear_fwd: { hasBias: boolean }
  nn_group_norm_fwd: { groups: number; eps: number }
  nn_batch_norm_fwd: { eps: number; momentum: number; training: boolean }
  nn_nll: { ignore: number; reduction?: number | undefined }
  nn_huber: { reduction?: number | undefined; delta?: number | undefined }
  nn_kl_div: { reduction?: number | undefined; logTarget?: boolean | undefined }
  nn_attend: { causal?: boolean | undefined }
  nn_attention_weights: { causal?: boolean | undefined }
  resolve_lr: { schedule: LrFields }
}
export type OpName = keyof OpNumbers

/** All operations, by number: names of some that take the same numbers, `/`, those in their order, as in a layout. */
export const opLayouts =
  'neg abs sign square sqrt rsqrt reciprocal exp log sin cos tanh erf sigmoid softplus expm1 log1p floor ceil round tan ' +
  'log_sigmoid hard_sigmoid hard_swish silu gelu gelu_tanh relu logical_not stop_gradient softmax_causal_last ' +
  'nn_merge_heads global_avg_pool global_max_pool add sub mul div floor_div mod pow minimum maximum less less_equal greater ' +
  'greater_equal equal not_equal logical_and logical_or matmul matmul_batched embedding nn_cross_entropy_last where ' +
  'nn_attention_values/|sum mean max min prod any all/axes[] keepdims|argmax argmin/axis keepdims|softmax log_softmax ' +
  'logsumexp categorical concat stack expand_dims gather take_along_axis scatter_add masked_softmax/axis|reshape ' +
  'broadcast_to/shape[]|squeeze flip/axes[]|sort argsort/axis descending|variance std/axes[] keepdims correction|cumsum ' +
  'cumprod/axis exclusive reverse|tril triu/diagonal|nn_layer_norm_fwd nn_rms_norm_fwd/eps|nn_rnn_fwd nn_rnn_step ' +
  'nn_gru_fwd nn_gru_step nn_lstm_fwd nn_lstm_step/hasBias relu|nn_mse nn_l1 nn_bce_with_logits/reduction|conv1d conv2d ' +
  'conv_transpose1d conv_transpose2d/stride[2] padding:padding dilation[2] groups outputPadding[2]|max_pool1d ' +
  'avg_pool1d/kernel stride[2] padding:padding ceilMode excludePadding|max_pool2d avg_pool2d/kernelH kernelW stride[2] ' +
  'padding:padding ceilMode excludePadding|upsample_nearest upsample_bilinear/factor[2] alignCorners|tile/times[]|clamp/lo ' +
  'hi|leaky_relu/slope|elu/alpha|cast/dtype|transpose/perm[]|swap_axes/a b|slice_last_range/start end|narrow/axis start ' +
  'length|one_hot/depth dtype|where_causal/fill|dropout/p|pad/before[] after[] value|roll/shift axis|repeat/times ' +
  'axis|top_k/k axis indices|einsum/equation$|rope/base interleaved|norm/axes[] keepdims ord|nn_cross_entropy/ignore ' +
  'reduction labelSmoothing|nn_split_heads/heads|nn_linear_fwd/hasBias|nn_group_norm_fwd/groups eps|nn_batch_norm_fwd/eps ' +
  'momentum training|nn_nll/ignore reduction|nn_huber/reduction delta|nn_kl_div/reduction logTarget|nn_attend ' +
  'nn_attention_weights/causal|resolve_lr/schedule:lr'

// ---------------------------------------------------------------- exports

/** web/core/boundary.gen.h says what each does. */
export interface Exports {
  memory: WebAssembly.Memory
  init(): number
  has_cpu(): number
  alloc(bytes: number): Address
  free(block: Address): void
  live_bytes(): number
  error_status(): number
  error_message(): Address
  error_file(): Address
  error_line(): number
  error_clear(): void
  error_set(status: number, message: Address): void
  trace(): GraphAddress
  trace_into(graph: GraphAddress): number
  graph_destroy(graph: GraphAddress): void
  graph_describe(graph: GraphAddress): Address
  graph_nodes(graph: GraphAddress): Address
  graph_initial(graph: GraphAddress, i: number, seedLow: number, seedHigh: number, out: Address, count: number): void
  graph_text(graph: GraphAddress): Address
  graph_set_decay(graph: GraphAddress, i: number, decay: number): void
  graph_unmark(graph: GraphAddress): void
  graph_mark_group(graph: GraphAddress, pattern: Address, group: Address): number
  graph_settle_sites(graph: GraphAddress, sites: Address, count: number): void
  graph_write(graph: GraphAddress): number
  text_data(): Address
  op(op: number, file: Address, line: number, operands: Address, operandCount: number, numbers: Address, count: number): number
  param(file: Address, line: number, graph: GraphAddress, name: Address, dims: Address, rank: number, init: number, scale: number, data: Address, count: number, decay: number, frozen: number): number
  input(file: Address, line: number, graph: GraphAddress, name: Address, dims: Address, rank: number, dtype: number): number
  state(file: Address, line: number, graph: GraphAddress, name: Address, dims: Address, rank: number, dtype: number, value: number): number
  full(file: Address, line: number, graph: GraphAddress, dims: Address, rank: number, value: number, dtype: number): number
  arange(file: Address, line: number, graph: GraphAddress, n: number, dtype: number): number
  constant(file: Address, line: number, graph: GraphAddress, dims: Address, rank: number, dtype: number, data: Address, count: number): number
  draw(file: Address, line: number, graph: GraphAddress, kind: number, dims: Address, rank: number, lo: number, hi: number, p: Address): number
  capture(file: Address, line: number, name: Address, graph: GraphAddress, id: number): number
  grad(file: Address, line: number, operands: Address, count: number, out: Address): number
  vjp(file: Address, line: number, operands: Address, count: number, out: Address): number
  split(file: Address, line: number, operand: Address, numbers: Address, count: number, out: Address): number
  writeback(file: Address, line: number, operands: Address): number
  append_optimizer(file: Address, line: number, loss: Address, optimizer: Address): number
  shape(graph: GraphAddress, id: number, dims: Address): number
  dtype(graph: GraphAddress, id: number): number
  lr_value(lr: Address, t: number): number
  model_create(bytes: Address, size: number, training: number, options: Address): ModelAddress
  model_sibling(parent: ModelAddress, bytes: Address, size: number, averaged: number): ModelAddress
  model_size(owner: ModelAddress, bytes: Address, size: number): ModelAddress
  model_destroy(model: ModelAddress): void
  model_describe(model: ModelAddress): Address
  model_text(model: ModelAddress, what: number): Address
  model_launches(model: ModelAddress): Address
  model_upload(model: ModelAddress, params: Address, n: number, partial: number): number
  model_read(model: ModelAddress, slot: number, first: number, data: Address, count: number): number
  model_check_grads(model: ModelAddress): number
  model_reset(model: ModelAddress): number
  model_reset_optimizer(model: ModelAddress): number
  model_set_lr(model: ModelAddress, lr: Address): number
  model_steps(model: ModelAddress): number
  snapshot_put(model: ModelAddress, slot: number, data: Address): void
  snapshot_end(model: ModelAddress): void
  model_recover(model: ModelAddress): number
  call_create(model: ModelAddress): CallAddress
  call_destroy(call: CallAddress): void
  call_begin(call: CallAddress, kind: number, feeds: Address, n: number): number
  call_program(call: CallAddress): number
  call_is_last(call: CallAddress): number
  call_inputs(call: CallAddress): Address
  call_outputs(call: CallAddress): Address
  call_next(call: CallAddress, status: number): number
  call_run(call: CallAddress): number
  call_result(call: CallAddress): Address
  call_captures(call: CallAddress): Address
  call_end(call: CallAddress): void
  dataset_create(model: ModelAddress, arrays: Address, n: number, rows: number): Address
  dataset_destroy(dataset: Address): void
  dataset_feeder(dataset: Address): number
  train_begin(model: ModelAddress, dataset: Address, options: Address, feeds: Address, n: number): Address
  train_most(train: Address): number
  train_exact(train: Address): number
  train_control(train: Address): Address
  train_program(train: Address): number
  train_inputs(train: Address): Address
  train_losses(train: Address): Address
  train_next(train: Address, status: number, count: number): number
  train_run(train: Address, count: number): number
  train_step(train: Address, call: CallAddress): number
  train_result(train: Address): Address
  train_end(train: Address): void
}
