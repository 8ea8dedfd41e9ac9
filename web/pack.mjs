// Packs a compiled core for the one-file build: the other half of src/unpack.ts, whose model it runs.
import { readFileSync } from 'node:fs'
import { transformSync } from 'esbuild'

const source = readFileSync(new URL('./src/unpack.ts', import.meta.url), 'utf8')
const { code } = transformSync(source, { loader: 'ts', target: 'es2022' })
const { model, unpack } = await import(`data:text/javascript;base64,${Buffer.from(code).toString('base64')}`)

/** [value, what follows it] of the number at `at`. */
function number(wasm, at) {
  for (let value = 0, shift = 0; ; shift += 7) {
    value |= (wasm[at] & 127) << shift
    if (wasm[at++] < 128) return [value, at]
  }
}

/** The module without the sizes of its functions' bodies, which unpacking works out again; the bodies are [begin, end). */
function withoutSizes(wasm) {
  let at = 8
  while (wasm[at] !== 10) {
    if (at >= wasm.length) throw new Error('pack.mjs: a module without code')
    const [size, begin] = number(wasm, at + 1)
    at = begin + size
  }
  let [count, next] = number(wasm, number(wasm, at + 1)[1])
  const begin = next, parts = [wasm.subarray(0, next)]
  for (; count > 0; count--) {
    const [size, body] = number(wasm, next)
    parts.push(wasm.subarray(body, next = body + size))
  }
  const end = parts.reduce((sum, part) => sum + part.length, 0)
  return { bytes: Buffer.concat([...parts, wasm.subarray(next)]), begin, end }
}

/** Throws where unpacking would not give the same again. */
export function pack(wasm) {
  const { bytes, begin, end } = withoutSizes(wasm), out = [...new Uint8Array(Uint32Array.of(bytes.length, begin, end).buffer)]
  let low = 0, high = 0xffffffff, n = 0
  model(bytes.length, begin, end, (p) => {
    const middle = low + Math.floor((high - low) / 65536 * p), bit = (bytes[n >> 3] >> (7 - (n & 7))) & 1
    n++
    if (bit) high = middle
    else low = middle + 1
    for (; ((low ^ high) >>> 24) === 0; low = (low << 8) >>> 0, high = ((high << 8) | 255) >>> 0) out.push(high >>> 24)
    return bit
  }, [])
  for (let i = 24; i >= 0; i -= 8) out.push((high >>> i) & 255)
  const packed = Uint8Array.from(out)
  if (Buffer.compare(unpack(packed), wasm) !== 0) throw new Error('pack.mjs: what was packed does not unpack to the same')
  return packed
}
