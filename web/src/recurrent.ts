// Recurrent layers: the plain cell, GRU and LSTM. Parameter names and gates are those of C's
// tg_nn_rnn, tg_nn_gru, tg_nn_lstm: the gates' weights are side by side in Wx and Wh. The core
// computes the cells.

import { init, type Init } from './init.js'
import { Module } from './module.js'
import { anything, check, checkAll, checkOptions, flag, oneOf, type Kinds } from './options.js'
import { invoke, NONE, type Tensor } from './tensor.js'

export interface RecurrentOptions {
  /** Default true. */
  bias?: boolean
  /** Of Wx and Wh. Default uniform in 1 / sqrt(hidden), as the biases always are. */
  init?: Init
  /** Do not train its parameters: no gradient, no update, like `freeze()`. Default false. */
  frozen?: boolean
}
export interface RNNOptions extends RecurrentOptions {
  /** Default 'tanh'. */
  activation?: 'tanh' | 'relu'
}
export interface RecurrentStart {
  /** [B, hidden]. Default zeros. */
  h0?: Tensor
}
export interface LSTMStart extends RecurrentStart {
  /** [B, hidden]. Default zeros. */
  c0?: Tensor
}
export interface LSTMStates {
  /** The hidden state. */
  h: Tensor
  /** The cell state. */
  c: Tensor
}

type Kind = 'rnn' | 'gru' | 'lstm'
const GATES = { rnn: 1, gru: 3, lstm: 4 } as const

abstract class Recurrent extends Module {
  /** [in, gates hidden] */
  Wx: Tensor
  /** [hidden, gates hidden] */
  Wh: Tensor
  bx: Tensor | null = null
  bh: Tensor | null = null
  readonly hidden: number
  constructor(
    readonly kind: Kind,
    inDim: number,
    hidden: number,
    options: RecurrentOptions,
    more: Kinds = {},
    private readonly relu = false,
  ) {
    super()
    check(new.target, () => checkOptions(kind, options, { bias: flag, init: anything, frozen: flag, ...more }))
    checkAll(kind, new.target, { inDim, hidden })
    const { bias = true, init: wanted } = options
    this.hidden = hidden
    const wide = GATES[kind] * hidden
    const usual = init.uniform({ bound: 1 / Math.sqrt(hidden) })
    this.Wx = this.param([inDim, wide], { init: wanted ?? usual })
    this.Wh = this.param([hidden, wide], { init: wanted ?? usual })
    if (bias) {
      this.bx = this.param([wide], { init: usual, decay: false })
      this.bh = this.param([wide], { init: usual, decay: false })
    }
    if (options.frozen) this.freeze()
  }

  /** Checks the caller's `start`: it has states of these names and nothing else. */
  protected start<S extends object>(above: unknown, start: S, ...names: string[]): S {
    check(above, () => checkOptions(this.kind, start, Object.fromEntries(names.map((name) => [name, anything]))))
    return start
  }

  /** The states of an LSTM come side by side. */
  protected call(above: unknown, x: Tensor, step: boolean, h?: Tensor, c?: Tensor): Tensor {
    const needsC = step && this.kind === 'lstm'
    const operands = [x, this.Wx, this.Wh, this.bx ?? NONE, this.bh ?? NONE, step ? h : (h ?? NONE), needsC ? c : (c ?? NONE)]
    return invoke(`nn_${this.kind}_${step ? 'step' : 'fwd'}`, above, operands, () => ({ hasBias: this.bx !== null, relu: this.relu }))
  }
}

/** h' = tanh(x Wx + bx + h Wh + bh), or relu of it. Wx [in, hidden], Wh [hidden, hidden], bx, bh
 *  [hidden] (all uniform in 1 / sqrt(hidden)). */
export class RNN extends Recurrent {
  constructor(inDim: number, hidden: number, options: RNNOptions = {}) {
    super('rnn', inDim, hidden, options, { activation: oneOf('tanh', 'relu') }, options?.activation === 'relu')
  }
  /** x [B, in], h [B, hidden] -> [B, hidden]. */
  step(x: Tensor, h: Tensor): Tensor {
    return this.call(RNN.prototype.step, x, true, h)
  }
  /** x [B, T, in] -> the states after every step, [B, T, hidden]. */
  fwd(x: Tensor, start: RecurrentStart = {}): Tensor {
    return this.call(RNN.prototype.fwd, x, false, this.start(RNN.prototype.fwd, start, 'h0').h0)
  }
}

/** r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = tanh(xn + r hn), h' = (1 - z) n + z h, with x. =
 *  x Wx. + bx. and h. = h Wh. + bh. of each gate. Wx [in, 3 hidden], Wh [hidden, 3 hidden], bx, bh
 *  [3 hidden]: r, z, n. */
export class GRU extends Recurrent {
  constructor(inDim: number, hidden: number, options: RecurrentOptions = {}) {
    super('gru', inDim, hidden, options)
  }
  /** x [B, in], h [B, hidden] -> [B, hidden]. */
  step(x: Tensor, h: Tensor): Tensor {
    return this.call(GRU.prototype.step, x, true, h)
  }
  /** x [B, T, in] -> the states after every step, [B, T, hidden]. */
  fwd(x: Tensor, start: RecurrentStart = {}): Tensor {
    return this.call(GRU.prototype.fwd, x, false, this.start(GRU.prototype.fwd, start, 'h0').h0)
  }
}

/** c' = sigmoid(xf + hf) c + sigmoid(xi + hi) tanh(xg + hg), h' = sigmoid(xo + ho) tanh(c'). Wx
 *  [in, 4 hidden], Wh [hidden, 4 hidden], bx, bh [4 hidden]: i, f, g, o. */
export class LSTM extends Recurrent {
  constructor(inDim: number, hidden: number, options: RecurrentOptions = {}) {
    super('lstm', inDim, hidden, options)
  }
  #states(above: unknown, x: Tensor, step: boolean, h?: Tensor, c?: Tensor): LSTMStates {
    const both = this.call(above, x, step, h, c)
    const half = (i: number): Tensor => invoke('slice_last_range', above, [both], () => ({ start: i * this.hidden, end: (i + 1) * this.hidden }))
    return { h: half(0), c: half(1) }
  }
  /** x [B, in], h and c [B, hidden] -> the states after it, [B, hidden]. */
  step(x: Tensor, before: LSTMStates): LSTMStates {
    const { h, c } = this.start(LSTM.prototype.step, before, 'h', 'c')
    return this.#states(LSTM.prototype.step, x, true, h, c)
  }
  /** x [B, T, in] -> the states after every step, [B, T, hidden]. */
  fwd(x: Tensor, start: LSTMStart = {}): LSTMStates {
    const { h0, c0 } = this.start(LSTM.prototype.fwd, start, 'h0', 'c0')
    return this.#states(LSTM.prototype.fwd, x, false, h0, c0)
  }
}
