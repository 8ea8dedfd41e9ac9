// The public surface of the package.

export * from './ops.js'
export * from './conv.js'
export * as nn from './nn.js'
export type {
  Attention,
  AttentionInputs,
  AttentionMask,
  AttentionOptions,
  BatchNorm,
  BatchNormOptions,
  BCEOptions,
  Conv1d,
  Conv2d,
  ConvLayerOptions,
  ConvTranspose2d,
  ConvTransposeLayerOptions,
  CrossEntropyOptions,
  Dropout,
  GroupNorm,
  GRU,
  HuberOptions,
  KLOptions,
  Layer,
  LayerNormOptions,
  Embedding,
  Linear,
  LinearOptions,
  LayerNorm,
  LossOptions,
  LSTM,
  LSTMStart,
  LSTMStates,
  MLP,
  MLPOptions,
  NLLOptions,
  RecurrentOptions,
  RecurrentStart,
  RMSNorm,
  RNN,
  RNNOptions,
  Sequential,
} from './nn.js'
export { Module, type ParamOptions } from './module.js'
export { init, type Init, type InitSpec } from './init.js'
export { lr, type LR, type LRSchedule, type Schedule } from './lr.js'
export type {
  AdagradConfig,
  AdamConfig,
  AdamWConfig,
  LionConfig,
  MuonConfig,
  Optimizers,
  ParamGroup,
  RMSPropConfig,
  SGDConfig,
} from './optimizer.js'
export { Tensor } from './tensor.js'
export { Captures } from './captures.js'
export { latestWins, replaceModel, type ReplaceOptions } from './life.js'
export type { SizeOptions } from './sizes.js'
export { compileForward, compileGraph, compileModule } from './compile.js'
export { CompiledForward, CompiledModule, type CompiledForwardModule } from './compiled.js'
export { Dataset } from './dataset.js'
export type {
  CallOptions,
  CompileForwardOptions,
  CompileGraphOptions,
  CompileModuleOptions,
  CompileOptions,
  Forward,
  ForwardFn,
  ForwardOptions,
  RunOptions,
  RunResult,
  StepOptions,
  StepResult,
  TrainOptions,
} from './compile-types.js'
export {
  appendAdam,
  appendGrad,
  appendOptimizer,
  appendSGD,
  compileToIR,
  emitKernels,
  Graph,
  materializeParams,
  paramInput,
  planBuffers,
  resolveLR,
  stateInput,
  tensorInput,
  trace,
  traceInto,
  type BufferPlan,
  type BufferSpec,
  type CompiledIR,
  type GradResult,
  type GraphParam,
  type InitFn,
  type IROptions,
  type KernelSpec,
  type MaterializedParams,
  type NamedTensor,
  type PlannedWriteback,
} from './ir.js'
export type { AdamResult } from './adam.js'
export type { CallSite, OpAttributes, OpKind, OpNode, TensorNode, WritebackDecl } from './nodes.js'
export {
  ArgumentError,
  DeviceError,
  DeviceLostError,
  DuplicateError,
  FormatError,
  GradientError,
  IndexError,
  InternalError,
  LimitError,
  MemoryError,
  NotFiniteError,
  NotFoundError,
  ShapeError,
  StateError,
  TensorgradError,
  TraceError,
  UnsupportedError,
  WorkerError,
  type Site,
} from './errors.js'
export { ready } from './platform.js'
export type { OnWarning, Warning } from './warnings.js'
export type {
  AnyArrays,
  ArrayOf,
  Axes,
  Batch,
  DataArray,
  Device,
  Dtype,
  InputArrays,
  InputDecl,
  InputDecls,
  InputShape,
  InputSpec,
  InputSpecs,
  InputsTensors,
  InputTensors,
  Operand,
  Precision,
  NormOptions,
  ReduceOptions,
  RopeOptions,
  ScanOptions,
  SortOptions,
  VarianceOptions,
  Shape,
} from './types.js'
