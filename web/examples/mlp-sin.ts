// mlp-sin: a network with two hidden layers learns y = sin x on [-pi, pi].
//
//   x [256, 1] -> Linear 64, ReLU -> Linear 64, ReLU -> Linear 1 -> mean squared error against sin x
//
// The same model, batches and recipe as examples/mlp_sin.c: the same seed gives the same curve.

import { compileModule, Module, nn, relu, type CompileOptions, type Tensor } from 'tensorgrad'
import { randomBits } from './random.js'

export const BATCH = 256
export const FIT_POINTS = 256
const HIDDEN = 64

// ---------------------------------------------------------------- the model

export class MLP extends Module {
  l1 = new nn.Linear(1, HIDDEN)
  l2 = new nn.Linear(HIDDEN, HIDDEN)
  l3 = new nn.Linear(HIDDEN, 1)
}

/** x [rows, 1] -> prediction [rows, 1]. */
export function network(m: MLP, x: Tensor): Tensor {
  const h = relu(m.l1.fwd(x))
  return m.l3.fwd(relu(m.l2.fwd(h)))
}

export function loss(m: MLP, { x, y }: { x: Tensor; y: Tensor }): Tensor {
  return nn.mse(network(m, x), y)
}

/** The training model and the sibling that says what it has learned. */
export async function compile(options: Pick<CompileOptions, 'seed' | 'device' | 'adapter' | 'threads'> = {}) {
  const model = await compileModule(() => new MLP(), loss, {
    adam: { lr: 0.005 },
    inputs: { x: { shape: [BATCH, 1] }, y: { shape: [BATCH, 1] } },
    seed: 1,
    ...options,
  })
  const forward = await model.compileForward((m, { x }) => network(m, x), { inputs: { x: { shape: [FIT_POINTS, 1] } } })
  return { model, forward }
}

// ---------------------------------------------------------------- the data

/** The batch of step t = 1, 2, ...: a pure function of seed and t. */
export function batch(seed: number, t: number): { x: Float32Array; y: Float32Array } {
  const x = new Float32Array(BATCH)
  const y = new Float32Array(BATCH)
  for (let i = 0; i < BATCH; i++) {
    const share = Number(randomBits(seed, t, i) >> 40n) / 16777216 // 24 bits, in [0, 1)
    x[i] = (2 * share - 1) * Math.PI
    y[i] = Math.sin(x[i] as number)
  }
  return { x, y }
}

/** Points to draw the fit by, ascending, and the truth there. */
export function fitPoints(): { x: Float32Array; truth: Float32Array } {
  const x = Float32Array.from({ length: FIT_POINTS }, (_, i) => Math.PI * ((2 * i) / (FIT_POINTS - 1) - 1))
  return { x, truth: x.map((value) => Math.sin(value)) }
}
