// Numbers for the core: turns named values into the doubles that web/core/boundary.gen.c reads, in
// the order of a layout. Must not know an operation or a struct: those are in boundary.gen.ts.

import { layouts, opLayouts, type OpName, type OpNumbers } from './boundary.gen.js'

type Value = number | boolean | bigint | string | readonly number[] | object | null | undefined
/** The names of a layout, each with what follows it there. */
type Layout = readonly (readonly [name: string, more: string])[]

const parsed = (layout: string): Layout => [...layout.matchAll(/(\w+)(\S*)/g)].map(([, name = '', more = '']) => [name, more])
const counted = (values: readonly number[]): number[] => [values.length, ...values]
/** The low and the high 32 bits. */
export function halves(value: bigint): [low: number, high: number] {
  const bits = BigInt.asUintN(64, value)
  return [Number(bits & 0xffffffffn), Number(bits >> 32n)]
}

function numbersOf(value: Value, more: string): number | number[] {
  switch (more[0]) {
    case undefined:
      return Number(value ?? 0)
    case '!':
      return halves((value ?? 0n) as bigint)
    case '$':
      return counted(Array.from(value as string, (c) => c.charCodeAt(0)))
    case ':':
      return packed((value ?? {}) as object, parsed(layouts[more.slice(1) as keyof typeof layouts]))
    default: {
      const count = Number(more.slice(1, -1)), values = value as readonly number[] | null | undefined
      if (count === 0) return values == null ? [-1] : counted(values)
      return Array.from({ length: count }, (_, i) => values?.[i] ?? 0)
    }
  }
}

const packed = (values: object, layout: Layout): number[] =>
  layout.flatMap(([name, more]) => numbersOf((values as Readonly<Record<string, Value>>)[name], more))

/** The numbers of a struct. A field that is left out is 0. */
export const pack = (struct: keyof typeof layouts, values: object): number[] => packed(values, parsed(layouts[struct]))

let operations: ReadonlyMap<string, { readonly number: number; readonly layout: Layout }> | null = null

function readOperations(): NonNullable<typeof operations> {
  const found = new Map<string, { number: number; layout: Layout }>()
  for (const group of opLayouts.split('|')) {
    const [names = '', fields = ''] = group.split('/'), layout = parsed(fields)
    for (const name of names.split(' ')) found.set(name, { number: found.size, layout })
  }
  return found
}

/** The number of an operation in the core, and the numbers that it takes. */
export function packOp<O extends OpName>(op: O, values: OpNumbers[O]): { number: number; numbers: number[] } {
  operations ??= readOperations()
  const { number, layout } = operations.get(op) as { number: number; layout: Layout }
  return { number, numbers: packed(values, layout) }
}
