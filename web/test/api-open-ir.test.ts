// The open IR as 0.0.17 documents it: graphs, plans and kernels as data, optimisers that are user
// code.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  add, appendAdam, appendGrad, ArgumentError, capture, compileForward, compileGraph, compileModule, compileToIR, emitKernels, GradientError, init, matmul,
  materializeParams, mean, Module, mul, nn, NotFoundError, paramInput, planBuffers, relu, ShapeError, square, stateInput, sub, sum, tensorInput, trace,
  traceInto, type AdamConfig, type Graph, type OpNode, type Tensor, type WritebackDecl,
} from '../src/node.js'
import { thrown } from './api-support.js'

class Net extends Module {
  l1 = new nn.Linear(2, 4)
  l2 = new nn.Linear(4, 1, { bias: false })
}
const lossOf = (m: Net, { x, y }: { x: Tensor; y: Tensor }): Tensor => nn.mse(m.l2.fwd(relu(m.l1.fwd(x))), y)
const inputs = { x: { shape: [8, 2] }, y: { shape: [8, 1] } } as const
const batch = (t = 0) => ({ x: Float32Array.from({ length: 16 }, (_, i) => Math.sin(i + t)), y: Float32Array.from({ length: 8 }, (_, i) => Math.cos(i + t)) })
const kindsOf = (graph: Graph): string[] => graph.ops.map((op) => op.kind)

test('compiled.ir: graph, gradients, loss, plan and kernels', async () => {
  const model = await compileModule(() => new Net(), lossOf, { adam: { lr: 0.01 }, inputs, device: 'cpu' })
  const { graph, paramGrads, loss, plan, kernels, text } = model.ir
  assert.deepEqual(graph.ops.filter((op) => op.kind === 'param_input').map((op) => [op.name, graph.tensors[op.out]?.shape]), [
    ['l1.W', [2, 4]], ['l1.b', [4]], ['l2.W', [4, 1]],
  ])
  assert.deepEqual(graph.ops.filter((op) => op.kind === 'tensor_input').map((op) => [op.name, op.shape, op.dtype]), [['x', [8, 2], 'f32'], ['y', [8, 1], 'f32']])
  assert.ok(kindsOf(graph).includes('contract') && kindsOf(graph).includes('relu') && kindsOf(graph).includes('sum'))
  graph.ops.forEach((op, i) => {
    assert.equal(op.out, i)
    assert.ok(op.inputs.every((id) => id >= 0 && id < i))
  })
  assert.deepEqual(graph.outputs, [loss.id])
  assert.deepEqual([loss.shape, graph.tensors[loss.id]?.dtype], [[], 'f32'])
  assert.deepEqual(Object.entries(paramGrads).map(([name, t]) => [name, t.shape]), [['l1.W', [2, 4]], ['l1.b', [4]], ['l2.W', [4, 1]]])
  const op = graph.ops.find(({ kind }) => kind === 'relu') as OpNode
  assert.match(op.site?.file ?? '', /api-open-ir\.test\.js$/)
  assert.ok((op.site?.line ?? 0) > 5 && (op.site?.column ?? 0) > 0)
  assert.equal(op.site?.stack, `    at ${op.site?.file}:${op.site?.line}:${op.site?.column}`)
  assert.deepEqual([...plan.paramsByName.keys()], ['l1.W', 'l1.b', 'l2.W'])
  assert.deepEqual([...plan.paramGradsByName.keys()], ['l1.W', 'l1.b', 'l2.W'])
  assert.deepEqual([...plan.inputsByName.keys()].sort(), ['x', 'y'])
  const w = plan.buffers[plan.paramsByName.get('l1.W') as number]
  assert.deepEqual([w?.kind, w?.name, w?.byteSize, w?.shape], ['param', 'l1.W', 32, [2, 4]])
  assert.deepEqual(plan.writebacks.map(({ destName, bytes }) => [destName, bytes]), [['l1.W', 32], ['l1.b', 16], ['l2.W', 16]])
  assert.equal(plan.outputBufferIds.length, 1)
  for (const kernel of kernels) {
    assert.match(kernel.wgsl, /@compute/)
    assert.ok(kernel.opKind.length > 0 && kernel.workgroupSize > 0 && kernel.threads >= kernel.workgroupSize)
    assert.ok(kernel.bindings.every((id) => id < plan.buffers.length))
  }
  assert.ok(text.includes('param'))
  assert.equal(model.ir.graph, graph)
  const sibling = await model.compileForward((m, { x }) => relu(m.l1.fwd(x)), { inputs: { x: { shape: [1, 2] } } })
  assert.deepEqual([sibling.ir.paramGrads, sibling.ir.loss.shape, sibling.ir.plan.writebacks], [{}, [1, 4], []])
  await model.destroy()
})

test('attributes', () => {
  const graph = trace(() => {
    const x = tensorInput('x', [2, 3])
    return add(sum(mul(x, 2), 0), add(stateInput('s', [3], 'f32', 1.5), sum(tensorInput('y', [3, 4]), 1)))
  })
  const attributes = (kind: string) => graph.ops.filter((op) => op.kind === kind).map((op) => op.attributes)
  assert.deepEqual(attributes('sum').map(({ axes }) => axes), [[0], [1]])
  assert.deepEqual(attributes('state_input'), [{ value: 1.5 }])
  assert.ok(attributes('const').some(({ value }) => value === 2))
})

test('several results', async () => {
  const graph = trace(() => {
    const x = tensorInput('x', [3])
    return [mul(x, 2), add(x, 1), sum(x)]
  })
  assert.deepEqual(graph.outputs.map((id) => graph.tensors[id]?.shape), [[3], [3], []])
  const model = await compileGraph(graph, { device: 'cpu' }), { output, captures } = await model.run({ x: new Float32Array([1, 2, 3]) }, { withCaptures: true })
  assert.deepEqual([[...output], [...captures.get('output.1')], [...captures.get('output.2')]], [[2, 4, 6], [2, 3, 4], [6]])
  await model.destroy()
  const error = thrown(() => appendGrad(graph))
  assert.ok(error instanceof GradientError && error.message === 'grad: the graph has 3 results: the loss must be the only one')
  assert.match(thrown(() => trace(() => [])).message, /returned no tensor/)
  assert.match(thrown(() => trace(() => [tensorInput('x', [1]), 3 as never])).message, /result 2 is the number 3, not a tensor/)
})

test('parameters are f32', () => {
  trace(() => paramInput('w', [2], 'f32'))
  const error = thrown(() => trace(() => paramInput('w', [2], 'i32')))
  assert.ok(error instanceof ArgumentError)
  assert.equal(error.message, 'param w: parameters are f32, not i32')
})

test('traceInto returns what its function returns', () => {
  const graph = trace(() => sum(tensorInput('x', [2])))
  assert.deepEqual(traceInto(graph, () => [1, 'a']), [1, 'a'])
})

test('materializeParams: tensors, first values, decay flags', async () => {
  class Two extends Module {
    w = this.param([3, 2])
    b = this.param([2], { init: 'zeros' })
    c = this.param([2], { init: init.literal(new Float32Array([3, 4])), decay: false })
  }
  let made: ReturnType<typeof materializeParams> | undefined
  trace(() => {
    made = materializeParams(new Two())
    return sum(made.tensors['w'] as Tensor)
  })
  const { tensors, initFns, decayFlags } = made as ReturnType<typeof materializeParams>
  assert.deepEqual(Object.values(tensors).map((t) => t.shape), [[3, 2], [2], [2]])
  assert.deepEqual(decayFlags, { w: true, b: false, c: false })
  for (const seed of [0, 5, 2 ** 40]) {
    const model = await compileForward(() => new Two(), (m) => sum(add(m.b, add(m.c, sum(m.w)))), { seed, device: 'cpu' }), params = await model.downloadParams()
    for (const [name, values] of Object.entries(params)) assert.deepEqual(initFns[name]?.(values.length, tensors[name]?.shape, seed), values)
    await model.destroy()
  }
})

/** A training graph written out by hand as 0.0.17 does it. */
function byHand(config: AdamConfig, flags?: (flags: Readonly<Record<string, boolean>>) => Readonly<Record<string, boolean>>) {
  let made: ReturnType<typeof materializeParams> | undefined
  const net = new Net()
  const graph = trace(() => {
    made = materializeParams(net)
    return lossOf(net, { x: tensorInput('x', [8, 2]), y: tensorInput('y', [8, 1]) })
  })
  const { tensors, decayFlags } = made as ReturnType<typeof materializeParams>, { paramGrads } = appendGrad(graph)
  return { graph, paramGrads, adam: appendAdam(graph, paramGrads, tensors, config, flags?.(decayFlags) ?? decayFlags) }
}

for (const config of [{ lr: 0.05 }, { lr: 0.05, weightDecay: 0.5 }, { lr: 0.05, epsMode: 'corrected', eps: 0.01 }, { lr: { kind: 'linearDecay', peak: 0.1, final: 0, steps: 6 }, b1: 0 }] as const)
  test(`appendAdam(graph, grads, tensors, ...) trains as the compiler's own: ${JSON.stringify(config)}`, async () => {
    const { graph, adam } = byHand(config)
    assert.deepEqual(adam.writebacks.map(({ destName, destKind }) => `${destKind} ${destName}`).slice(0, 4), ['state adam_t', 'state adam_m_l1.W', 'state adam_v_l1.W', 'param l1.W'])
    const [own, model] = await Promise.all([compileGraph(graph, { device: 'cpu' }), compileModule(() => new Net(), lossOf, { adam: config, inputs, device: 'cpu' })])
    for (let t = 0; t < 8; t++) {
      const [a, b] = await Promise.all([own.step(batch(t)), model.step(batch(t))])
      assert.ok(Math.abs(a - b) < 2e-6, `step ${t}: ${a}, ${b}`)
    }
    const [a, b] = await Promise.all([own.downloadParams(), model.downloadParams()])
    for (const [name, values] of Object.entries(b)) values.forEach((value, i) => assert.ok(Math.abs(value - (a[name]?.[i] as number)) < 1e-5, name))
    await Promise.all([own.destroy(), model.destroy()])
  })

test('appendAdam: decay flags, gradients that were changed, and what it does not take', async () => {
  const all = byHand({ lr: 0.1, weightDecay: 0.5 }, (flags) => Object.fromEntries(Object.keys(flags).map((name) => [name, false])))
  const none = byHand({ lr: 0.1 })
  const [a, b] = await Promise.all([compileGraph(all.graph, { device: 'cpu' }), compileGraph(none.graph, { device: 'cpu' })])
  await Promise.all([a.step(batch()), b.step(batch())])
  assert.deepEqual(await a.downloadParams(), await b.downloadParams())
  await Promise.all([a.destroy(), b.destroy()])

  const graph = trace(() => sum(mul(paramInput('w', [2], { init: 'ones' }), tensorInput('x', [2])))), { paramGrads } = appendGrad(graph)
  const w = (graph.ops.find((op) => op.name === 'w') as OpNode).out
  const opposite = traceInto(graph, () => ({ w: mul(paramGrads['w'] as Tensor, -1) }))
  let tensor: Tensor | undefined
  traceInto(graph, () => void (tensor = paramGrads['w']))
  assert.ok(tensor !== undefined && graph.tensors[w]?.source === null)
  assert.match(thrown(() => appendAdam(graph, opposite, {}, { lr: 0.1 })).message, /no tensor of the parameter w/)
  assert.match(thrown(() => appendAdam(graph, {}, {}, { lr: 0.1, clipNorm: 1 })).message, /^appendAdam: clipNorm /)
  assert.match(thrown(() => appendAdam({} as Graph, {}, {}, { lr: 0.1 })).message, /^appendAdam: takes a graph/)
})

test('an optimiser of the user: planBuffers takes its writebacks, and the graph has them', async () => {
  const graph = trace(() => mean(square(sub(matmul(tensorInput('x', [4, 2]), paramInput('w', [2, 1], { init: 'ones' })), tensorInput('y', [4, 1])))))
  const { paramGrads } = appendGrad(graph), parts: Tensor[] = []
  const writebacks = traceInto(graph, (): WritebackDecl<Tensor>[] => {
    const speed = stateInput('speed', [2, 1]), next = add(mul(speed, 0.5), paramGrads['w'] as Tensor)
    parts.push(speed)
    return [{ source: next, destName: 'speed', destKind: 'state' }]
  })
  const plain = planBuffers(graph, paramGrads)
  assert.deepEqual([plain.writebacks, [...plain.paramGradsByName.keys()]], [[], ['w']])
  const plan = planBuffers(graph, paramGrads, writebacks)
  assert.deepEqual(plan.writebacks, [{ destName: 'speed', destKind: 'state', bytes: 8 }])
  assert.deepEqual([...plan.statesByName.keys()].includes('speed'), true)
  assert.equal(planBuffers(graph, paramGrads, writebacks).writebacks.length, 1)
  assert.deepEqual(emitKernels(graph, plan).length > 0, true)
  assert.equal(planBuffers(graph, {}).paramGradsByName.size, 0)
  const model = await compileGraph(graph, { device: 'cpu' })
  await model.step({ x: new Float32Array(8).fill(1), y: new Float32Array(4) })
  await model.destroy()
  const other = trace(() => sum(paramInput('w', [2, 1])))
  assert.match(thrown(() => emitKernels(other, plan)).message, /plan is another graph's/)
  assert.match(thrown(() => planBuffers(graph, { w: other.result })).message, /gradient of w is no tensor of the graph/)
  assert.ok(thrown(() => planBuffers(graph, { v: paramGrads['w'] as Tensor })) instanceof NotFoundError)
  assert.ok(thrown(() => planBuffers(graph, { w: graph.result })) instanceof ShapeError)
  assert.ok(thrown(() => planBuffers(graph, paramGrads, [{ source: paramGrads['w'] as Tensor, destName: 'v', destKind: 'state' }])) instanceof NotFoundError)
  assert.equal(parts.length, 1)
})

test('compileToIR has the gradients and the loss', () => {
  const ir = compileToIR(() => mean(square(matmul(capture('in', tensorInput('x', [4, 2])), paramInput('w', [2, 1])))))
  assert.deepEqual([Object.keys(ir.paramGrads), ir.loss.shape, ir.graph.outputs], [['w'], [], [ir.loss.id]])
  assert.deepEqual(compileToIR(() => matmul(tensorInput('x', [4, 2]), paramInput('w', [2, 1]))).paramGrads, {})
})
