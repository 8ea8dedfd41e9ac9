// The page's entry: which systems there are, by name. `run` is what bench/page/run.mjs calls.

import { measure } from './measure.js'

const load = {
  tensorgrad: () => import('./ours.js'),
  'jax-js': () => import('./jax.js'),
  tfjs: () => import('./tfjs.js'),
}
globalThis.run = (workload, systems, options) =>
  measure(workload, systems.map(([system, device]) => ({ system, device, load: load[system] })), options)
/** The adapter's name; null where there is none, or only the processor. */
globalThis.adapter = async () => {
  const { info } = (await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' })) ?? {}
  if (info === undefined || info.isFallbackAdapter || /swiftshader|llvmpipe/i.test(`${info.architecture} ${info.description}`)) return null
  return `${info.vendor} ${info.architecture} ${info.description}`.trim()
}
