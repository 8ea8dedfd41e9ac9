// Packs a compiled core for the one-file build: the other half of src/unpack.ts, whose model it runs.
import { readFileSync } from 'node:fs'
import { transformSync } from 'esbuild'

const source = transformSync(readFileSync(new URL('./src/unpack.ts', import.meta.url), 'utf8'), { loader: 'ts', format: 'esm', target: 'es2022' }).code
const { model, unpack } = await import(`data:text/javascript;base64,${Buffer.from(source).toString('base64')}`)

/** Where the functions' bodies lie: [begin, end). */
function bodies(wasm) {
  const number = (at) => {
    let value = 0, shift = 0
    for (; ; shift += 7) {
      value |= (wasm[at] & 127) << shift
      if (wasm[at++] < 128) return [value, at]
    }
  }
  for (let at = 8; at < wasm.length;) {
    const [size, begin] = number(at + 1)
    if (wasm[at] === 10) return [number(begin)[1], begin + size]
    at = begin + size
  }
  throw new Error('a module without code')
}

/** Throws where unpacking would not give the same again. */
export function pack(wasm) {
  const [begin, end] = bodies(wasm), bytes = [...new Uint8Array(Uint32Array.of(wasm.length, begin, end).buffer)]
  let low = 0, high = 0xffffffff, n = 0
  model(wasm.length, begin, end, (p) => {
    const middle = low + Math.floor((high - low) / 65536 * p), bit = (wasm[n >> 3] >> (7 - (n & 7))) & 1
    n++
    if (bit) high = middle
    else low = middle + 1
    for (; ((low ^ high) >>> 24) === 0; low = (low << 8) >>> 0, high = ((high << 8) | 255) >>> 0) bytes.push(high >>> 24)
    return bit
  })
  for (let i = 24; i >= 0; i -= 8) bytes.push((high >>> i) & 255)
  const packed = Uint8Array.from(bytes)
  if (Buffer.compare(unpack(packed), wasm) !== 0) throw new Error('pack.mjs: what was packed does not unpack to the same')
  return packed
}
if (process.argv[1] === new URL(import.meta.url).pathname) for (const file of process.argv.slice(2)) {
  const t = process.cpuUsage().user, w = readFileSync(file)
  const p = pack(w)
  console.log(file, p.length, (process.cpuUsage().user - t) / 2e3 | 0, 'ms cpu each way')
}
