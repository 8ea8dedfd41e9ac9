// The core's exports without worker or API. TENSORGRAD_WASM: core.wasm. suites.mjs tests what its
// executor computes.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { tmpdir } from 'node:os'
import { pathToFileURL } from 'node:url'
import { buildSync } from 'esbuild'

const web = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), '..')
const wasm = process.env.TENSORGRAD_WASM ?? path.join(web, '../build/wasm/core.wasm')

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
    assert.throws(() => core.op('matmul', site, [x, x], {}), (error) => error.site.line === 7 && /matmul.*x\[2, 3\]/.test(error.message))
    return { graph: g, id: core.op('sum', site, [x], { axes: null }) }
  })
  assert.deepEqual(core.describeGraph(graph).result.shape, [])
  core.destroyGraph(graph)
  assert.throws(() => core.op('neg', site, [{ graph, id: 1 }], {}), /trace/)
})
