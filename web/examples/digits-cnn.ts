// digits-cnn: a small convolutional network learns to read handwritten digits (MNIST, LeCun, Cortes & Burges).
//
//   image [B, 1, 28, 28] -> 12 channels -> [B, 12, 14, 14] -> 24 channels -> [B, 24, 7, 7] -> dropout -> logits [B, 10]
//
// The same model, batches and recipe as examples/digits_cnn.c: the same seed gives the same curve. The data's files come from
// scripts/get-data.

import { argmax, compileModule, lr, maxPool2d, Module, nn, relu, reshape, type CompileOptions, type Tensor } from 'tensorgrad'
import { randomBits } from './random.js'

export const BATCH = 64
export const TEST_BATCH = 200
export const SIDE = 28
export const STEPS = 1500
export const FILES = ['train-images-idx3-ubyte', 'train-labels-idx1-ubyte', 't10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte'] as const
const PIXELS = SIDE * SIDE
const SHIFT = 2 // pixels, at most

// ---------------------------------------------------------------- the model

export class Net extends Module {
  conv1 = new nn.Conv2d(1, 12, 5, { padding: 'same' })
  conv2 = new nn.Conv2d(12, 24, 5, { padding: 'same' })
  dropout = new nn.Dropout(0.25)
  output = new nn.Linear(24 * 7 * 7, 10)
}

/** image [B, 1, 28, 28] -> logits [B, 10]. */
export function network(m: Net, image: Tensor): Tensor {
  let h = maxPool2d(relu(m.conv1.fwd(image)), 2)
  h = maxPool2d(relu(m.conv2.fwd(h)), 2)
  return m.output.fwd(m.dropout.fwd(reshape(h, [-1, 24 * 7 * 7])))
}

/** The training model and the sibling that gives the likeliest digit. */
export async function compile(options: Pick<CompileOptions, 'seed' | 'device' | 'adapter' | 'threads'> = {}, rows: number = TEST_BATCH) {
  const model = await compileModule(() => new Net(), (m, { image, digit }) => nn.crossEntropy(network(m, image), digit, -1), {
    adam: { lr: lr.oneCycle({ peak: 0.004, steps: STEPS }), weightDecay: 0.01 },
    inputs: { image: { shape: [BATCH, 1, SIDE, SIDE] }, digit: { shape: [BATCH], dtype: 'i32' } },
    seed: 1,
    ...options,
  })
  const forward = await model.compileForward((m, { image }) => argmax(network(m, image), -1), {
    inputs: { image: { shape: [rows, 1, SIDE, SIDE] } },
  })
  return { model, forward }
}

// ---------------------------------------------------------------- the data

export interface Digits {
  images: Uint8Array
  labels: Uint8Array
  count: number
}

/** A pair of IDX files: magic number and sizes of four bytes, then a byte for each pixel or label. */
export function digits(images: Uint8Array, labels: Uint8Array): Digits {
  const count = labels.length - 8
  if (count < BATCH || images.length !== 16 + count * PIXELS) throw new Error('not the files of MNIST: 28 x 28 pixels, as many labels as images')
  return { images: images.subarray(16), labels: labels.subarray(8), count }
}

/** Pixels from 0 to 1, moved by (dx, dy), black where nothing comes from. */
function draw({ images }: Digits, at: number, dx: number, dy: number, image: Float32Array): void {
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++) {
      const fromX = x - dx, fromY = y - dy
      const inside = fromX >= 0 && fromX < SIDE && fromY >= 0 && fromY < SIDE
      image[y * SIDE + x] = inside ? (images[at * PIXELS + fromY * SIDE + fromX] as number) / 255 : 0
    }
}

/** The batch of step t = 1, 2, ...: a pure function of seed and t. */
export function batch(data: Digits, seed: number, t: number): { image: Float32Array; digit: Int32Array } {
  const image = new Float32Array(BATCH * PIXELS), digit = new Int32Array(BATCH)
  for (let row = 0; row < BATCH; row++) {
    const bits = randomBits(seed, t, row)
    const at = Number((bits >> 16n) % BigInt(data.count))
    const shift = (of: bigint) => Number(of % BigInt(2 * SHIFT + 1)) - SHIFT
    draw(data, at, shift(bits), shift(bits / 8n), image.subarray(row * PIXELS, (row + 1) * PIXELS))
    digit[row] = data.labels[at] as number
  }
  return { image, digit }
}

/** Which share of digits is read right, TEST_BATCH at a time. */
export async function accuracy(read: (image: Float32Array) => Promise<Int32Array>, data: Digits): Promise<number> {
  const image = new Float32Array(TEST_BATCH * PIXELS)
  let right = 0, seen = 0
  for (; seen + TEST_BATCH <= data.count; seen += TEST_BATCH) {
    for (let i = 0; i < TEST_BATCH; i++) draw(data, seen + i, 0, 0, image.subarray(i * PIXELS, (i + 1) * PIXELS))
    const said = await read(image)
    for (let i = 0; i < TEST_BATCH; i++) right += Number(said[i] === data.labels[seen + i])
  }
  return right / seen
}
