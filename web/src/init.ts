// Initial values: what a parameter begins with. Values are made by the core, from the seed and the parameter's name.

import { ArgumentError, blame, given } from './errors.js'

/** Plain data. scale: the standard deviation (randn), the gain (kaiming: std = gain / sqrt(shape[0])), the bound (uniform). */
export type InitSpec =
  | { readonly kind: 'randn'; readonly scale: number }
  | { readonly kind: 'zeros' }
  | { readonly kind: 'ones' }
  | { readonly kind: 'kaiming'; readonly gain: number }
  | { readonly kind: 'uniform'; readonly bound: number }
  | { readonly kind: 'literal'; readonly data: Float32Array }
export type Init = 'randn' | 'zeros' | 'ones' | InitSpec

export const DEFAULT_STD = 0.02

export const init = {
  /** Normal with mean 0; std 0.02 unless said. */
  randn: ({ scale = DEFAULT_STD }: { scale?: number } = {}): InitSpec => ({ kind: 'randn', scale }),
  zeros: (): InitSpec => ({ kind: 'zeros' }),
  ones: (): InitSpec => ({ kind: 'ones' }),
  /** Normal, std = gain / sqrt(shape[0]): for layers followed by a ReLU. */
  kaiming: ({ gain = Math.SQRT2 }: { gain?: number } = {}): InitSpec => ({ kind: 'kaiming', gain }),
  /** Uniform in [-bound, bound). */
  uniform: ({ bound }: { bound: number }): InitSpec => ({ kind: 'uniform', bound }),
  /** These values (copied now), row-major. */
  literal,
}

function literal(data: Float32Array): InitSpec {
  if (!(data instanceof Float32Array)) throw blame(new ArgumentError('init.literal: the values are no Float32Array'), literal)
  return { kind: 'literal', data: data.slice() }
}

/** C's tg_init_kind and scale. */
export function initNumbers(value: Init | undefined): { kind: number; scale: number; data: Float32Array | null } {
  const spec: InitSpec = value === undefined || value === 'randn' ? init.randn() : typeof value === 'string' ? { kind: value } : value
  switch (spec.kind) {
    case 'randn':
      return { kind: 0, scale: given('param', 'the scale of its initial value', spec.scale), data: null }
    case 'zeros':
      return { kind: 1, scale: 0, data: null }
    case 'ones':
      return { kind: 2, scale: 0, data: null }
    case 'kaiming':
      return { kind: 3, scale: given('param', 'the gain of its initial value', spec.gain), data: null }
    case 'uniform':
      return { kind: 4, scale: spec.bound, data: null }
    case 'literal':
      return { kind: 5, scale: 0, data: spec.data }
    default:
      throw new ArgumentError(`param: the initial value is ${JSON.stringify(value)}: one of init.*, 'randn', 'zeros' or 'ones'`)
  }
}
