// Reads safetensors files from their bytes: https://huggingface.co/docs/safetensors. Trusts nothing
// in them. Must not know a model.

import { ArgumentError, FormatError } from 'tensorgrad'

export interface SafetensorsData {
  /** The tensors of dtype F32, F16, BF16 and F64, by name, as f32: ready for `uploadParams`. */
  tensors: Record<string, Float32Array>
  /** The tensors of dtype I32, I16, I8, U16 and U8. */
  integers: Record<string, Int32Array>
  /** Of every tensor, those skipped too. */
  shapes: Record<string, number[]>
  /** The dtypes of the tensors that were not read: BOOL, I64, U32, U64, ... */
  skipped: Record<string, string>
  metadata: Record<string, string>
}

interface Entry {
  dtype: string
  shape: number[]
  begin: number
  end: number
}

const decoder = /* @__PURE__ */ new TextDecoder('utf-8', { fatal: true })
const MOST_HEADER = 100_000_000 // the limit of the format's own reader

/** sign, 5 bits of exponent, 10 of fraction */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15))
}

const word = /* @__PURE__ */ new DataView(new ArrayBuffer(4))
function brain(bits: number): number {
  word.setUint32(0, bits << 16)
  return word.getFloat32(0)
}

type Read = (view: DataView, at: number) => number
const floats: Readonly<Record<string, [bytes: number, read: Read]>> = {
  F32: [4, (view, at) => view.getFloat32(at, true)], F64: [8, (view, at) => view.getFloat64(at, true)],
  F16: [2, (view, at) => half(view.getUint16(at, true))], BF16: [2, (view, at) => brain(view.getUint16(at, true))],
}
const integers: Readonly<Record<string, [bytes: number, read: Read]>> = {
  I32: [4, (view, at) => view.getInt32(at, true)], I16: [2, (view, at) => view.getInt16(at, true)], U16: [2, (view, at) => view.getUint16(at, true)],
  I8: [1, (view, at) => view.getInt8(at)], U8: [1, (view, at) => view.getUint8(at)],
}

const refuse = (why: string): never => {
  throw new FormatError(`loadSafetensors: ${why}`)
}
const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

function headerOf(bytes: Uint8Array): { header: Record<string, unknown>; data: DataView } {
  if (bytes.length < 8) refuse(`${bytes.length} bytes are too few for the length of a header`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), length = view.getBigUint64(0, true)
  if (length > BigInt(Math.min(bytes.length - 8, MOST_HEADER))) refuse(`a header of ${length} bytes in a file of ${bytes.length}`)
  const end = 8 + Number(length)
  let header: unknown
  try {
    header = JSON.parse(decoder.decode(bytes.subarray(8, end)))
  } catch (error) {
    refuse(`the header is no JSON: ${(error as Error).message}`)
  }
  if (!isObject(header)) refuse('the header is no JSON object')
  return { header: header as Record<string, unknown>, data: new DataView(bytes.buffer, bytes.byteOffset + end, bytes.length - end) }
}

function entryOf(name: string, value: unknown, size: number): Entry {
  const { dtype, shape, data_offsets: offsets } = (isObject(value) ? value : {}) as Record<string, unknown>
  if (typeof dtype !== 'string') refuse(`${name} has no dtype`)
  if (!Array.isArray(shape) || !shape.every(isSize)) refuse(`the shape of ${name} is ${JSON.stringify(shape)}`)
  const [begin, end] = (Array.isArray(offsets) ? offsets : []) as unknown[]
  if (!isSize(begin) || !isSize(end) || begin > end || end > size) refuse(`${name} lies at ${JSON.stringify(offsets)} of ${size} bytes`)
  return { dtype: dtype as string, shape: shape as number[], begin: begin as number, end: end as number }
}

/** The tensors of a file that was read or fetched: `loadSafetensors(await (await
 *  fetch(url)).arrayBuffer())`. Throws a FormatError if the file is malformed. */
export function loadSafetensors(file: ArrayBuffer | Uint8Array): SafetensorsData {
  if (!(file instanceof ArrayBuffer) && !(file instanceof Uint8Array)) throw new ArgumentError('loadSafetensors: takes an ArrayBuffer or a Uint8Array')
  const { header, data } = headerOf(file instanceof Uint8Array ? file : new Uint8Array(file))
  const tensors: [string, Float32Array][] = [], whole: [string, Int32Array][] = [], shapes: [string, number[]][] = [], skipped: [string, string][] = []
  for (const [name, value] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const { dtype, shape, begin, end } = entryOf(name, value, data.byteLength), known = floats[dtype] ?? integers[dtype]
    shapes.push([name, shape])
    if (known === undefined) {
      skipped.push([name, dtype])
      continue
    }
    const [bytes, read] = known, count = shape.reduce((a, b) => a * b, 1)
    if (count * bytes !== end - begin) refuse(`${name}, ${dtype}[${shape.join(', ')}], has ${end - begin} bytes instead of ${count * bytes}`)
    const out = dtype in floats ? new Float32Array(count) : new Int32Array(count)
    for (let i = 0; i < count; i++) out[i] = read(data, begin + i * bytes)
    if (out instanceof Float32Array) tensors.push([name, out])
    else whole.push([name, out])
  }
  const metadata = isObject(header['__metadata__']) ? (header['__metadata__'] as Record<string, string>) : {}
  return {
    tensors: Object.fromEntries(tensors), integers: Object.fromEntries(whole), shapes: Object.fromEntries(shapes), skipped: Object.fromEntries(skipped), metadata,
  }
}
