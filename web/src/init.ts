// Initial values of parameters. The core makes the values, from the seed and the parameter's name.

import { defaults, InitKind } from './boundary.gen.js'
import { ArgumentError, blame } from './errors.js'
import { anything, check, checkOptions, fromZero, type Kinds } from './options.js'

/** Plain data. scale: the standard deviation (randn), default 0.02. gain (kaiming: std = gain /
 *  sqrt(shape[0])), default sqrt 2. bound (uniform). A name alone stands for its defaults. */
export type InitSpec =
  | 'randn'
  | 'zeros'
  | 'ones'
  | { readonly kind: 'randn'; readonly scale?: number }
  | { readonly kind: 'zeros' }
  | { readonly kind: 'ones' }
  | { readonly kind: 'kaiming'; readonly gain?: number }
  | { readonly kind: 'uniform'; readonly bound: number }
  | { readonly kind: 'literal'; readonly data: Float32Array }
/** The same. */
export type Init = InitSpec

export const DEFAULT_STD = defaults.init.randn

/** The options of each kind. */
const fields: Readonly<Record<string, Kinds>> = { randn: { scale: fromZero }, kaiming: { gain: fromZero }, uniform: { bound: fromZero }, literal: { data: anything } }

export const init = {
  /** Normal with mean 0; std 0.02 unless said, 0: zeros. */
  randn,
  zeros: (): InitSpec => ({ kind: 'zeros' }),
  ones: (): InitSpec => ({ kind: 'ones' }),
  /** Normal, std = gain / sqrt(shape[0]): for layers followed by a ReLU. */
  kaiming,
  /** Uniform in [-bound, bound). */
  uniform,
  /** These values (copied now), row-major. */
  literal,
}

function randn(options: { scale?: number } = {}): InitSpec {
  return { kind: 'randn', scale: DEFAULT_STD, ...check(randn, () => checkOptions('init.randn', options, fields['randn']!)) }
}

function kaiming(options: { gain?: number } = {}): InitSpec {
  return { kind: 'kaiming', gain: defaults.init.kaiming, ...check(kaiming, () => checkOptions('init.kaiming', options, fields['kaiming']!)) }
}

function uniform(options: { bound: number }): InitSpec {
  const { bound } = check(uniform, () => checkOptions('init.uniform', options, fields['uniform']!))
  if (bound === undefined) throw blame(new ArgumentError('init.uniform: there is no bound'), uniform)
  return { kind: 'uniform', bound }
}

function literal(data: Float32Array): InitSpec {
  if (!(data instanceof Float32Array)) throw blame(new ArgumentError('init.literal: the values are no Float32Array'), literal)
  return { kind: 'literal', data: data.slice() }
}

type Spec = Exclude<InitSpec, string>
const named = ['randn', 'zeros', 'ones'] as const

/** C's tg_init_kind and scale. decays: whether weight decay acts on it by default; undefined means
 *  the core's rule. */
export function initNumbers(value: InitSpec = 'randn'): { kind: number; scale: number; data: Float32Array | null; decays: true | undefined } {
  const isName = typeof value === 'string', known: readonly unknown[] = isName ? named : Object.keys(InitKind)
  if (!known.includes(isName ? value : value?.kind)) throw new ArgumentError(`param: the initial value is ${JSON.stringify(value)}: one of init.*, 'randn', 'zeros' or 'ones'`)
  if (!isName) checkOptions('param: the initial value', value as object, { kind: anything, ...fields[(value as Spec).kind] })
  const spec = (isName ? { kind: value } : value) as Spec, data = spec.kind === 'literal' ? spec.data : null
  if (data !== null && !(data instanceof Float32Array)) throw new ArgumentError('param: the initial values are no Float32Array')
  const scale = scaleOf(spec)
  if (scale === 0) return { kind: InitKind.zeros, scale, data, decays: true }
  return { kind: InitKind[spec.kind], scale: scale ?? 0, data, decays: undefined }
}

/** null if the kind has none. */
function scaleOf(spec: Spec): number | null {
  switch (spec.kind) {
    case 'randn':
      return spec.scale ?? DEFAULT_STD
    case 'kaiming':
      return spec.gain ?? defaults.init.kaiming
    case 'uniform':
      return spec.bound
    default:
      return null
  }
}
