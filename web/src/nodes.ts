// A graph as data: the types of its operations, in the order they were made, and of their tensors.
// Must not know a trace or a compiler.

import { dtypes, type GraphNodes } from './core.js'
import { fromCore, siteText } from './sites.js'
import type { Dtype, Shape } from './types.js'

/** Where an operation is in the user's program. line and column count from 1; 0 means unknown. */
export interface CallSite {
  readonly opName: string
  readonly file: string
  readonly line: number
  readonly column: number
  /** The same as a line of a stack. */
  readonly stack: string
}

/** One of C's primitives ("add", "contract", "reduce_max", ...); parameters, inputs and states are
 *  'param_input', 'tensor_input' and 'state_input'. */
export type OpKind = 'param_input' | 'tensor_input' | 'state_input' | (string & {})

/** What an operation has besides its inputs. */
export interface OpAttributes {
  /** Of reductions, flip, iota, concat, window, fold. */
  readonly axes?: readonly number[]
  readonly perm?: readonly number[]
  /** Of slice and pad. */
  readonly start?: readonly number[]
  /** Of a constant that is one number, and the first value of a state. */
  readonly value?: number | string
  /** Of a constant with data: how many numbers. */
  readonly count?: number
  readonly bound?: number | string
  /** size, step, dilation */
  readonly window?: readonly number[]
  readonly offsets?: readonly number[]
}

export interface OpNode {
  readonly kind: OpKind
  /** The tensor it makes: an index in `graph.tensors` and `graph.ops`. */
  readonly out: number
  /** Tensors, in the order of its operands. */
  readonly inputs: readonly number[]
  readonly shape: Shape
  readonly dtype: Dtype
  /** The name of a parameter, input or state; else its name in messages, or null. */
  readonly name: string | null
  readonly site: CallSite | null
  readonly attributes: OpAttributes
}

/** A tensor as data. */
export interface TensorNode {
  readonly id: number
  readonly shape: Shape
  readonly dtype: Dtype
  /** The operation that makes it; null for a parameter, an input or a state. */
  readonly source: number | null
  readonly site: CallSite | null
}

/** After a step a parameter or a state gets the value of `source`. */
export interface WritebackDecl<T = { readonly id: number }> {
  readonly source: T
  readonly destName: string
  readonly destKind: 'param' | 'state'
}

const leaves: Readonly<Record<string, OpKind>> = { param: 'param_input', input: 'tensor_input', state: 'state_input' }

export const isLeaf = (op: OpNode): boolean => Object.values(leaves).includes(op.kind)

function callSite(opName: string, file: string, line: number): CallSite | null {
  const site = fromCore({ file, line })
  return site.line === 0 ? null : { opName, ...site, stack: `    at ${siteText(site)}` }
}

export const opsOf = ({ ops }: GraphNodes): OpNode[] =>
  ops.map(({ kind, inputs, shape, dtype, name, file, line, attributes }, out) => ({
    kind: leaves[kind] ?? kind, out, inputs, shape, dtype: dtypes[dtype] as Dtype, name: name === '' ? null : name,
    site: callSite(kind, file, line), attributes,
  }))

export const tensorsOf = (ops: readonly OpNode[]): TensorNode[] =>
  ops.map((op) => ({ id: op.out, shape: op.shape, dtype: op.dtype, source: isLeaf(op) ? null : op.out, site: op.site }))
