// The two workloads as every system here gets them: the batches of web/examples, sizes, rates, and the order in which parameters come. Knows
// no system.

import * as mlp from '../../web/examples/mlp-sin.ts'
import * as transformer from '../../web/examples/transformer-add.ts'

export { mlp, transformer }

export const SEED = 1
export const WIDTH = 64

const linear = (name, rows, columns) => [[`${name}.W`, [rows, columns]], [`${name}.b`, [columns]]]
const norm = (name) => [[`${name}.g`, [WIDTH]], [`${name}.b`, [WIDTH]]]
const layer = (i) => [
  ...norm(`layers.${i}.ln1`),
  ...['q', 'k', 'v', 'o'].flatMap((part) => linear(`layers.${i}.attn.${part}`, WIDTH, WIDTH)),
  ...norm(`layers.${i}.ln2`),
  ...linear(`layers.${i}.mlp.up`, WIDTH, 4 * WIDTH),
  ...linear(`layers.${i}.mlp.down`, 4 * WIDTH, WIDTH),
]

const decays = (name) => name.endsWith('.W') || name.endsWith('Embedding')

export const workloads = {
  'mlp-sin': {
    shapes: Object.fromEntries([...linear('l1', 1, WIDTH), ...linear('l2', WIDTH, WIDTH), ...linear('l3', WIDTH, 1)]),
    inputs: { x: [mlp.BATCH, 1], y: [mlp.BATCH, 1] },
    rate: () => 0.005,
    decay: () => 0,
    batch: (t) => mlp.batch(SEED, t),
  },
  'transformer-add': {
    shapes: Object.fromEntries([
      ['tokenEmbedding', [transformer.VOCABULARY, WIDTH]],
      ['positionEmbedding', [transformer.T, WIDTH]],
      ...Array.from({ length: transformer.LAYERS }, (_, i) => layer(i)).flat(),
      ...norm('lnFinal'),
    ]),
    inputs: { tokens: [transformer.BATCH, transformer.T], targets: [transformer.BATCH, transformer.T] },
    rate: (t) => 0.005 + (0.0005 - 0.005) * Math.min(t / 1500, 1),
    decay: (name) => (decays(name) ? 0.01 : 0),
    batch: (t) => transformer.batch(SEED, t),
  },
}
export const BETA1 = 0.9
export const BETA2 = 0.999
export const EPS = 1e-8
