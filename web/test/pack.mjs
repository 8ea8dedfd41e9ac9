// The package as it would be published: node test/pack.mjs. The files of `npm pack`, no debugging
// code, sizes, types that need no others.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import ts from 'typescript'
import { gzipSync } from 'node:zlib'
import { web } from './bundle.mjs'
import { runner } from './support.mjs'

const { test, finish } = runner('package')
const FILES = [
  'COMING-FROM.md', 'LICENSE', 'README.md', 'dist/compat.d.ts', 'dist/compat.js', 'dist/node-thread.js', 'dist/node-worker.js', 'dist/node.js', 'dist/split.js', 'dist/tensorgrad-threads.wasm', 'dist/tensorgrad.d.ts',
  'dist/tensorgrad.js', 'dist/tensorgrad.wasm', 'dist/thread.js', 'dist/webgpu.js', 'dist/worker.js', 'package.json',
]
// Everything a page loads, gzipped: what it must not grow over (what it was when last looked at,
// and 2 %), and what is wanted, in bytes.
const SIZES = {
  'the default bundle': { bound: 209e3, wanted: 90e3, file: 'tensorgrad.js' },
  'the build for WebGPU alone': { bound: 183e3, wanted: 60e3, file: 'webgpu.js' },
}

const run = (command, args, cwd) => {
  const done = spawnSync(command, args, { cwd, encoding: 'utf8' })
  assert.equal(done.status, 0, `${done.stdout}${done.stderr}`)
  return done.stdout
}
const text = (file) => readFileSync(path.join(web, file), 'utf8')

await test('npm pack takes these files and no others', () => {
  const [{ files }] = JSON.parse(run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], web))
  assert.deepEqual(files.map((file) => file.path).sort(), FILES)
})
await test('compat runs over the package, and is no second copy of it', () => {
  const program = `import { compile, Module, sum, mul } from 'tensorgrad/compat'
import * as package_ from 'tensorgrad'
class M extends Module { w = this.param([2], { init: package_.init.ones() }) }
const train = await compile({ model: new M(), loss: (m, { x }) => sum(mul(m.w, x)), inputs: { x: [2] }, optimizer: { kind: 'sgd', lr: 0.5 } })
console.log((await train.step({ x: new Float32Array([1, 2]) })).loss, [...(await train.downloadParams()).w].join(), Module === package_.Module)
train.destroy()`
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { cwd: web, encoding: 'utf8', env: { ...process.env, TENSORGRAD_DEVICE: 'cpu' } })
  assert.equal(stdout, '3 0.5,0 true\n')
})
await test('no runtime dependency', () => assert.equal(JSON.parse(text('package.json')).dependencies, undefined))
await test('no source map, no path of this machine, nothing evaluated', () => {
  for (const file of FILES.filter((name) => name.endsWith('.js'))) {
    assert.doesNotMatch(text(file), /sourceMappingURL|\/home\/|\/work\/|\beval\(|new Function\(/, file)
  }
  for (const file of ['dist/split.js', 'dist/worker.js']) assert.doesNotMatch(text(file), /blob:|createObjectURL/, file)
})
await test('the core imports nothing but what JavaScript gives it', () => {
  const modules = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(path.join(web, 'dist/tensorgrad.wasm')))).map(({ module }) => module)
  assert.deepEqual([...new Set(modules)], ['tg'])
})
for (const [what, { bound, wanted, file }] of Object.entries(SIZES))
  await test(`${what} is at most ${bound / 1e3} kB gzipped`, () => {
    const size = gzipSync(readFileSync(path.join(web, 'dist', file)), { level: 9 }).length
    assert.ok(size <= bound, `${size} bytes`)
    return `${(size / 1e3).toFixed(1)} kB, ${wanted / 1e3} wanted`
  })
await test('the values of the types are those of every entry point, nested ones too', async () => {
  const { exports } = JSON.parse(text('package.json'))
  const entries = Object.values(exports).filter((entry) => typeof entry === 'object')
  assert.ok(entries.length >= 3)
  const program = ts.createProgram(entries.map((entry) => path.join(web, entry.types)), {})
  const checker = program.getTypeChecker()
  const values = (symbol) => checker.getExportsOfModule(symbol)
    .filter((each) => !isTypeOnly(each) && (resolved(each).flags & ts.SymbolFlags.Value) !== 0)
  const isTypeOnly = (symbol) => symbol.declarations?.some((each) => ts.isExportSpecifier(each) && (each.isTypeOnly || each.parent.parent.isTypeOnly)) ?? false
  const resolved = (symbol) => ((symbol.flags & ts.SymbolFlags.Alias) !== 0 ? checker.getAliasedSymbol(symbol) : symbol)
  const same = (symbol, module, where) => {
    const found = values(symbol)
    assert.deepEqual(found.map((each) => each.name).sort(), Object.keys(module).sort(), where)
    for (const each of found)
      if ((resolved(each).flags & ts.SymbolFlags.Module) !== 0 && (resolved(each).flags & ts.SymbolFlags.Function) === 0) same(resolved(each), module[each.name], `${where}: ${each.name}`)
  }
  let count = 0
  for (const { types, ...files } of entries)
    for (const file of new Set(Object.values(files))) {
      const module = await import(path.join(web, file))
      same(checker.getSymbolAtLocation(program.getSourceFile(path.join(web, types))), module, file)
      count += Object.keys(module).length
    }
  return `${count} names`
})
await test('the types stand alone, strictly, with the DOM or with Node', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tensorgrad-types-'))
  try {
    mkdirSync(path.join(folder, 'node_modules/@types'), { recursive: true })
    symlinkSync(web, path.join(folder, 'node_modules/tensorgrad'))
    symlinkSync(path.join(web, 'node_modules/@types/node'), path.join(folder, 'node_modules/@types/node'))
    writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }')
    writeFileSync(path.join(folder, 'use.ts'), `import { compileModule, Linear, lr, Module, nn, relu, ShapeError, type Tensor } from 'tensorgrad'
import * as split from 'tensorgrad/split'
class M extends Module { a = new nn.Linear(2, 3); w: Tensor = this.param([3]) }
const model = await compileModule(() => new M(), (m, { x }) => nn.mse(relu(m.a.fwd(x)), m.w), {
  adam: { lr: lr.constant(0.1) }, inputs: { x: { shape: [3], dtype: 'f32' } } })
export const loss: number = await model.step({ x: new Float32Array(2) })
// @ts-expect-error: there is no input y
await model.step({ y: new Float32Array(2) })
export const error: typeof ShapeError = split.ShapeError
export const layer: nn.Linear | Linear = new nn.Linear(1, 2)
// @ts-expect-error: layers are in nn
new Linear(1, 2)
`)
    writeFileSync(path.join(folder, 'old.ts'), `import { compile, init, Linear, loadSafetensors, lr, Module, nllLoss, logSoftmax, type CompiledTraining, type Tensor } from 'tensorgrad/compat'
import { nn } from 'tensorgrad'
class M extends Module { l = new Linear(2, 3); w: Tensor = this.param([3], { init: init.zeros() }) }
const train = await compile({ model: new M(), loss: (m, { x, y }) => nllLoss(logSoftmax(m.l.fwd(x)), y), inputs: { x: [4, 2], y: { shape: [4], dtype: 'i32' } },
  optimizer: { kind: 'adam', lr: lr.linear({ peak: 0.1, final: 0, steps: 9 }) } })
export const kept: CompiledTraining<M, { x: [4, 2]; y: { shape: [4]; dtype: 'i32' } }> = train
const r = await train.step({ x: new Float32Array(8), y: new Int32Array(4) })
if (r.kind === 'completed') console.log(r.loss, r.captures.names())
// @ts-expect-error: y is i32
await train.step({ x: new Float32Array(8), y: new Float32Array(4) })
export const { tensors } = loadSafetensors(new ArrayBuffer(8))
export const linear: nn.Linear = new Linear(1, 2)
`)
    const tsc = path.join(web, 'node_modules/typescript/bin/tsc')
    const strict = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022', '--module', 'nodenext', 'use.ts', 'old.ts']
    run(process.execPath, [tsc, ...strict, '--lib', 'es2022,dom'], folder)
    run(process.execPath, [tsc, ...strict, '--lib', 'es2022', '--types', 'node'], folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
finish()
