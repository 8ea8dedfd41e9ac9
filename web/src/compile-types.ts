// What a caller of the compiler gives and gets: options of compiling, of steps, runs and trainings, and their results. No code.

import type { Captures } from './captures.js'
import type { Dataset } from './dataset.js'
import { Module } from './module.js'
import type { Optimizers } from './optimizer.js'
import type { SizeOptions } from './sizes.js'
import type { Tensor } from './tensor.js'
import type { DataArray, Device, InputArrays, InputSpecs, InputTensors, Precision } from './types.js'
import type { OnWarning } from './warnings.js'

export interface ForwardOptions<I extends InputSpecs> extends SizeOptions {
  /** The inputs of `forward` by name. */
  inputs?: I
}

export interface AverageOption {
  /** Over the averages of the parameters that an optimiser with `average` keeps, instead of the parameters. */
  average?: boolean
}

interface RuntimeOptions {
  /** Of the initial values and of random numbers: the same seed gives the same values everywhere. A whole number from 0 on. Default 0. */
  seed?: number | bigint
  /** Default 'auto'. */
  device?: Device
  /** A part of the name of the GPU wanted, where there are several. */
  adapter?: string
  /** One kernel for each operation: slow, for comparison. */
  noFusion?: boolean
  /** Before every step look at all values, forward and back: where loss or gradients are not finite, the step rejects with a NotFiniteError
   *  that names the first operation, input or parameter that is worse than what it was made of, and nothing is changed. Slow. */
  checkFinite?: boolean
  /** 'f16': large contractions round their operands to f16 where the GPU offers that (`model.precision` says), and add in f32. Parameters,
   *  gradients and all else stay f32. Default 'f32'. */
  precision?: Precision
  /** With f16 in use, cotangents are computed times this, and gradients divided by it, so that small ones do not vanish: a power of two
   *  from 1 to 2^24. Default 4096. */
  lossScale?: number
  /** Of the CPU, 1 to 16. More than one where memory can be shared: in Node, and with tensorgrad/split in a page that is isolated
   *  (`crossOriginIsolated`); elsewhere one. `model.device` says how many; results do not depend on it. Default 1. */
  threads?: number
  /** Told of what compiles and most likely is not what was meant: no optimizer, a parameter that nothing trains. Default: the console, each
   *  thing once. */
  onWarning?: OnWarning
}

/** Without an optimiser a step computes loss and gradients and changes nothing. */
export interface CompileOptions<I extends InputSpecs = InputSpecs> extends ForwardOptions<I>, RuntimeOptions, Optimizers {
  /** Names of parameters that are not trained and need no backward work. '*' matches any characters,
   *  '?' any one. A pattern that matches nothing is a NotFoundError. See also `Module.freeze`. */
  frozen?: string | readonly string[]
}
export interface CompileForwardOptions<I extends InputSpecs = InputSpecs> extends ForwardOptions<I>, RuntimeOptions {}
export interface CompileGraphOptions extends RuntimeOptions, Optimizers {
  /** Differentiate the result. Default: whether it is rank 0. */
  training?: boolean
}

export type Forward<M extends Module, I extends InputSpecs> = (model: M, inputs: InputTensors<I>) => Tensor

export interface CallOptions {
  withCaptures?: boolean
}
/** Of 0.0.17. */
export type RunOptions = CallOptions
/** Of 0.0.17. */
export type StepOptions = CallOptions
/** Of 0.0.17. */
export type ForwardFn<M extends Module, I extends InputSpecs = InputSpecs> = Forward<M, I>
/** Of 0.0.17. */
export type CompileModuleOptions<I extends InputSpecs = InputSpecs> = CompileOptions<I>
export interface TrainOptions<I extends InputSpecs = InputSpecs> {
  /** Of inputs with a null axis: rows of a batch. Default: `batch` of the compile options. */
  batch?: number
  /** Rows for inputs whose first axis is the batch, or a data set made before. */
  data: Partial<InputArrays<I>> | Dataset
  /** The other inputs: the same in every step. */
  inputs?: Partial<InputArrays<I>>
  /** To make: 0 or more. */
  steps: number
  /** Default 'random': each row drawn with replacement. 'sequential': one after another, over again. */
  order?: 'random' | 'sequential'
  /** Of the random order. Default 0. */
  seed?: number | bigint
  /** How many steps a GPU is given at a time, up to 4096. Default: as many as let a page draw between. */
  stepsPerSubmission?: number
  /** Called for each step, in order, several at a time. Return false to stop, after the steps that
   *  were made meanwhile. */
  onProgress?: (step: number, loss: number) => boolean | void
  /** Ends once a loss is no more than this. */
  targetLoss?: number
  /** Ends once the least loss is this many steps old. */
  patience?: number
  /** Aborting ends it, after the steps under way: the promise rejects with the signal's reason. */
  signal?: AbortSignal
}
export interface StepResult {
  loss: number
  captures: Captures
}
export interface RunResult<A extends DataArray = Float32Array> {
  output: A
  captures: Captures
}
