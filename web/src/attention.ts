// Attention, and layers made of layers: MLP, Sequential. Parameters are named as in C's tg_nn_*.

import { ArgumentError } from './errors.js'
import { capture, relu, rope } from './ops.js'
import { Module } from './module.js'
import { Linear, mergeHeads, splitHeads, type LinearOptions } from './nn.js'
import { anything, callback, check, checkAll, checkOptions, count, flag, positive, text } from './options.js'
import { describe, invoke, type Tensor } from './tensor.js'

export interface AttentionMask {
  /** Position i sees the positions up to i; there are as many keys as queries. Default false. */
  causal?: boolean
  /** Bool, broadcast to [B, H, T, S]: true where a key is seen. A row that sees nothing has weights
   *  0. Default: everything is seen. */
  mask?: Tensor
}
export interface AttentionOptions extends LinearOptions {
  /** Heads of keys and values; must divide the number of heads, which is the default. */
  kvHeads?: number
  causal?: boolean
  /** Turn queries and keys by `rope` with this base. Default: do not. */
  ropeBase?: number
  /** Length of the vectors that keys and values are made of. Default: dim. */
  context?: number
}
export interface AttentionInputs {
  /** [B, S, context]. Default: x. */
  context?: Tensor
  mask?: Tensor
  /** The name under which the weights are captured. */
  capture?: string
}

/** q [B, H, T, d], k [B, Hk, S, d], Hk dividing H -> softmax(q k^T / sqrt d) [B, H, T, S]; head h
 *  has the keys of head h Hk / H. */
export function attentionWeights(q: Tensor, k: Tensor, options: AttentionMask = {}): Tensor {
  const mask = options?.mask
  return invoke('nn_attention_weights', attentionWeights, mask === undefined ? [q, k] : [q, k, mask], () => {
    checkOptions('attention', options, { causal: flag, mask: anything })
    return { causal: options.causal }
  })
}
/** weights [B, H, T, S], v [B, Hk, S, d] -> weights v, [B, H, T, d]. */
export function attentionValues(weights: Tensor, v: Tensor): Tensor {
  return invoke('nn_attention_values', attentionValues, [weights, v])
}
/** q [B, H, T, d], k and v [B, Hk, S, d] -> the weights of q and k times v, [B, H, T, d]. Long rows
 *  are computed block by block and never stored. */
export function attend(q: Tensor, k: Tensor, v: Tensor, options: AttentionMask = {}): Tensor {
  const mask = options?.mask
  return invoke('nn_attend', attend, mask === undefined ? [q, k, v] : [q, k, v, mask], () => {
    checkOptions('attention', options, { causal: flag, mask: anything })
    return { causal: options.causal }
  })
}

/** x [B, T, dim] -> [B, T, dim]. Linear layers q [dim, dim], k and v [context, dim / heads
 *  kvHeads], o [dim, dim]. */
export class Attention extends Module {
  q: Linear
  k: Linear
  v: Linear
  o: Linear
  readonly kvHeads: number
  private readonly options: AttentionOptions
  constructor(
    dim: number,
    readonly heads: number,
    options: AttentionOptions = {},
  ) {
    super()
    const known = { kvHeads: count, causal: flag, ropeBase: positive, context: count, bias: flag, init: anything, frozen: flag }
    const own = check(Attention, () => checkOptions('attention', options, known))
    checkAll('attention', Attention, { dim, heads })
    const { kvHeads = heads, causal, ropeBase, context = dim, ...linear } = own
    const size = dim / heads
    check(Attention, () => {
      const whole = (n: number): boolean => Number.isSafeInteger(n) && n > 0
      if (!whole(size)) throw new ArgumentError(`attention: ${dim} does not divide into ${heads} heads`)
      if (!whole(kvHeads) || !whole(heads / kvHeads)) throw new ArgumentError(`attention: ${heads} heads do not divide among ${kvHeads} of keys`)
      if (ropeBase !== undefined && size % 2 !== 0) throw new ArgumentError(`attention: rope needs heads of an even size, not ${size}`)
    })
    this.options = own
    this.kvHeads = kvHeads
    this.q = new Linear(dim, dim, linear)
    this.k = new Linear(context, size * kvHeads, linear)
    this.v = new Linear(context, size * kvHeads, linear)
    this.o = new Linear(dim, dim, linear)
  }
  fwd(x: Tensor, inputs: AttentionInputs = {}): Tensor {
    check(Attention.prototype.fwd, () => checkOptions('attention', inputs, { context: anything, mask: anything, capture: text }))
    const { context = x, mask, capture: name } = inputs, { causal = false, ropeBase } = this.options
    const turned = (heads: Tensor): Tensor => (ropeBase === undefined ? heads : rope(heads, { base: ropeBase }))
    const q = turned(splitHeads(this.q.fwd(x), this.heads)), k = turned(splitHeads(this.k.fwd(context), this.kvHeads))
    const v = splitHeads(this.v.fwd(context), this.kvHeads)
    const seen = mask === undefined ? { causal } : { causal, mask }
    const apart = (as: string): Tensor => attentionValues(capture(as, attentionWeights(q, k, seen)), v)
    return this.o.fwd(mergeHeads(name === undefined ? attend(q, k, v, seen) : apart(name)))
  }
}

/** One operand in, one out. */
export type Layer = ((x: Tensor) => Tensor) | { fwd(x: Tensor): Tensor }

/** Layers one after another, modules or functions. Parameters are named by position: "0.W". */
export class Sequential extends Module {
  readonly length: number
  constructor(...layers: Layer[]) {
    super()
    for (const [i, layer] of layers.entries())
      check(Sequential, () => {
        const fits = typeof layer === 'function' || (layer instanceof Module && typeof layer.fwd === 'function')
        if (!fits) throw new ArgumentError(`sequential: layer ${i} is ${describe(layer)}, neither a function nor a module with fwd`)
      })
    this.length = layers.length
    Object.assign(this, layers)
  }
  fwd(x: Tensor): Tensor {
    const layers = this as unknown as Record<number, Layer>
    for (let i = 0; i < this.length; i++) {
      const layer = layers[i] as Layer
      x = typeof layer === 'function' ? layer(x) : layer.fwd(x)
    }
    return x
  }
}

export interface MLPOptions extends LinearOptions {
  /** Between the layers. Default relu. */
  activation?: (x: Tensor) => Tensor
  /** Also after the last layer. Default false. */
  activateLast?: boolean
}

/** Linear layers of these sizes, [in, ..., out], with an activation between them. Parameters are
 *  named by position: "0.W". */
export class MLP extends Module {
  readonly length: number
  private readonly options: MLPOptions
  constructor(sizes: readonly number[], options: MLPOptions = {}) {
    super()
    const own = check(MLP, () => {
      if (!Array.isArray(sizes) || sizes.length < 2)
        throw new ArgumentError('mlp: at least 2 sizes are needed, of the input and the output')
      return checkOptions('mlp', options, { activation: callback, activateLast: flag, bias: flag, init: anything, frozen: flag })
    })
    const { activation, activateLast, ...linear } = own
    this.options = own
    this.length = sizes.length - 1
    Object.assign(this, sizes.slice(1).map((size, i) => new Linear(sizes[i] as number, size, linear)))
  }
  fwd(x: Tensor): Tensor {
    const { activation = relu, activateLast = false } = this.options, layers = this as unknown as Record<number, Linear>
    for (let i = 0; i < this.length; i++) {
      x = (layers[i] as Linear).fwd(x)
      if (i < this.length - 1 || activateLast) x = activation(x)
    }
    return x
  }
}
