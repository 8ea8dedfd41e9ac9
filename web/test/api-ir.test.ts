// The open IR: traces as values, gradients, optimisers by hand, and what the compiler makes of
// them.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  add,
  appendAdam,
  appendGrad,
  appendSGD,
  ArgumentError,
  compileGraph,
  compileToIR,
  DuplicateError,
  embedding,
  emitKernels,
  GradientError,
  Graph,
  lr,
  matmul,
  mean,
  materializeParams,
  mul,
  paramInput,
  planBuffers,
  resolveLR,
  square,
  stateInput,
  sub,
  sum,
  tensorInput,
  trace,
  traceInto,
  writeback,
  type LRSchedule,
  type Tensor,
} from '../src/index.js'
import { coreNow } from '../src/platform.js'
import * as transformer from '../examples/transformer-add.js'
import * as mlp from '../examples/mlp-sin.js'
import { compileModule } from '../src/index.js'
import { FakePort, rejection, thrown, usePlatform } from './api-support.js'

usePlatform()

const linear = () => {
  const W = paramInput('W', [4, 8])
  const x = tensorInput('x', [16, 4])
  return mean(square(matmul(x, W)))
}

test('a graph lists what it holds', () => {
  const graph = trace(() => {
    const W = paramInput('W', [4, 8], { init: 'zeros', frozen: true })
    const b = paramInput('b', [8])
    stateInput('count', [], 'i32', 3)
    return add(matmul(tensorInput('x', [2, 4]), W), b)
  })
  assert.deepEqual(graph.params, [
    { name: 'W', shape: [4, 8], decay: false, frozen: true },
    { name: 'b', shape: [8], decay: true, frozen: false },
  ])
  assert.deepEqual(graph.inputs, [{ name: 'x', shape: [2, 4], dtype: 'f32' }])
  assert.deepEqual(graph.states, [{ name: 'count', shape: [], dtype: 'i32' }])
  assert.deepEqual(
    graph.outputs.map((id) => graph.tensors[id]?.shape),
    [[2, 8]],
  )
  assert.match(graph.text, /param/)
})

test('appendGrad inside a trace: every parameter that is not frozen, by name', () => {
  const graph = trace(() => {
    const W = paramInput('W', [4, 8])
    const frozen = paramInput('F', [8], { frozen: true })
    const loss = mean(square(add(matmul(tensorInput('x', [2, 4]), W), frozen)))
    const { paramGrads, loss: same } = appendGrad(loss)
    assert.equal(same, loss)
    assert.deepEqual(Object.keys(paramGrads), ['W'])
    assert.deepEqual(paramGrads['W']?.shape, [4, 8])
    return loss
  })
  assert.ok(graph instanceof Graph)
})

test('appendGrad of a graph, and traceInto', { skip: !('traceInto' in coreNow()) }, () => {
  const graph = trace(linear)
  const { paramGrads, loss, graph: same } = appendGrad(graph)
  assert.equal(same, graph)
  assert.deepEqual([paramGrads['W']?.shape, loss.shape], [[4, 8], []])
  const norm = traceInto(graph, () => sum(square(paramGrads['W'] as Tensor)))
  assert.deepEqual(graph.result.id, norm.id)
  traceInto(graph, () => undefined)
  assert.deepEqual(graph.result.id, norm.id)
  assert.match(thrown(() => traceInto(graph, () => add(loss, tensorInput('y', [0])))).message, /^input y: /)
  assert.deepEqual(graph.result.id, norm.id)
})

test('a loss that is not rank 0', () => {
  const error = thrown(() => trace(() => appendGrad(tensorInput('x', [2])).loss))
  assert.ok(error instanceof GradientError)
})

test('resolveLR: numbers and tensors', () => {
  const schedule = lr.warmup({ peakLr: 0.1, warmupSteps: 4, after: lr.linearDecay({ peak: 0.1, final: 0, steps: 10 }) })
  assert.deepEqual(
    [2, 4, 5].map((t) => Math.round(resolveLR(schedule, t) * 1e6) / 1e6),
    [0.05, 0.1, 0.09],
  )
  assert.equal(resolveLR(0.5, 7), 0.5)
  const twice = lr.warmup({ peakLr: 0.4, warmupSteps: 2, after: schedule })
  const wanted = [0.2, 0.4, 0.025, 0.05, 0.075, 0.1, 0.09]
  assert.deepEqual(wanted.map((_, i) => Math.round(resolveLR(twice, i + 1) * 1e6) / 1e6), wanted)
  assert.deepEqual(twice, { kind: 'warmup', peakLr: 0.4, warmupSteps: 2, after: schedule })
  let long: LRSchedule = 1
  for (let i = 0; i < 3; i++) long = lr.warmup({ peakLr: 1, warmupSteps: 1, after: long })
  assert.match(thrown(() => resolveLR(long, 1)).message, /at most 2 warm-ups follow one another/)
  assert.match(thrown(() => lr.warmup({ peakLr: 1, warmupSteps: 1, after: undefined as never })).message, /^lr\.warmup: after is missing/)
  assert.match(thrown(() => lr.linearDecay({ peek: 1, final: 0, steps: 2 } as never)).message, /^lr\.linearDecay: there is no option peek: did you mean peak\?/)
  assert.equal(thrown(() => resolveLR({ kind: 'cosineDecay', peak: 1, final: 0 } as never, 1)).message, 'resolveLR: lr.steps is missing')
  assert.equal(thrown(() => lr.staircase({ peak: '1', factor: 1, steps: 1 } as never)).message, 'lr.staircase: peak is "1", not a number')
})

test('compileToIR: the whole pipeline at once, without a worker', () => {
  const ir = compileToIR(linear)
  assert.deepEqual([ir.outputShape, ir.paramNames], [[], ['W']])
  assert.ok(ir.kernels.length >= 1)
  for (const kernel of ir.kernels) {
    assert.match(kernel.wgsl, /@compute/)
    assert.equal(kernel.workgroups.length, 3)
    assert.ok(kernel.bindings.length > 0 && kernel.bindings.every((buffer) => Number.isInteger(buffer) && buffer < ir.plan.buffers.length))
  }
  assert.ok(ir.plan.buffers.some((buffer) => buffer.storage === 'input' && buffer.count === 64))
  assert.ok(ir.plan.peakBytes > 0 && ir.plan.text.length > 0)
})

test('planBuffers and emitKernels, forward and training', () => {
  const graph = trace(linear)
  const length = (kernels: { wgsl: string }[]) => kernels.reduce((sum, { wgsl }) => sum + wgsl.length, 0)
  assert.ok(length(emitKernels(graph)) > length(emitKernels(graph, { training: false })))
  assert.ok(length(emitKernels(graph, { adam: { lr: 0.1 } })) > length(emitKernels(graph)))
  assert.ok(planBuffers(graph, { adam: { lr: 0.1 } }).peakBytes > planBuffers(graph, { training: false }).peakBytes)
  const live = coreNow().liveBytes
  planBuffers(graph)
  assert.equal(coreNow().liveBytes, live)
})

test('computed indices: the model is shown, not the check of its indices', () => {
  const rows = (index: (x: Tensor) => Tensor) => () => {
    const at = index(tensorInput('at', [3], 'i32')), table = paramInput('table', [5, 2])
    return sum(embedding(table, at))
  }
  const plain = compileToIR(rows((at) => at)), computed = compileToIR(rows((at) => add(at, 1)))
  for (const ir of [plain, computed]) {
    assert.ok(ir.plan.buffers.some(({ storage, count }) => storage === 'state' && count >= 10), 'the table is there')
    assert.ok(ir.kernels.map(({ wgsl }) => wgsl).join('').length > 1000)
  }
  assert.ok(computed.kernels.length >= plain.kernels.length)
  assert.equal(emitKernels(computed.graph).length, computed.kernels.length)
  assert.equal(planBuffers(computed.graph).workspaceBytes, computed.plan.workspaceBytes)
})

test('optimisers appended in a trace', () => {
  const build = (append: (loss: Tensor) => void) => () => {
    const loss = linear()
    append(loss)
    return loss
  }
  const adam = trace(build((loss) => appendAdam(loss, { lr: 0.1 })))
  assert.ok(adam.states.length > trace(linear).states.length)
  trace(build((loss) => appendSGD(loss, { lr: 0.1, momentum: 0.9 })))
  const twice = thrown(() =>
    trace(
      build((loss) => {
        appendAdam(loss, { lr: 1 })
        appendAdam(loss, { lr: 1 })
      }),
    ),
  )
  assert.ok(twice instanceof DuplicateError)
  assert.throws(() => trace(build((loss) => appendAdam(loss, {} as never))), /adam: lr is missing/)
})

test('an optimiser that is user code posts as any graph', async () => {
  const port = new FakePort()
  usePlatform(() => port)
  const graph = trace(() => {
    const W = paramInput('W', [4, 8])
    const momentum = stateInput('momentum', [4, 8])
    const loss = mean(square(matmul(tensorInput('x', [16, 4]), W)))
    const { paramGrads } = appendGrad(loss)
    const next = add(mul(momentum, 0.9), paramGrads['W'] as Tensor)
    writeback(momentum, next)
    writeback(W, sub(W, mul(next, 0.1)))
    return loss
  })
  await compileGraph(graph)
  const [request] = port.requests
  assert.ok(request?.kind === 'createRuntime' && request.training && request.optimizer === null)
  await compileGraph(graph, { training: false })
  assert.ok(port.requests[1]?.kind === 'createRuntime' && !port.requests[1].training)
  const error = await rejection(compileGraph({} as never))
  assert.ok(error instanceof ArgumentError)
  assert.equal(error.message, 'compileGraph: takes a graph made by trace, not an Object')
})

test('the examples trace as the C ones do, and quickly', async () => {
  const port = new FakePort()
  usePlatform(() => port)
  await mlp.compile()
  const model = new transformer.Transformer()
  const began = performance.now()
  await compileModule(() => model, transformer.loss, {
    adam: transformer.RECIPE,
    inputs: {
      tokens: { shape: [transformer.BATCH, transformer.T], dtype: 'i32' },
      targets: { shape: [transformer.BATCH, transformer.T], dtype: 'i32' },
    },
  })
  const took = performance.now() - began
  console.log(`transformer-add: traced and posted in ${took.toFixed(1)} ms`)
  const names = trace(() => Object.values(materializeParams(model).tensors)[0] as Tensor).params.map((param) => param.name)
  assert.deepEqual(names.slice(0, 6), [
    'tokenEmbedding',
    'positionEmbedding',
    'layers.0.ln1.g',
    'layers.0.ln1.b',
    'layers.0.attn.q.W',
    'layers.0.attn.q.b',
  ])
  assert.deepEqual(names.slice(-3), ['layers.2.mlp.down.b', 'lnFinal.g', 'lnFinal.b'])
  assert.equal(names.length, 2 + 3 * 16 + 2)
})
