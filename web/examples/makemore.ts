// makemore: reads first names and makes up more of them, one letter at a time.
//
//   letters [B, 8] -> embedding [B, 8, 24] -> hidden [B, 256], tanh -> dropout -> logits [B, 27]       27: the end, and a to z
//
// The same model (Bengio et al. 2003), batches and recipe as examples/makemore.c: the same seed gives the same curve. names.txt comes from
// scripts/get-data.

import { compileModule, embedding, init, logSoftmaxLast, lr, Module, nn, reshape, tanh, type CompileOptions, type Tensor } from 'tensorgrad'
import { randomBits } from './random.js'

export const BATCH = 128
export const TEST_BATCH = 256
export const CONTEXT = 8
export const LETTERS = 27
export const STEPS = 3000
const WIDTH = 24
const HIDDEN = 256
const LONGEST = 15 // letters of a name made up
const END = 0 // before a name, and after it; a is 1

// ---------------------------------------------------------------- the model

export class Net extends Module {
  embedding = this.param([LETTERS, WIDTH], { init: init.randn({ scale: 0.3 }) })
  hidden = new nn.Linear(CONTEXT * WIDTH, HIDDEN, { init: init.kaiming({ gain: 1 }) })
  dropout = new nn.Dropout(0.2)
  output = new nn.Linear(HIDDEN, LETTERS, { init: init.kaiming({ gain: 0.3 }) })
}

/** letters i32 [B, CONTEXT] -> logits [B, LETTERS]. */
export function network(m: Net, letters: Tensor): Tensor {
  const x = reshape(embedding(m.embedding, letters), [-1, CONTEXT * WIDTH])
  return m.output.fwd(m.dropout.fwd(tanh(m.hidden.fwd(x))))
}

/** The training model and the sibling that gives the logarithms of the next letter's probabilities. */
export async function compile(options: Pick<CompileOptions, 'seed' | 'device' | 'adapter' | 'threads'> = {}) {
  const model = await compileModule(() => new Net(), (m, { letters, next }) => nn.crossEntropy(network(m, letters), next, -1), {
    adam: { lr: lr.cosineDecay({ peak: 0.003, final: 0.0001, steps: STEPS }), weightDecay: 0.01 },
    inputs: { letters: { shape: [BATCH, CONTEXT], dtype: 'i32' }, next: { shape: [BATCH], dtype: 'i32' } },
    seed: 1,
    ...options,
  })
  const forward = await model.compileForward((m, { letters }) => logSoftmaxLast(network(m, letters)), {
    inputs: { letters: { shape: [TEST_BATCH, CONTEXT], dtype: 'i32' } },
  })
  return { model, forward }
}

// ---------------------------------------------------------------- the data

/** What is seen and what comes next. */
interface Place {
  context: number[]
  next: number
}
export interface Names {
  names: string[]
  train: Place[]
  heldOut: Place[]
}

function placesOf(name: string): Place[] {
  const letters = [...name].map((letter) => letter.charCodeAt(0) - 96)
  return [...letters, END].map((next, i) => ({
    context: Array.from({ length: CONTEXT }, (_, j) => letters[i - CONTEXT + j] ?? END),
    next,
  }))
}

/** The lines of names.txt; one name in ten is kept out of training. */
export function names(text: string): Names {
  const all = text.trimEnd().split('\n')
  const heldOut = (i: number) => randomBits(0, 17, i) % 10n === 0n
  return {
    names: all,
    train: all.flatMap((name, i) => (heldOut(i) ? [] : placesOf(name))),
    heldOut: all.flatMap((name, i) => (heldOut(i) ? placesOf(name) : [])),
  }
}

/** The batch of step t = 1, 2, ...: a pure function of seed and t. */
export function batch(data: Names, seed: number, t: number): { letters: Int32Array; next: Int32Array } {
  const places = Array.from({ length: BATCH }, (_, row) => data.train[Number(randomBits(seed, t, row) % BigInt(data.train.length))] as Place)
  return { letters: Int32Array.from(places.flatMap(({ context }) => context)), next: Int32Array.from(places, ({ next }) => next) }
}

type Guess = (letters: Int32Array) => Promise<Float32Array>

/** Mean of -log p over the letters of the names kept out. */
export async function heldOutLoss(guess: Guess, { heldOut }: Names): Promise<number> {
  let sum = 0
  for (let first = 0; first < heldOut.length; first += TEST_BATCH) {
    const places = heldOut.slice(first, first + TEST_BATCH)
    const letters = new Int32Array(TEST_BATCH * CONTEXT)
    letters.set(places.flatMap(({ context }) => context))
    const logP = await guess(letters)
    places.forEach(({ next }, row) => (sum -= logP[row * LETTERS + next] as number))
  }
  return sum / heldOut.length
}

/** TEST_BATCH names, drawn letter by letter. */
export async function makeNames(guess: Guess, random: () => number = Math.random): Promise<string[]> {
  const made = Array.from({ length: TEST_BATCH }, () => '')
  const ended = made.map(() => false)
  const letters = new Int32Array(TEST_BATCH * CONTEXT)
  for (let i = 0; i < LONGEST && ended.includes(false); i++) {
    const logP = await guess(letters)
    made.forEach((name, row) => {
      let letter = 0
      for (let share = random(); letter < LETTERS - 1 && (share -= Math.exp(logP[row * LETTERS + letter] as number)) >= 0; ) letter++
      ended[row] ||= letter === END
      if (!ended[row]) made[row] = name + String.fromCharCode(96 + letter)
      const context = letters.subarray(row * CONTEXT, (row + 1) * CONTEXT)
      context.copyWithin(0, 1)
      context[CONTEXT - 1] = ended[row] ? END : letter
    })
  }
  return made
}
