// The core's exports on the CPU, without worker or API: a graph and batches dumped by native code are trained here, and the losses are
// those of native C. TENSORGRAD_WASM: core.wasm; TENSORGRAD_DUMP: a folder with mlp-sin.graph, .batches, .losses (native code writes them).
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { tmpdir } from 'node:os'
import { pathToFileURL } from 'node:url'
import { buildSync } from 'esbuild'

const web = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), '..')
const wasm = process.env.TENSORGRAD_WASM ?? path.join(web, '../build/wasm/core.wasm')
const dump = process.env.TENSORGRAD_DUMP ?? path.join(web, '../build/dump')

const bundled = path.join(tmpdir(), `tensorgrad-core-${process.pid}.mjs`)
buildSync({ entryPoints: [path.join(web, 'src/core.ts')], bundle: true, format: 'esm', outfile: bundled, logLevel: 'error' })
const { Core } = await import(pathToFileURL(bundled))
rmSync(bundled)
const module = new WebAssembly.Module(readFileSync(wasm))

test('the module imports nothing but what the package provides', () => {
  assert.deepEqual([...new Set(WebAssembly.Module.imports(module).map((each) => each.module))], ['tg'])
})

test('an operation names the line it was given, and the trace goes on', () => {
  const core = Core.create(module)
  const site = { file: 'model.ts', line: 7 }
  const graph = core.trace((g) => {
    const x = { graph: g, id: core.input(site, g, 'x', [2, 3], 'f32') }
    assert.throws(() => core.op('matmul', site, [x, x]), (error) => error.site.line === 7 && /matmul.*x\[2, 3\]/.test(error.message))
    return { graph: g, id: core.op('sum', site, [x], [0, 1]) }
  })
  assert.deepEqual(core.describeGraph(graph).result.shape, [])
  core.destroyGraph(graph)
  assert.throws(() => core.op('neg', site, [{ graph, id: 1 }]), /trace/)
})

test('mlp-sin has the curve of native C', { skip: !existsSync(path.join(dump, 'mlp-sin.graph')) }, () => {
  const read = (kind) => readFileSync(path.join(dump, `mlp-sin.${kind}`))
  const core = Core.create(module)
  const optimizer = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.005, 0, 0, 0, 0, 0, 0]
  const model = core.createModel(new Uint8Array(read('graph')), { training: true, seed: 1n, device: 'cpu', noFusion: false, optimizer })
  const call = core.createCall(model), data = new Float32Array(new Uint8Array(read('batches')).buffer)
  const native = read('losses').toString().trim().split('\n').map(Number)
  for (let t = 0; t < 50; t++) {
    const part = (i) => data.slice((2 * t + i) * 256, (2 * t + i + 1) * 256)
    core.begin(call, 0, [{ name: 'x', dtype: 'f32', data: part(0) }, { name: 'y', dtype: 'f32', data: part(1) }])
    core.run(call)
    assert.ok(Math.abs(core.loss(call) / native[t] - 1) < 1e-4, `step ${t + 1}: ${core.loss(call)}, native ${native[t]}`)
    core.end(call)
  }
  core.destroyCall(call)
  core.destroyModel(model)
})
