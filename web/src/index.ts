// The public surface of the package.

export * from './ops.js'
export * from './conv.js'
export * as nn from './nn.js'
export type {
  Conv1d,
  Conv2d,
  ConvLayerOptions,
  ConvTranspose2d,
  ConvTransposeLayerOptions,
  Dropout,
  GRU,
  LayerNormOptions,
  Linear,
  LinearOptions,
  LayerNorm,
  LSTM,
  LSTMStart,
  LSTMStates,
  RecurrentOptions,
  RecurrentStart,
  RNN,
  RNNOptions,
} from './nn.js'
export { Module, type ParamOptions } from './module.js'
export { init, type Init, type InitSpec } from './init.js'
export { lr, type LR, type LRSchedule } from './lr.js'
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
export {
  compileForward,
  compileGraph,
  compileModule,
  CompiledForward,
  CompiledModule,
  Dataset,
  type CallOptions,
  type CompileForwardOptions,
  type CompileGraphOptions,
  type CompileOptions,
  type Forward,
  type ForwardOptions,
  type RunResult,
  type StepResult,
  type TrainOptions,
} from './compile.js'
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
  type IROptions,
  type KernelSpec,
  type NamedTensor,
} from './ir.js'
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
export type {
  ArrayOf,
  Axes,
  DataArray,
  Device,
  Dtype,
  InputArrays,
  InputShape,
  InputSpec,
  InputSpecs,
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
