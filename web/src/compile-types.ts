// The types of the compiler's callers: options of compiling, steps, runs and trainings, and their
// results. No code.

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
  /** Use the averages that an optimiser with `average` keeps, instead of the parameters. */
  average?: boolean
}

interface RuntimeOptions {
  /** The seed of initial values and random numbers: the same seed gives the same values everywhere.
   *  A whole number from 0 on. Default 0. */
  seed?: number | bigint
  /** Default 'auto'. */
  device?: Device
  /** A part of the name of the wanted GPU, if there are several. */
  adapter?: string
  /** One kernel for each operation: slow, for comparison. */
  noFusion?: boolean
  /** Check all values before every step, forward and backward. If the loss or a gradient is not
   *  finite, the step rejects with a NotFiniteError and changes nothing. The error names the first
   *  operation, input or parameter whose values are worse than those it was made of. Slow. */
  checkFinite?: boolean
  /** 'f16': large contractions round their operands to f16 where the GPU offers that
   *  (`model.precision` says), and add in f32. Parameters, gradients and all else stay f32. Default
   *  'f32'. */
  precision?: Precision
  /** With f16 in use, cotangents are multiplied by this and gradients divided by it, so that small
   *  ones do not vanish. A power of two from 1 to 2^24. Default 4096. */
  lossScale?: number
  /** Threads of the CPU, 1 to 16. More than one needs shared memory: Node, or tensorgrad/split in
   *  an isolated page (`crossOriginIsolated`). Elsewhere there is one. `model.device` says how
   *  many; results do not depend on it. Default 1. */
  threads?: number
  /** Called with each warning: something compiles but is most likely a mistake, such as no
   *  optimizer, or a parameter that nothing trains. Default: the console, each warning once. */
  onWarning?: OnWarning
}

/** Without an optimiser, a step computes loss and gradients and changes nothing. */
export interface CompileOptions<I extends InputSpecs = InputSpecs> extends ForwardOptions<I>, RuntimeOptions, Optimizers {
  /** Names of parameters that are not trained and need no backward work. '*' matches any
   *  characters, '?' any one. A pattern that matches nothing is a NotFoundError. See also
   *  `Module.freeze`. */
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
  /** The rows of a batch, for inputs with a null axis. Default: `batch` of the compile options. */
  batch?: number
  /** Rows for inputs whose first axis is the batch, or a data set made before. */
  data: Partial<InputArrays<I>> | Dataset
  /** The other inputs: the same in every step. */
  inputs?: Partial<InputArrays<I>>
  /** The steps to make, 0 or more. */
  steps: number
  /** Default 'random': each row drawn with replacement. 'sequential': one after another, over
   *  again. */
  order?: 'random' | 'sequential'
  /** The seed of the random order. Default 0. */
  seed?: number | bigint
  /** The steps that a GPU gets at a time, up to 4096. Default: as many as still let a page draw. */
  stepsPerSubmission?: number
  /** Called for each step, in order, several at a time. Return false to stop after the steps
   *  already made. */
  onProgress?: (step: number, loss: number) => boolean | void
  /** Training ends once a loss is at most this. */
  targetLoss?: number
  /** Training ends once the least loss is this many steps old. */
  patience?: number
  /** Aborting ends training after the steps under way: the promise rejects with the signal's
   *  reason. */
  signal?: AbortSignal
}
export interface ProfileOptions {
  /** The steps that are timed. Default 20. */
  steps?: number
}
/** A launch of a step or run on a GPU, and what it takes. */
export interface LaunchProfile {
  /** The operations of its kernels: "contract_add_relu, sum". */
  kernel: string
  /** "1024 | 256 | 64": the loops of the kernel with the most work. */
  loops: string
  /** How many kernels it joins. */
  kernels: number
  workgroups: number
  /** The mean, in milliseconds. */
  ms: number
  /** Of the sum over all launches, 0 to 1. */
  share: number
  /** Of its contractions. */
  flops: number
  /** Of the arrays that it reads and of those that it writes, at least. */
  bytes: number
  tflops: number
  gbps: number
}
export interface StepResult {
  loss: number
  captures: Captures
}
export interface RunResult<A extends DataArray = Float32Array> {
  output: A
  captures: Captures
}
