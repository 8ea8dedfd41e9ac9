// Inflate (RFC 1951): unpacks the core that is inlined in the one-file build, at once. Trusts its input, which the build made.

/** Lengths of the codes of each symbol -> counts by length, and symbols ordered by code. */
function huffman(lengths: readonly number[]): { counts: number[]; symbols: number[] } {
  const counts = new Array<number>(16).fill(0), symbols: number[] = []
  for (const length of lengths) counts[length]!++
  counts[0] = 0
  for (let bits = 1; bits < 16; bits++) lengths.forEach((length, symbol) => length === bits && symbols.push(symbol))
  return { counts, symbols }
}

/** Base and number of extra bits of the 29 match lengths and the 30 distances. */
function ranges(count: number, first: number, step: number): [base: number[], extra: number[]] {
  const base: number[] = [], extra: number[] = []
  for (let i = 0, at = first; i < count; i++) {
    const bits = Math.max(0, Math.floor(i / step) - 1)
    base.push(at)
    extra.push(bits)
    at += 1 << bits
  }
  return [base, extra]
}
const [lengthBase, lengthExtra] = ranges(29, 3, 4)
const [distanceBase, distanceExtra] = ranges(30, 1, 2)
lengthBase[28] = 258
lengthExtra[28] = 0
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]
const fixed = [huffman(Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8))), huffman(new Array<number>(30).fill(5))]

export function inflate(data: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(size)
  let at = 0, bit = 0, end = 0

  const bits = (count: number): number => {
    let value = 0
    for (let i = 0; i < count; i++, bit++) value |= ((data[bit >> 3]! >> (bit & 7)) & 1) << i
    return value
  }
  const symbol = ({ counts, symbols }: ReturnType<typeof huffman>): number => {
    let code = 0, first = 0, index = 0
    for (let length = 1; ; length++) {
      code |= (data[bit >> 3]! >> (bit & 7)) & 1
      bit++
      const count = counts[length]!
      if (code - count < first) return symbols[index + code - first]!
      index += count
      first = (first + count) << 1
      code <<= 1
    }
  }
  const dynamic = () => {
    const literals = bits(5) + 257, distances = bits(5) + 1, codes = bits(4) + 4
    const lengths = new Array<number>(19).fill(0)
    for (let i = 0; i < codes; i++) lengths[CODE_ORDER[i]!] = bits(3)
    const code = huffman(lengths), all: number[] = []
    while (all.length < literals + distances) {
      const next = symbol(code)
      const [value, count] = next < 16 ? [next, 1] : next === 16 ? [all.at(-1)!, bits(2) + 3] : [0, next === 17 ? bits(3) + 3 : bits(7) + 11]
      for (let i = 0; i < count; i++) all.push(value)
    }
    return [huffman(all.slice(0, literals)), huffman(all.slice(literals))]
  }
  const stored = () => {
    bit = (bit + 7) & ~7
    const count = bits(16)
    bit += 16
    out.set(data.subarray(bit >> 3, (bit >> 3) + count), at)
    at += count
    bit += count * 8
  }
  const block = ([literal, distance]: ReturnType<typeof huffman>[]) => {
    for (let next = symbol(literal!); next !== 256; next = symbol(literal!)) {
      if (next < 256) {
        out[at++] = next
        continue
      }
      const length = lengthBase[next - 257]! + bits(lengthExtra[next - 257]!)
      const far = symbol(distance!)
      for (let from = at - distanceBase[far]! - bits(distanceExtra[far]!), left = length; left > 0; left--) out[at++] = out[from++]!
    }
  }
  while (end === 0) {
    end = bits(1)
    const kind = bits(2)
    if (kind === 0) stored()
    else block(kind === 1 ? fixed : dynamic())
  }
  return out
}
