// transformer-add: a small transformer learns to add two-digit numbers, "ab+cd=efg", one character at a time.
//
// The model sees the first eight of the nine characters and predicts, at each position, the next one. Only the three digits of the sum
// count in the loss: nobody can foresee the question. 1,000 of the 10,000 sums are kept out of training.
//
//   tokens [B, 8] -> token + position embedding [B, 8, 64]
//     3 x { x + attention(LayerNorm(x)), x + MLP(LayerNorm(x)) }     4 heads of 16, MLP 64-256-64 with ReLU
//   -> LayerNorm -> logits [B, 8, 12] by the token embedding once more (tied head)
//
// The same model, batches and recipe as examples/transformer_add.c: the same seed gives the same curve.

import {
  add,
  argmax,
  capture,
  compileModule,
  embedding,
  init,
  lr,
  matmul,
  matmulBatched,
  Module,
  mul,
  nn,
  relu,
  softmaxCausalLast,
  swapAxes,
  type CompileOptions,
  type Tensor,
} from 'tensorgrad'
import { randomBits } from './random.js'

export const BATCH = 128
export const TEST_BATCH = 250
export const T = 8
export const VOCABULARY = 12
export const LAYERS = 3
export const HEADS = 4
const D = 64
const PLUS = 10 // tokens; the digits are their own
const EQUALS = 11
export const ANSWER = 5 // position of '=', which predicts the first digit of the sum
export const ANSWER_DIGITS = 3
const IGNORE = -1 // target of a position that does not count
const SUMS = 10000
export const HELD_OUT = 1000
// Large enough not to drown in what the first layers add to it.
const EMBEDDING_STD = 0.2

// ---------------------------------------------------------------- the model

class Attention extends Module {
  q = new nn.Linear(D, D)
  k = new nn.Linear(D, D)
  v = new nn.Linear(D, D)
  o = new nn.Linear(D, D)
}

class Feedforward extends Module {
  up = new nn.Linear(D, 4 * D)
  down = new nn.Linear(4 * D, D)
}

class Layer extends Module {
  ln1 = new nn.LayerNorm(D)
  attn = new Attention()
  ln2 = new nn.LayerNorm(D)
  mlp = new Feedforward()
}

export class Transformer extends Module {
  tokenEmbedding = this.param([VOCABULARY, D], { init: init.randn({ scale: EMBEDDING_STD }) })
  positionEmbedding = this.param([T, D], { init: init.randn({ scale: EMBEDDING_STD }) })
  layers = Array.from({ length: LAYERS }, () => new Layer())
  lnFinal = new nn.LayerNorm(D)
}

/** x [B, T, D] -> [B, T, D]: every position gathers from itself and those before it. */
function attention(m: Attention, x: Tensor, layer: number): Tensor {
  const q = nn.splitHeads(m.q.fwd(x), HEADS) // [B, H, T, d]
  const k = nn.splitHeads(m.k.fwd(x), HEADS)
  const v = nn.splitHeads(m.v.fwd(x), HEADS)
  const scores = mul(matmulBatched(q, swapAxes(k, -1, -2)), 1 / Math.sqrt(D / HEADS)) // [B, H, T, T]
  const weights = capture(`layers.${layer}.attn`, softmaxCausalLast(scores))
  return m.o.fwd(nn.mergeHeads(matmulBatched(weights, v)))
}

/** tokens i32 [B, T] -> logits [B, T, VOCABULARY]. */
export function network(m: Transformer, tokens: Tensor): Tensor {
  let x = add(embedding(m.tokenEmbedding, tokens), m.positionEmbedding)
  m.layers.forEach((layer, i) => {
    x = add(x, attention(layer.attn, layer.ln1.fwd(x), i))
    x = add(x, layer.mlp.down.fwd(relu(layer.mlp.up.fwd(layer.ln2.fwd(x)))))
  })
  return matmul(m.lnFinal.fwd(x), swapAxes(m.tokenEmbedding, 0, 1))
}

export function loss(m: Transformer, { tokens, targets }: { tokens: Tensor; targets: Tensor }): Tensor {
  return nn.crossEntropy(network(m, tokens), targets, IGNORE)
}

export const RECIPE = { lr: lr.linearDecay({ peak: 0.005, final: 0.0005, steps: 1500 }), weightDecay: 0.01 }

/** The training model and the sibling that gives the likeliest next token at each position. */
export async function compile(options: Pick<CompileOptions, 'seed' | 'device' | 'adapter' | 'threads'> = {}, rows: number = TEST_BATCH) {
  const model = await compileModule(() => new Transformer(), loss, {
    adam: RECIPE,
    inputs: { tokens: { shape: [BATCH, T], dtype: 'i32' }, targets: { shape: [BATCH, T], dtype: 'i32' } },
    seed: 1,
    ...options,
  })
  const forward = await model.compileForward((m, { tokens }) => argmax(network(m, tokens), -1), {
    inputs: { tokens: { shape: [rows, T], dtype: 'i32' } },
  })
  return { model, forward }
}

// ---------------------------------------------------------------- the data

/** The sums 100 a + b in an order that depends on the seed: a Feistel network on the two halves, so each sum comes once. The first HELD_OUT
 *  places are for testing. */
export function sumAt(seed: number, place: number): number {
  let a = Math.floor(place / 100)
  let b = place % 100
  for (let round = 0; round < 6; round++) {
    const mixed = (a + Number(randomBits(seed, round, b) % 100n)) % 100
    a = b
    b = mixed
  }
  return 100 * a + b
}

/** "ab+cd=efg" as nine tokens. */
export function spell(sum: number): number[] {
  const a = Math.floor(sum / 100)
  const b = sum % 100
  const total = a + b
  const tens = (n: number) => Math.floor(n / 10)
  return [tens(a), a % 10, PLUS, tens(b), b % 10, EQUALS, Math.floor(total / 100), tens(total) % 10, total % 10]
}

export const characters = (tokens: Iterable<number>): string => Array.from(tokens, (token) => '0123456789+='[token]).join('')

/** The batch of step t = 1, 2, ...: a pure function of seed and t. */
export function batch(seed: number, t: number): { tokens: Int32Array; targets: Int32Array } {
  const tokens = new Int32Array(BATCH * T)
  const targets = new Int32Array(BATCH * T)
  for (let row = 0; row < BATCH; row++) {
    const place = HELD_OUT + Number(randomBits(seed, t + 1000, row) % BigInt(SUMS - HELD_OUT))
    const text = spell(sumAt(seed, place))
    tokens.set(text.slice(0, T), row * T)
    targets.set(
      text.slice(1).map((token, i) => (i >= ANSWER ? token : IGNORE)),
      row * T,
    )
  }
  return { tokens, targets }
}

/** What `forward` answers to the questions of these sums: each digit is fed back before the next is asked for. */
export async function answer(
  run: (tokens: Int32Array) => Promise<Int32Array>,
  sums: readonly number[],
  rows: number = TEST_BATCH,
): Promise<number[][]> {
  const tokens = new Int32Array(rows * T)
  sums.forEach((sum, row) => tokens.set(spell(sum).slice(0, ANSWER + 1), row * T))
  const digits: number[][] = sums.map(() => [])
  for (let digit = 0; digit < ANSWER_DIGITS; digit++) {
    const next = await run(tokens)
    sums.forEach((_, row) => {
      const at = row * T + ANSWER + digit
      const token = next[at] as number
      digits[row]?.push(token)
      if (ANSWER + digit + 1 < T) tokens[at + 1] = token
    })
  }
  return digits
}

/** The share of held-out sums that are answered exactly. */
export async function exactMatch(run: (tokens: Int32Array) => Promise<Int32Array>, seed: number): Promise<number> {
  let right = 0
  for (let first = 0; first < HELD_OUT; first += TEST_BATCH) {
    const sums = Array.from({ length: TEST_BATCH }, (_, row) => sumAt(seed, first + row))
    const digits = await answer(run, sums)
    right += sums.filter(
      (sum, row) =>
        digits[row]?.join() ===
        spell(sum)
          .slice(ANSWER + 1)
          .join(),
    ).length
  }
  return right / HELD_OUT
}
