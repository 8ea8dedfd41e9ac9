// Adam written as operations of a graph, for given gradients: appendAdam(graph, grads, tensors,
// ...) appends them. The compiler's own Adam, over flat parameters, is in C.

import { defaults } from './boundary.gen.js'
import { ArgumentError } from './errors.js'
import type { WritebackDecl } from './nodes.js'
import type { AdamConfig } from './optimizer.js'
import { add, div, expm1, cast, mul, neg, sqrt, square, sub } from './ops.js'
import type { Operand } from './types.js'
import type { Tensor } from './tensor.js'

type Record_<T> = Readonly<Record<string, T>>

export interface AdamResult {
  /** Those of the parameters and the states; the graph has them already. */
  readonly writebacks: readonly WritebackDecl<Tensor>[]
  readonly config: Readonly<AdamConfig>
}

/** 1 - b^t, accurate also where b^t is nearly 1. */
function correction(b: number, t: Tensor): Operand {
  return b === 0 ? 1 : neg(expm1(mul(t, Math.log(b))))
}

/** Appends to the trace in progress. state: makes a state. rate: the schedule at step t, an i32. */
export function adamNodes(
  grads: Record_<Tensor>, tensors: Record_<Tensor>, config: AdamConfig, decays: (name: string) => boolean,
  state: (name: string, like: Tensor | null) => Tensor, rate: (t: Tensor) => Tensor,
): WritebackDecl<Tensor>[] {
  const { beta1, beta2, eps: usual } = defaults.optimizer
  const { b1 = beta1, b2 = beta2, eps = usual, weightDecay = 0, epsMode = 'uncorrected' } = config, writebacks: WritebackDecl<Tensor>[] = []
  const counter = state('adam_t', null), step = add(counter, 1), t = cast(step, 'f32'), lr = rate(step)
  const first = correction(b1, t), second = correction(b2, t), root = typeof second === 'number' ? 1 : sqrt(second)
  writebacks.push({ source: step, destName: 'adam_t', destKind: 'state' })
  for (const [name, g] of Object.entries(grads)) {
    const p = tensors[name]
    if (p === undefined) throw new ArgumentError(`appendAdam: there is no tensor of the parameter ${name}`)
    const m = state(`adam_m_${name}`, p), v = state(`adam_v_${name}`, p)
    const mNew = add(mul(m, b1), mul(g, 1 - b1)), vNew = add(mul(v, b2), mul(square(g), 1 - b2))
    const below = epsMode === 'corrected' ? add(div(sqrt(vNew), root), eps) : add(sqrt(vNew), eps)
    const scale = epsMode === 'corrected' ? div(lr, first) : div(mul(lr, root), first)
    const kept = weightDecay > 0 && decays(name) ? mul(p, sub(1, mul(lr, weightDecay))) : p
    writebacks.push({ source: mNew, destName: `adam_m_${name}`, destKind: 'state' }, { source: vNew, destName: `adam_v_${name}`, destKind: 'state' })
    writebacks.push({ source: sub(kept, mul(scale, div(mNew, below))), destName: name, destKind: 'param' })
  }
  return writebacks
}
