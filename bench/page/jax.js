// The workloads in jax-js: one jitted function makes the whole step. Its optimiser package (@jax-js/optax) makes Adam of a handful of calls outside
// jit; here Adam is inside, which is faster.

import { defaultDevice, init, jit, nn, numpy as np, tree, valueAndGrad } from '@jax-js/jax'
import { BETA1, BETA2, EPS, transformer, WIDTH, workloads } from './workloads.js'

// An argument is consumed by the function that gets it; `.ref` keeps it for later.

const linear = (p, name, x) => np.matmul(x, p[`${name}.W`].ref).add(p[`${name}.b`].ref)
const norm = (p, name, x) => nn.standardize(x, -1, { epsilon: 1e-5 }).mul(p[`${name}.g`].ref).add(p[`${name}.b`].ref)

function attention(p, name, x) {
  const heads = (part) => linear(p, `${name}.${part}`, x.ref).reshape([transformer.BATCH, transformer.T, transformer.HEADS, -1])
  const mixed = nn.dotProductAttention(heads('q'), heads('k'), heads('v'), { isCausal: true })
  x.dispose()
  return linear(p, `${name}.o`, mixed.reshape([transformer.BATCH, transformer.T, WIDTH]))
}

const losses = {
  'mlp-sin'(p, { x, y }) {
    const h = nn.relu(linear(p, 'l2', nn.relu(linear(p, 'l1', x))))
    const loss = np.square(linear(p, 'l3', h).sub(y)).mean()
    tree.dispose(p)
    return loss
  },
  'transformer-add'(p, { tokens, targets }) {
    let x = np.matmul(nn.oneHot(tokens, transformer.VOCABULARY), p.tokenEmbedding.ref).add(p.positionEmbedding.ref)
    for (let i = 0; i < transformer.LAYERS; i++) {
      x = x.ref.add(attention(p, `layers.${i}.attn`, norm(p, `layers.${i}.ln1`, x)))
      const h = norm(p, `layers.${i}.ln2`, x.ref)
      x = x.add(linear(p, `layers.${i}.mlp.down`, nn.relu(linear(p, `layers.${i}.mlp.up`, h))))
    }
    const logits = np.matmul(norm(p, 'lnFinal', x), p.tokenEmbedding.ref.transpose())
    const wanted = np.equal(targets.reshape([transformer.BATCH, transformer.T, 1]), np.arange(transformer.VOCABULARY)).astype(np.float32)
    const loss = nn.logSoftmax(logits, -1).mul(wanted.ref).sum().mul(-1).div(wanted.sum())
    tree.dispose(p)
    return loss
  },
}

/** Adam with decoupled decay; `rate` and `scale` (the rate with both corrections) are scalars of this step. */
function adam(parameter, gradient, m, v, rate, scale, decay) {
  m = m.mul(BETA1).add(gradient.ref.mul(1 - BETA1))
  v = v.mul(BETA2).add(np.square(gradient).mul(1 - BETA2))
  if (decay > 0) parameter = parameter.ref.sub(parameter.mul(rate.mul(decay)))
  else rate.dispose()
  return [parameter.sub(m.ref.mul(scale).div(np.sqrt(v.ref).add(EPS))), m, v]
}

/** device: 'wasm' or 'webgpu'. parameters: Float32Arrays by name. */
export async function start(workload, device, parameters) {
  const devices = await init(device)
  if (!devices.includes(device)) throw new Error(`jax-js has no ${device} here`)
  defaultDevice(device)
  const { shapes, inputs, rate, decay } = workloads[workload]
  const names = Object.keys(shapes)
  const onDevice = (data, shape) => np.array(data, { shape, dtype: data instanceof Int32Array ? np.int32 : np.float32 })
  const byName = (make) => Object.fromEntries(names.map((name) => [name, make(name)]))

  const update = jit((state, batch, lr, scale) => {
    const [loss, gradients] = valueAndGrad(losses[workload])(tree.ref(state.p), batch)
    const next = { p: {}, m: {}, v: {} }
    for (const name of names)
      [next.p[name], next.m[name], next.v[name]] =
        adam(state.p[name], gradients[name], state.m[name], state.v[name], lr.ref, scale.ref, decay(name))
    lr.dispose()
    scale.dispose()
    return [next, loss]
  })

  const zeros = () => byName((name) => np.zeros(shapes[name]))
  let state = { p: byName((name) => onDevice(parameters[name], shapes[name])), m: zeros(), v: zeros() }
  let t = 0
  return {
    where: `jax-js ${device}`,
    async step(batch) {
      t++
      const lr = rate(t)
      const scale = (lr * Math.sqrt(1 - BETA2 ** t)) / (1 - BETA1 ** t)
      const fed = Object.fromEntries(Object.entries(inputs).map(([name, shape]) => [name, onDevice(batch[name], shape)]))
      const [next, loss] = update(state, fed, np.array(lr), np.array(scale))
      state = next
      return (await loss.data())[0]
    },
    stop: () => tree.dispose(state),
  }
}
