// The workloads in TensorFlow.js: variables, variableGrads and its Adam. Dense layers are tf.fused.matMul, as its own layers use it. Tables are
// looked up by a one-hot product: the gradient of tf.gather has no kernel in its wasm backend.

import * as tf from '@tensorflow/tfjs-core'
import '@tensorflow/tfjs-core/dist/register_all_gradients.js'
import { setWasmPaths } from '@tensorflow/tfjs-backend-wasm'
import '@tensorflow/tfjs-backend-webgpu'
import { BETA1, BETA2, EPS, transformer, WIDTH, workloads } from './workloads.js'

const { BATCH, HEADS, LAYERS, T, VOCABULARY } = transformer

const linear = (p, name, a, activation = 'linear') => tf.fused.matMul({ a, b: p[`${name}.W`], bias: p[`${name}.b`], activation })

function norm(p, name, x) {
  const { mean, variance } = tf.moments(x, -1, true)
  return tf.add(tf.mul(tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, 1e-5))), p[`${name}.g`]), p[`${name}.b`])
}

/** x [BATCH T, WIDTH]; mask [T, T], 0 or a large negative number. */
function attention(p, name, x, mask) {
  const heads = (part) => tf.transpose(tf.reshape(linear(p, `${name}.${part}`, x), [BATCH, T, HEADS, WIDTH / HEADS]), [0, 2, 1, 3])
  const scores = tf.mul(tf.matMul(heads('q'), heads('k'), false, true), 1 / Math.sqrt(WIDTH / HEADS))
  const mixed = tf.matMul(tf.softmax(tf.add(scores, mask)), heads('v'))
  return linear(p, `${name}.o`, tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [BATCH * T, WIDTH]))
}

const losses = {
  'mlp-sin': (p, { x, y }) =>
    tf.mean(tf.square(tf.sub(linear(p, 'l3', linear(p, 'l2', linear(p, 'l1', x, 'relu'), 'relu')), y))),
  'transformer-add'(p, { tokens, targets, mask }) {
    const rows = tf.oneHot(tf.reshape(tokens, [-1]), VOCABULARY)
    const embedded = tf.reshape(tf.matMul(tf.cast(rows, 'float32'), p.tokenEmbedding), [BATCH, T, WIDTH])
    let x = tf.reshape(tf.add(embedded, p.positionEmbedding), [BATCH * T, WIDTH])
    for (let i = 0; i < LAYERS; i++) {
      x = tf.add(x, attention(p, `layers.${i}.attn`, norm(p, `layers.${i}.ln1`, x), mask))
      const up = linear(p, `layers.${i}.mlp.up`, norm(p, `layers.${i}.ln2`, x), 'relu')
      x = tf.add(x, linear(p, `layers.${i}.mlp.down`, up))
    }
    const logits = tf.matMul(norm(p, 'lnFinal', x), p.tokenEmbedding, false, true)
    const wanted = tf.cast(tf.oneHot(tf.reshape(targets, [-1]), VOCABULARY), 'float32') // a target of -1: a row of zeros
    return tf.neg(tf.div(tf.sum(tf.mul(tf.logSoftmax(logits), wanted)), tf.sum(wanted)))
  },
}

/** device: 'wasm' or 'webgpu'. parameters: Float32Arrays by name. */
export async function start(workload, device, parameters) {
  setWasmPaths('/tfjs-wasm/')
  if (!(await tf.setBackend(device))) throw new Error(`tfjs has no ${device} here`)
  await tf.ready()
  const { shapes, inputs, rate, decay } = workloads[workload]
  const variables = Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => [name, tf.variable(tf.tensor(parameters[name], shape), true, `${device} ${name}`)]))
  const decayed = Object.entries(variables).filter(([name]) => decay(name) > 0)
  const mask = tf.tensor(Float32Array.from({ length: T * T }, (_, i) => (i % T > Math.floor(i / T) ? -1e9 : 0)), [T, T])
  const optimizer = tf.train.adam(rate(1), BETA1, BETA2, EPS)
  let t = 0
  return {
    where: `tfjs ${device}`,
    async step(batch) {
      await tf.setBackend(device) // at once when it is the one in use
      const loss = tf.tidy(() => {
        const fed = Object.fromEntries(
          Object.entries(inputs).map(([name, shape]) => [name, tf.tensor(batch[name], shape, batch[name] instanceof Int32Array ? 'int32' : 'float32')]))
        const { value, grads } = tf.variableGrads(() => losses[workload](variables, { ...fed, mask }), Object.values(variables))
        const lr = (optimizer.learningRate = rate(++t))
        for (const [name, variable] of decayed) variable.assign(tf.mul(variable, 1 - lr * decay(name)))
        optimizer.applyGradients(grads)
        return value
      })
      const [number] = await loss.data()
      loss.dispose()
      return number
    },
    stop() {
      optimizer.dispose()
      for (const variable of Object.values(variables)) variable.dispose()
    },
  }
}
