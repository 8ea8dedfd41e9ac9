// Unpacks the core's bytes in the one-file build, which web/pack.mjs has packed with the model
// below. The model predicts every bit from those before it: byte by byte and, within functions,
// instruction by instruction. Packing and unpacking run the same model and must agree to the last
// bit, so its arithmetic is only + - * /, which are the same in every engine. Knows WebAssembly's
// binary format, but no other module. `model` is one function whose parts share the variables that
// they close over. Written as classes with fields it took about 50 % longer.

const CONTEXTS = 11, LINES = 16, COUNT_LIMIT = 255, NEW = 1 << 30, HEADER = 12 // LINES: bits of their number
const OPCODE = 0, INDEX = 1, IMMEDIATE = 2, EXTENDED = 3, FUNCTION = 4, OUTSIDE = 5 // what the next byte is

const hash = (a: number, b: number): number => {
  a = Math.imul(a + Math.imul(b, 0x9e3779b1) + 0x7f4a7c15, 0x2c1b3c6d)
  return a ^ (a >>> 15)
}
const squash = (x: number): number => { // 1 / (1 + e^-x), nearly
  let power = 1 - x / 1024
  for (let i = 0; i < 10; i++) power *= power
  return 1 / (1 + power)
}
const between = (x: number, low: number, high: number): number => (x < low ? low : x > high ? high : x)

/** Codes `size` bytes, of which those of functions' bodies (without their number and sizes) are
 *  from `begin` to `end`. `code` codes each bit, which is 1 with probability p / 65536. `starts`
 *  receives where each body begins and where the last one ends. */
export function model(size: number, begin: number, end: number, code: (p: number) => number, starts: number[]): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(size)
  let position = 0

  // ---- where in the module the next byte is
  let kind = OUTSIDE, op = 0, at = 0 // at: which operand of the instruction is next
  let indices = 0, immediates = 0 // operands it still has
  let value = 0, shift = 0 // of the number that is being read
  let depth = 0, body = 0, header = 0, locals = 0
  let local = 0, instruction = 0, instructionBefore = 0 // whole
  const ops = new Int32Array(7), last = new Int32Array(512) // instructions before, newest first; the last operand of each sort

  const operands = (numbers: number, bytes: number) => {
    at = value = shift = 0
    indices = numbers
    immediates = bytes
    kind = numbers > 0 ? INDEX : bytes > 0 ? IMMEDIATE : OPCODE
  }
  const enter = () => {
    kind = FUNCTION
    header = value = shift = 0
    starts.push(position)
  }
  const takeOpcode = (byte: number) => {
    ops.copyWithin(1, 0)
    ops[0] = op = byte
    if (byte > 0xfb) operands(0, 0), kind = EXTENDED
    else if (byte === 0x0b) depth-- || enter() // end
    else if (byte === 0x11 || (byte > 0x27 && byte < 0x3f)) operands(2, 0) // call_indirect, loads, stores
    else if (byte > 1 && byte < 5) depth++, operands(1, 0) // block, loop, if
    else if ((byte > 0x0b && byte < 0x11 && byte !== 0x0f) || (byte > 0x1f && byte < 0x25) || (byte > 0x3e && byte < 0x43)) operands(1, 0)
    else if (byte === 0x43 || byte === 0x44) operands(0, byte === 0x43 ? 4 : 8)
  }
  const takeNumber = () => {
    if (kind === EXTENDED) {
      const number = value
      const isSimd = op === 0xfd
      ops[0] = op = 256 + (number & 255)
      if (!isSimd) operands(0, number === 10 ? 2 : number === 11 ? 1 : 0)
      else if (number < 12 || (number > 83 && number < 94)) operands(2, number > 83 && number < 92 ? 1 : 0)
      else operands(0, number < 14 ? 16 : number > 20 && number < 35 ? 1 : 0)
    } else if (kind === FUNCTION) { // groups of locals: their number, then a count and a type each
      if (header++ === 0) locals = 2 * value
      else locals--
      if (locals === 0) {
        operands(0, 0)
        body++
        ops.copyWithin(1, 0)
        ops[0] = 511
        local = depth = 0
      }
    } else {
      if (op === 0x0e && at === 0) indices += value + 1 // br_table
      if (op > 0x1f && op < 0x23) local = value
      if (indices === 1) last[op] = value
      at++
      if (--indices === 0) kind = immediates > 0 ? IMMEDIATE : OPCODE
    }
    value = shift = 0
  }
  const take = (byte: number) => {
    if (kind === OPCODE) takeOpcode(byte)
    else if (kind === IMMEDIATE) {
      at++
      if (--immediates === 0) kind = OPCODE
    } else if (kind !== OUTSIDE) {
      if (shift < 28) value |= (byte & 127) << shift
      shift += 7
      if (byte < 128) takeNumber()
    }
  }

  // ---- contexts: each a hash of some of what is known
  const contexts = new Int32Array(CONTEXTS), orders = new Int32Array(7) // orders: of the last n bytes
  let count = 0, place = 0, word = 0
  const before = (n: number): number => out[position - n]! | 0
  const add = (context: number) => (contexts[count] = hash(context, count++))
  const contextsOfCode = () => {
    place = hash(hash(kind === OPCODE ? 0 : op + 1, at * 8 + shift), kind)
    const part = hash(place, shift > 0 ? value : 0)
    add(part)
    add(hash(place, orders[1]!))
    add(orders[3]!)
    add(hash(instruction, instructionBefore))
    let history = ops[0]!
    for (let i = 1; i < 6; i++) {
      history = hash(history, ops[i]!)
      if (i !== 4) add(hash(part, history))
    }
    add(hash(part, last[op]!))
    add(hash(part, body))
    add(hash(part, hash(body, local)))
  }
  const contextsOfText = () => {
    place = 0
    for (let i = 1; i < 7; i++) add(orders[i]!)
    add(word)
    add(hash(word, before(1)))
    add(hash(before(2), before(3)))
    add(hash(before(4), before(1)))
    add(hash(before(4), before(8)))
  }

  // ---- the model. A line is a mark of its owner and 15 slots for four bits of a byte. A slot
  // holds how likely a 1 is and how often it was used. Guesses are weighed by the sort of byte and
  // by how sure each is, added as logits, and refined by how well such a sum predicted before.
  const INPUTS = CONTEXTS + 1, SURE = 9, SET = 512 * INPUTS * SURE, STEPS = 33
  const REPEATS = CONTEXTS * 16 << LINES, slots = new Int32Array(REPEATS + 64).fill(NEW, REPEATS) // 23 bits and 8; at the end of matches
  const weights = new Float64Array(3 * SET).fill(0.07), inputs = new Float64Array(INPUTS), sures = new Int32Array(INPUTS), asked = new Int32Array(INPUTS)
  const refined = new Float32Array(2 * 65536 * STEPS), logits = new Float64Array(4096), lines = new Int32Array(CONTEXTS)
  const rates = Float64Array.from({ length: 256 }, (_, i) => 1 / (i + 1.15))
  const sureness = Uint8Array.from({ length: 256 }, (_, i) => (i < 4 ? i : i < 6 ? 4 : i < 10 ? 5 : i < 20 ? 6 : i < 60 ? 7 : 8))
  for (let i = 2048; i < 4096; i++) { // log(p / (1 - p)), its derivative summed
    const p = i / 4096
    logits[i] = logits[i - 1]! + 1 / 4096 / (p * (1 - p))
    logits[4095 - i] = -logits[i]!
  }
  for (let i = 0; i < refined.length; i++) refined[i] = squash(((i % STEPS) - 16) / 2)
  const seen = new Int32Array(1 << 18)
  let matchAt = 0, matchLength = 0

  const match = () => { // where the last five bytes were seen last: what followed may follow again
    const key = orders[5]! >>> 14
    if (matchLength > 0 && out[matchAt] === before(1)) matchLength++, matchAt++
    else matchLength = 0
    if (matchLength === 0) {
      matchAt = seen[key]!
      while (matchLength < 31 && matchLength < matchAt && out[matchAt - 1 - matchLength] === before(matchLength + 1)) matchLength++
      if (matchLength < 4) matchLength = 0
    }
    seen[key] = position
  }
  const findLines = (known: number) => {
    for (let i = 0; i < count; i++) {
      let key = Math.imul(hash(contexts[i]!, known), 0x5bd1e995)
      key ^= key >>> 13
      const line = lines[i] = ((i << LINES) + (key >>> (32 - LINES))) << 4, mark = (key & 65535) || 1
      if (slots[line] !== mark) {
        slots.fill(NEW, line, line + 16)
        slots[line] = mark
      }
    }
  }

  const codeByte = () => {
    const guess = matchLength > 0 ? out[matchAt]! | 256 : 0, isOpcode = kind === OPCODE, near = hash(place, before(1)), contexts = count
    const sort = kind * 8 + (at < 3 ? at : 3) * 2 + (shift > 0 ? 1 : 0)
    const sortOp = isOpcode ? 256 + (ops[0]! & 255) : kind === OUTSIDE ? 511 : op & 255
    const set0 = sort * INPUTS * SURE, set1 = SET + sortOp * INPUTS * SURE
    let known = 1
    for (let left = 7; left >= 0; left--) {
      if (left === 7 || left === 3) findLines(known)
      const node = left > 3 ? known : (known & ((1 << (3 - left)) - 1)) | (1 << (3 - left))
      const set2 = 2 * SET + ((known & 255) + (isOpcode ? 0 : 256)) * INPUTS * SURE
      let sum = 0, used = contexts
      for (let i = 0; i < contexts; i++) asked[i] = lines[i]! + node
      if (guess >> (left + 1) === known) asked[used++] = REPEATS + (matchLength < 31 ? matchLength : 31) * 2 + ((guess >> left) & 1)
      for (let i = 0; i < used; i++) {
        const slot = slots[asked[i]!]!
        const sure = (i < contexts ? sureness[slot & 255]! : 1 + (matchLength > 31 ? 7 : matchLength >> 2)) + i * SURE
        sures[i] = sure
        sum += (weights[set0 + sure]! + weights[set1 + sure]! + weights[set2 + sure]!) * (inputs[i] = logits[slot >> 19]!)
      }
      const p = squash(sum), step = (between(sum, -7.99, 7.99) + 8) * 2, below = step | 0, part = step - below
      const rough = ((sort << 8) | known) * STEPS + below, fine = (65536 + (hash(near, known) >>> 16)) * STEPS + below
      const refinedP = refined[rough]! * (1 - part) + refined[rough + 1]! * part
        + (refined[fine]! * (1 - part) + refined[fine + 1]! * part) * 2
      const bit = code(between(((p + refinedP) * 16384) | 0, 1, 65535))
      refined[rough]! += (bit - refined[rough]!) * 0.04 * (1 - part)
      refined[rough + 1]! += (bit - refined[rough + 1]!) * 0.04 * part
      refined[fine]! += (bit - refined[fine]!) * 0.04 * (1 - part)
      refined[fine + 1]! += (bit - refined[fine + 1]!) * 0.04 * part
      const learn = (bit - p) * 0.003, target = bit * 0x7fffff
      for (let i = 0; i < used; i++) {
        const slot = slots[asked[i]!]!, times = slot & 255, step = learn * inputs[i]!, sure = sures[i]!, chance = slot >> 8
        weights[set0 + sure]! += step
        weights[set1 + sure]! += step
        weights[set2 + sure]! += step
        slots[asked[i]!] = ((chance + (target - chance) * rates[times]!) << 8) | (times < COUNT_LIMIT ? times + 1 : times)
      }
      known = known * 2 + bit
    }
    return known & 255
  }

  while (position < size) {
    if (position === begin) enter()
    if (position === end) kind = OUTSIDE
    for (let i = 1; i < 7; i++) orders[i] = hash(orders[i - 1]!, before(i))
    count = 0
    if (kind === OUTSIDE) contextsOfText()
    else contextsOfCode()
    match()
    const byte = out[position++] = codeByte()
    instruction = hash(instruction, byte)
    take(byte)
    if (kind === OPCODE) instructionBefore = instruction, instruction = 0
    word = (byte | 32) > 96 && (byte | 32) < 123 ? hash(word, byte) : 0
  }
  return out
}

/** Unpacks the output of pack.mjs: three numbers for the model, then the bits, as a range that
 *  every bit narrows. */
export function unpack(packed: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const [size, begin, end] = new Uint32Array(packed.slice(0, HEADER).buffer) as unknown as [number, number, number]
  let low = 0, high = 0xffffffff, window = 0, at = HEADER
  const shift = () => (window = ((window << 8) | packed[at++]!) >>> 0)
  for (let i = 0; i < 4; i++) shift()
  const starts: number[] = []
  const bytes = model(size, begin, end, (p) => {
    const middle = low + Math.floor((high - low) / 65536 * p), bit = window <= middle ? 1 : 0
    if (bit) high = middle
    else low = middle + 1
    for (; ((low ^ high) >>> 24) === 0; shift()) {
      low = (low << 8) >>> 0
      high = ((high << 8) | 255) >>> 0
    }
    return bit
  }, starts)
  const out = [...bytes.subarray(0, begin)] // the bodies' sizes again
  for (let i = 1; i < starts.length; i++) {
    let left = starts[i]! - starts[i - 1]!
    for (; left > 127; left >>= 7) out.push((left & 127) | 128)
    out.push(left, ...bytes.subarray(starts[i - 1], starts[i]))
  }
  return Uint8Array.from([...out, ...bytes.subarray(end)])
}

/** The same from base64. */
export function unpackText(text: string): Uint8Array<ArrayBuffer> {
  return unpack(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)))
}
