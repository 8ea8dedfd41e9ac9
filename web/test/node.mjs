// The package in Node, as built: node test/node.mjs [--webgpu] [--native PROGRAM] [--data FOLDER].
// Each test of home.ts on the CPU and, with --webgpu (the package `webgpu` and an adapter must be
// there), on WebGPU; the operations' values; losses against native ones. Ends with "N passed, N
// failed".

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import workerThreads from 'node:worker_threads'
import { bundle, web } from './bundle.mjs'
import { checkAgainstNative, checkCurve, checkManySteps, FROM_FILES, nativeCurve, runner } from './support.mjs'

const { values: options } = parseArgs({ options: { webgpu: { type: 'boolean' }, native: { type: 'string' }, data: { type: 'string' } } })
const { test, finish } = runner('node')

// every thread that the package starts, so that a test can kill it
const threads = new Set()
workerThreads.Worker = class extends workerThreads.Worker {
  constructor(...args) {
    super(...args)
    threads.add(this)
    this.on('exit', () => threads.delete(this))
  }
}
syncBuiltinESMExports()
const killWorkers = async () => void (await Promise.all([...threads].map((thread) => thread.terminate())))

const built = await bundle(['test/home.ts', 'test/cases.ts'], 'test')
const home = await import(pathToFileURL(path.join(built, 'home.js')).href)
const { runCases } = await import(pathToFileURL(path.join(built, 'cases.js')).href)

globalThis.readData = async (name) => new Uint8Array(readFileSync(path.join(options.data, name)))
const devices = options.webgpu ? ['cpu', 'webgpu'] : ['cpu']
for (const device of devices) {
  for (const [name, body] of Object.entries(home.tests)) await test(`${device}: ${name}`, () => body({ device, killWorkers }))
  await test(`${device}: values and gradients of every operation`, async () => assert.deepEqual(await runCases(device), []))
}
if (options.native)
  for (const device of devices) {
    const examples = device === 'cpu' ? [['mlp-sin', 50], ['transformer-add', 50]] : [['mlp-sin', 50]]
    if (options.data) examples.push(...FROM_FILES[device])
    for (const [example, steps] of examples)
      await test(`${device}: ${example} learns as native C does`, async () =>
        checkCurve(await home.curve(example, device, 5, steps), nativeCurve(options.native, example, 5, steps, options.data)))
  }
if (options.data) await test('cpu: what the examples say that learn from files', () => home.learnedFromFiles('cpu', 60))

await test('cpu: mlp-sin makes over 1,000 steps a second', () => checkManySteps(home.speed))
if (options.native)
  await test('cpu: a step of transformer-add in at most four times the native time', () => checkAgainstNative(home.speed, options.native))

/** A program of its own: what it prints. */
function program(source, environment = {}) {
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', source], {
    cwd: path.join(web, 'build'), encoding: 'utf8', timeout: 60000, env: { ...process.env, ...environment },
  })
  return `${done.stdout}${done.status === 0 ? '' : `[${done.status ?? done.signal}] ${done.stderr}`}`.trim()
}
const small = `import { compileModule, Module, sumAll } from 'tensorgrad'
class M extends Module { w = this.param([2]) }
const model = await compileModule(() => new M(), (m) => sumAll(m.w))
await model.step({})
console.log(model.device)`
await test('a program that forgets destroy() ends all the same', () => assert.match(program(small, { TENSORGRAD_DEVICE: 'cpu' }), /^cpu \(simd128[^:]*\)$/))
await test('no GPU: the CPU, and why', () =>
  assert.match(program(small, { VK_DRIVER_FILES: '/nowhere', VK_ICD_FILENAMES: '/nowhere' }), /cpu \(simd128.*\): (no WebGPU adapter|the package webgpu is not installed)/))
await test('no GPU, and WebGPU demanded: an error that says why', () =>
  assert.match(program(small, { TENSORGRAD_DEVICE: 'webgpu', VK_DRIVER_FILES: '/nowhere', VK_ICD_FILENAMES: '/nowhere' }),
    /DeviceError: compile: WebGPU cannot be used: (no WebGPU adapter|the package webgpu is not installed|the only WebGPU adapter executes nothing)/))
if (options.webgpu) {
  const many = (count, more = '') => `import { readFileSync } from 'node:fs'
import { compileModule, Module, mul, sumAll } from 'tensorgrad'
class M extends Module { w = this.param([2], { init: 'ones' }) }
const loaded = () => process.platform !== 'linux' || /swiftshader|nvidia|libGLX|radeon|intel/i.test(readFileSync('/proc/self/maps', 'utf8'))
const models = []
for (let i = 0; i < ${count}; i++) {
  const model = await compileModule(() => new M(), (m) => sumAll(mul(m.w, m.w)), { device: 'webgpu' })
  const loss = await model.step({})
  if (loss !== 2) throw new Error('model ' + i + ': ' + loss)
  ${more}
}
for (const model of models) if (await model.step({}) !== 2) throw new Error('another loss')
await new Promise((resolve) => setTimeout(resolve, 500))
console.log('done', loaded())`
  await test('thirty models on the GPU in turn, and its driver stays loaded', () => assert.equal(program(many(30, 'await model.destroy()')), 'done true'))
  await test('eight models on the GPU at once', () => assert.equal(program(many(8, 'models.push(model)')), 'done true'))
}
await test('an unknown TENSORGRAD_DEVICE is said', () => {
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', small], {
    cwd: path.join(web, 'build'), encoding: 'utf8', env: { ...process.env, TENSORGRAD_DEVICE: 'gpu', VK_DRIVER_FILES: '/nowhere', VK_ICD_FILENAMES: '/nowhere' },
  })
  assert.match(done.stderr, /TENSORGRAD_DEVICE is "gpu", not auto, cpu or webgpu: ignored/)
})
for (const [example, steps] of [['mlp-sin', 30], ['transformer-add', 5]])
  await test(`${example} on two threads: the losses of one, bit for bit`, async () => {
    const [one, two] = [await home.threadedLosses(example, 1, steps), await home.threadedLosses(example, 2, steps)]
    assert.deepEqual(two.losses, one.losses)
    assert.match(one.device, /simd128, 1 thread\)/)
    assert.match(two.device, /simd128, 2 threads\)/)
  })
await test('twenty models on three threads, one after another, leave no thread', async () => {
  const count = () => (process.platform === 'linux' ? readdirSync('/proc/self/task').length : 0)
  const run = async () => assert.match((await home.threadedLosses('mlp-sin', 3, 1)).device, /3 threads/)
  const settled = () => new Promise((resolve) => setTimeout(resolve, 300))
  await run()
  await settled()
  const before = count()
  for (let i = 0; i < 20; i++) await run()
  await settled()
  assert.ok(count() <= before + 3, `${before} threads of the system before, ${count()} after`)
})
await test('threads: what is no count is refused', async () => {
  for (const wrong of [0, -1, 1.5, 17, NaN]) await assert.rejects(home.threadedLosses('mlp-sin', wrong, 1), /threads is .*, not a whole number from 1 to 16/)
})
finish()
