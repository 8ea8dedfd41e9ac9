// char-gru: a recurrent network learns to write like a novel (Moby Dick), one character at a time.
//
//   characters [B, 32] -> embedding [B, 32, 32] -> GRU (Cho et al. 2014) [B, 32, 128] -> logits [B, 32, 96]
//
// While training it reads 32 pieces of 32 characters from a state of zeros; when it writes, a sibling takes one character at a time and
// keeps its state. The same model, batches and recipe as examples/char_gru.c: the same seed gives the same curve. novel.txt comes from
// scripts/get-data.

import { capture, compileModule, embedding, init, lr, Module, nn, type CompileOptions } from 'tensorgrad'
import { randomBits } from './random.js'

export const BATCH = 32
export const T = 32
export const HIDDEN = 128
export const CHARACTERS = 96
export const STEPS = 1500
const WIDTH = 32
const NEWLINE = CHARACTERS - 1 // characters from ' ' to '~' count from 0; then the end of a line

// ---------------------------------------------------------------- the model

export class Net extends Module {
  embedding = this.param([CHARACTERS, WIDTH], { init: init.randn({ scale: 0.3 }) })
  gru = new nn.GRU(WIDTH, HIDDEN)
  output = new nn.Linear(HIDDEN, CHARACTERS, { init: init.kaiming({ gain: 1 }) })
}

/** The training model and the sibling that reads one character in each of `rows` texts: its logits, and the states after it as a capture. */
export async function compile(options: Pick<CompileOptions, 'seed' | 'device' | 'adapter' | 'threads'> = {}, rows = 1) {
  const model = await compileModule(
    () => new Net(),
    (m, { text, next }) => nn.crossEntropy(m.output.fwd(m.gru.fwd(embedding(m.embedding, text))), next, -1),
    {
      adam: { lr: lr.cosineDecay({ peak: 0.005, final: 0.0003, steps: STEPS }), clipNorm: 1 },
      inputs: { text: { shape: [BATCH, T], dtype: 'i32' }, next: { shape: [BATCH, T], dtype: 'i32' } },
      seed: 1,
      ...options,
    },
  )
  const forward = await model.compileForward(
    (m, { character, state }) => m.output.fwd(capture('state', m.gru.step(embedding(m.embedding, character), state))),
    { inputs: { character: { shape: [rows], dtype: 'i32' }, state: { shape: [rows, HIDDEN] } } },
  )
  return { model, forward }
}

// ---------------------------------------------------------------- the data

/** The novel as numbers 0 to 95. */
export function encode(text: string): Uint8Array {
  return Uint8Array.from(text, (character) => (character === '\n' ? NEWLINE : character.charCodeAt(0) - 32))
}
export function decode(characters: Iterable<number>): string {
  return Array.from(characters, (character) => (character === NEWLINE ? '\n' : String.fromCharCode(32 + character))).join('')
}

/** The batch of step t = 1, 2, ...: a pure function of seed and t. The last tenth of the novel is kept out. */
export function batch(novel: Uint8Array, seed: number, t: number): { text: Int32Array; next: Int32Array } {
  const text = new Int32Array(BATCH * T), next = new Int32Array(BATCH * T)
  const places = BigInt(Math.floor(novel.length / 10) * 9 - T)
  for (let row = 0; row < BATCH; row++) {
    const at = Number(randomBits(seed, t, row) % places)
    text.set(novel.subarray(at, at + T), row * T)
    next.set(novel.subarray(at + 1, at + T + 1), row * T)
  }
  return { text, next }
}

type Reader = Awaited<ReturnType<typeof compile>>['forward']

/** Goes on from a beginning, in the first of the texts that `forward` reads. */
export async function write(forward: Reader, beginning: string, length: number, temperature = 0.7, random: () => number = Math.random): Promise<string> {
  const rows = forward.outputShape[0] as number
  const written = [...encode(beginning)]
  const character = new Int32Array(rows)
  let state = new Float32Array(rows * HIDDEN)
  for (let i = 0; i < beginning.length + length - 1; i++) {
    character[0] = written[i] as number
    const { output, captures } = await forward.run({ character, state }, { withCaptures: true })
    state = captures.get('state') as Float32Array<ArrayBuffer>
    if (i + 1 === written.length) written.push(choose((output as Float32Array).subarray(0, CHARACTERS), temperature, random()))
  }
  return decode(written)
}

/** Softmax at a temperature, then the character at that share of the whole. */
function choose(logits: Float32Array, temperature: number, share: number): number {
  const most = Math.max(...logits)
  const weights = Array.from(logits, (logit) => Math.exp((logit - most) / temperature))
  let left = share * weights.reduce((a, b) => a + b, 0)
  const at = weights.findIndex((weight) => (left -= weight) < 0)
  return at < 0 ? CHARACTERS - 1 : at
}
