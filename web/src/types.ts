// The types of a user's program: dtypes, shapes, declared inputs, and the types inferred from them.
// No code.

import type { Tensor } from './tensor.js'

export type Dtype = 'f32' | 'i32' | 'bool'
/** Row-major, every dim at least 1. [] is rank 0. */
export type Shape = readonly number[]
/** Where a model runs. 'auto': WebGPU if there is an adapter, else the CPU; `model.device` says
 *  which and why. */
export type Device = 'auto' | 'cpu' | 'webgpu'
/** What large contractions round their operands to; they add in f32 either way. */
export type Precision = 'f32' | 'f16'

/** Values of a dtype. A bool is one byte, 0 or 1. */
export type DataArray = Float32Array | Int32Array | Uint8Array
export type ArrayOf<D extends Dtype> = D extends 'i32' ? Int32Array : D extends 'bool' ? Uint8Array : Float32Array

/** An input's shape. At most one axis may be null; its size follows from the array of each call.
 *  All null axes of a call have the same size. */
export type InputShape = readonly (number | null)[]

export interface InputSpec {
  readonly shape: InputShape
  /** Default 'f32'. */
  readonly dtype?: Dtype
}
export type InputSpecs = { readonly [name: string]: InputSpec }
/** Of 0.0.17. */
export type InputDecl = InputSpec
/** Of 0.0.17. */
export type InputDecls = InputSpecs

/** The dtype of an InputSpec; any dtype if its type does not say. */
type DtypeOf<S extends InputSpec> = S extends { readonly dtype: infer D extends Dtype } ? D : InputSpec extends S ? Dtype : 'f32'
/** The tensors that `forward` gets. */
export type InputTensors<I extends InputSpecs> = { readonly [N in keyof I]: Tensor }
/** Of 0.0.17. */
export type InputsTensors<I extends InputDecls> = InputTensors<I>
/** The arrays that `step` and `run` take. */
export type InputArrays<I extends InputSpecs> = { readonly [N in keyof I]: ArrayOf<DtypeOf<I[N]>> }
/** Arrays by name. */
export type Batch = Readonly<Record<string, DataArray>>
/** A batch whose names the types do not know, such as a `Record<string, Float32Array |
 *  Int32Array>`. A call checks them. */
export type AnyArrays<R extends Batch> = string extends keyof R ? R : never

/** A tensor or a number: what a binary operation takes on either side. */
export type Operand = Tensor | number
/** One axis, several, or (left out) all of them. */
export type Axes = number | readonly number[]

export interface ReduceOptions {
  /** Reduced axes stay, as 1. */
  keepDims?: boolean
}
export interface VarianceOptions extends ReduceOptions {
  /** 0 (default): biased; 1: Bessel's. */
  correction?: number
}
export interface NormOptions extends ReduceOptions {
  /** 1, 2 (default) or Infinity. */
  ord?: number
}
export interface SortOptions {
  /** The largest first; NaN is last both ways. */
  descending?: boolean
}
export interface RopeOptions {
  /** Default 10000. */
  base?: number
  /** Pairs are neighbours (2 i, 2 i + 1); else (i, i + D / 2). */
  interleaved?: boolean
  /** i32, broadcast to x's axes but the last. Default 0 .. T - 1. */
  positions?: Tensor
}
export interface ScanOptions {
  /** y[i] leaves x[i] out; the first is 0 (1 for a product). */
  exclusive?: boolean
  /** From the last element to the first. */
  reverse?: boolean
}
