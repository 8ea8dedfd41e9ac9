// SplitMix64 (Steele, Lea & Flood 2014) as a hash: number i of batch t under a seed, 64 bits. The same numbers as examples/*.c.

const MASK = (1n << 64n) - 1n
const STEPS = { seed: 0x9e3779b97f4a7c15n, t: 0xd1b54a32d192ed03n, i: 0x8cb92ba72f3d8dd7n }

export function randomBits(seed: number, t: number, i: number): bigint {
  let z = (BigInt(seed) * STEPS.seed + BigInt(t) * STEPS.t + BigInt(i) * STEPS.i + STEPS.seed) & MASK
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK
  return z ^ (z >> 31n)
}
