// The package in headless Chromium, as built: node test/browser.mjs [--native PROGRAM] [--data
// FOLDER]. Each test of home.ts on the CPU (no WebGPU there) and on WebGPU (SwiftShader); values of
// the operations; losses against native ones; what only a page has: long tasks, policies, a lost
// device, an adapter that comes late. Ends with "N passed, N failed".

import assert from 'node:assert/strict'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { bundle, web } from './bundle.mjs'
import { launch } from './chromium.mjs'
import { serve } from './serve.mjs'
import { checkAgainstNative, checkCurve, checkManySteps, FROM_FILES, nativeCurve, runner } from './support.mjs'

const { values: options } = parseArgs({ options: { native: { type: 'string' }, data: { type: 'string' } } })
const { test, finish } = runner('browser')
const SEED = 5

const built = await bundle(['test/home.ts', 'test/cases.ts'], 'test')
const page = (entry) => `<!doctype html><meta charset="utf-8"><title>tests</title>
<script type="importmap">{"imports":{"tensorgrad":"/dist/${entry}.js"}}</script><body>`
// What a careful site says: no blob:, no eval, nothing inline but the import map.
const isolated = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' }
const strict = "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"
const server = await serve(
  { '/favicon.ico': () => '', '/dist/': path.join(web, 'dist'), '/built/': built, ...(options.data && { '/data/': path.resolve(options.data) }), '/page/': (name) => page(name.replace('.html', '')), '/strict/': (name) => page(name.replace('.html', '')),
    '/isolated/': (name) => page(name.replace('.html', '')) },
  0, (name) => ({
    ...(name.startsWith('/strict/') || name.startsWith('/dist/') ? { 'content-security-policy': strict } : {}),
    ...(name.startsWith('/isolated/') || name.startsWith('/dist/') ? isolated : {}),
  }),
)

async function open(browser, where = '/page/tensorgrad.html') {
  const opened = await (await browser.newContext()).newPage()
  const said = []
  opened.on('console', (message) => message.type() === 'error' && said.push(message.text()))
  opened.on('pageerror', (error) => said.push(String(error)))
  await opened.exposeFunction('killWorkers', async () => {
    await Promise.all(opened.workers().map((worker) => worker.evaluate(() => self.close()).catch(() => undefined)))
  })
  await opened.goto(server.url + where)
  opened.said = said
  return opened
}
/** Runs in the page; what it throws is thrown here, with its message. */
async function inPage(opened, body, argument) {
  const { error, value } = await opened.evaluate(async ([source, given]) => {
    try {
      return { value: await (0, eval)(`(${source})`)(given) }
    } catch (thrown) {
      return { error: String(thrown?.stack ?? thrown) }
    }
  }, [body.toString(), argument])
  if (error !== undefined) throw new Error(error)
  return value
}

async function home(browser, device, examples) {
  const opened = await open(browser)
  const names = await inPage(opened, async () => {
    globalThis.readData = async (name) => new Uint8Array(await (await fetch(`/data/${name}`)).arrayBuffer())
    return Object.keys((globalThis.home = await import('/built/home.js')).tests)
  })
  for (const name of names)
    await test(`${device}: ${name}`, () => inPage(opened, ([n, d]) => globalThis.home.tests[n]({ device: d, killWorkers: globalThis.killWorkers }), [name, device]))
  await test(`${device}: values and gradients of every operation`, async () =>
    assert.deepEqual(await inPage(opened, async (d) => (await import('/built/cases.js')).runCases(d), device), []))
  for (const [example, steps] of options.native ? [...examples, ...(options.data ? FROM_FILES[device] : [])] : [])
    await test(`${device}: ${example} learns as native C does`, async () =>
      checkCurve(await inPage(opened, ([e, d, s, n]) => globalThis.home.curve(e, d, s, n), [example, device, SEED, steps]),
        nativeCurve(options.native, example, SEED, steps, options.data)))
  await test(`${device}: nothing on the console`, () => assert.deepEqual(opened.said, []))
  await opened.context().close()
}

// ---------------------------------------------------------------- a page without WebGPU

const plain = await launch(false)
await home(plain, 'cpu', [['mlp-sin', 50], ['transformer-add', 50]])

{
  const opened = await open(plain)
  const speed = (...given) => inPage(opened, async (all) => (await import('/built/home.js')).speed(...all), given)
  await test('cpu: mlp-sin makes over 1,000 steps a second', () => checkManySteps(speed))
  if (options.native)
    await test('cpu: a step of transformer-add in at most four times the native time', () => checkAgainstNative(speed, options.native))
  await opened.context().close()
}
await test('no WebGPU: the CPU, and why', async () => {
  const opened = await open(plain)
  const device = await inPage(opened, async () => {
    const { compileForward, Module, ones } = await import('tensorgrad')
    const model = await compileForward(() => new (class extends Module {})(), () => ones([2]))
    return model.device
  })
  assert.match(device, /^cpu \(simd128.*\): (this browser has no WebGPU|no WebGPU adapter)$/)
  await opened.context().close()
})
await test('no WebGPU where it is asked for: an error', async () => {
  const opened = await open(plain)
  await assert.rejects(inPage(opened, async () => (await import('/built/home.js')).curve('mlp-sin', 'webgpu', 1, 1)),
    /DeviceError: compile: WebGPU cannot be used: (this browser has no WebGPU|no WebGPU adapter)/)
  await opened.context().close()
})
/** The longest tasks of a page's first compile of transformer-add, core loaded and all, and of its
 *  second. */
async function longestTasks() {
  const opened = await open(plain)
  const longest = await inPage(opened, async () => {
    const { curve } = await import('/built/home.js')
    let task = 0
    const observer = new PerformanceObserver((list) => (task = Math.max(task, ...list.getEntries().map((entry) => entry.duration))))
    observer.observe({ type: 'longtask' }) // of 50 ms and more
    const compile = async () => {
      await new Promise((resolve) => setTimeout(resolve, 200))
      task = 0
      await curve('transformer-add', 'cpu', 1, 0)
      await new Promise((resolve) => setTimeout(resolve, 200))
      return task
    }
    return [await compile(), await compile()]
  })
  await opened.context().close()
  return longest
}
await test('compiling transformer-add never keeps the page from drawing for 50 ms', async () => {
  const seen = []
  const best = (compile) => Math.min(...seen.map((tasks) => tasks[compile]))
  do seen.push(await longestTasks()) // a busy machine lengthens any task: the best of several counts
  while (seen.length < 8 && (best(0) >= 50 || best(1) >= 50))
  const said = `longest tasks of each page's compiles, 0 for under 50 ms: ${seen.map((tasks) => tasks.map(Math.round).join(' and ')).join(', ')}`
  assert.ok(best(0) < 50 && best(1) < 50, said)
  return said
})
await test('the split build under a strict policy', async () => {
  const opened = await open(plain, '/strict/split.html')
  // evaluate() is the debugger's: the policy does not bind it, but it binds what the module does
  const result = await inPage(opened, async () => {
    let refused = false
    addEventListener('securitypolicyviolation', () => (refused = true))
    const { losses } = await (await import('/built/home.js')).curve('mlp-sin', 'cpu', 5, 3)
    return { losses, refused }
  })
  assert.equal(result.refused, false)
  assert.ok(result.losses.every(Number.isFinite))
  await opened.context().close()
})
await test('the one-file build under a strict policy: an error that says what to do', async () => {
  const opened = await open(plain, '/strict/tensorgrad.html')
  await assert.rejects(inPage(opened, async () => (await import('/built/home.js')).curve('mlp-sin', 'cpu', 5, 3)), /WorkerError.*tensorgrad\/split/s)
  await opened.context().close()
})
await test('threads in an isolated page: the losses of one, bit for bit, and none is left', async () => {
  const opened = await open(plain, '/isolated/split.html')
  const runs = await inPage(opened, async () => {
    const home = await import('/built/home.js')
    const runs = []
    for (const [example, steps] of [['mlp-sin', 30], ['transformer-add', 3]])
      for (const threads of [1, 2]) runs.push(await home.threadedLosses(example, threads, steps))
    for (let i = 0; i < 20; i++) runs.push(await home.threadedLosses('mlp-sin', 3, 1))
    return runs
  })
  for (const first of [0, 2]) {
    assert.match(runs[first].device, /1 thread\)/)
    assert.match(runs[first + 1].device, /2 threads\)/)
    assert.deepEqual(runs[first + 1].losses, runs[first].losses)
  }
  for (const run of runs.slice(4)) assert.match(run.device, /3 threads\)/)
  // of 24 models with up to three workers each: the driver's list is late, and misses the end of
  // one or another that died with its parent
  for (let i = 0; i < 100 && opened.workers().length > 0; i++) await opened.waitForTimeout(100)
  assert.ok(opened.workers().length <= 3, `${opened.workers().length} workers are left`)
  await opened.context().close()
})
for (const where of ['/page/split.html', '/isolated/tensorgrad.html'])
  await test(`threads where there are none, ${where}: one`, async () => {
    const opened = await open(plain, where)
    const { device } = await inPage(opened, async () => (await import('/built/home.js')).threadedLosses('mlp-sin', 2, 1))
    assert.match(device, /1 thread\)/)
    await opened.context().close()
  })
await plain.close()

// ---------------------------------------------------------------- a page with WebGPU

const gpu = await launch(true)
await home(gpu, 'webgpu', [['mlp-sin', 50], ['transformer-add', 10]])

/** Lines before the worker's own: what a faulty GPU does. */
async function faulty(prelude, body, argument, where) {
  const opened = await open(gpu, where)
  await opened.evaluate((source) => {
    const Plain = Blob
    globalThis.Blob = class extends Plain {
      constructor(parts, more) { super(more?.type === 'text/javascript' ? [source, '\n', ...parts] : parts, more) }
    }
  }, prelude)
  try {
    return await inPage(opened, body, argument)
  } finally {
    await opened.context().close()
  }
}
await test('the build for WebGPU alone', async () => {
  const opened = await open(gpu, '/page/webgpu.html')
  const { losses, device } = await inPage(opened, async () => (await import('/built/home.js')).curve('mlp-sin', 'auto', 5, 2))
  assert.match(device, /^webgpu \(/)
  assert.ok(losses.every(Number.isFinite))
  await assert.rejects(inPage(opened, async () => (await import('/built/home.js')).curve('mlp-sin', 'cpu', 5, 2)), /UnsupportedError: compile: this build of tensorgrad has no CPU/)
  await opened.context().close()
})
await test('a software adapter is not taken unless asked for', async () => {
  const opened = await open(gpu)
  const { device } = await inPage(opened, async () => (await import('/built/home.js')).curve('mlp-sin', 'auto', 5, 1))
  assert.match(device, /^cpu \(simd128.*\): the only WebGPU adapter is a software one \(.*\)$/)
  await opened.context().close()
})
const late = `const ask = navigator.gpu.requestAdapter.bind(navigator.gpu)
let asked = 0
navigator.gpu.requestAdapter = (options) => (asked++ === 0 ? Promise.resolve(null) : ask(options))`
await test('an adapter that is null on the first ask', async () => {
  const device = await faulty(late, async () => (await (await import('/built/home.js')).curve('mlp-sin', 'webgpu', 5, 1)).device)
  assert.match(device, /^webgpu \(/)
})
const losing = `const make = GPUAdapter.prototype.requestDevice
GPUAdapter.prototype.requestDevice = async function (...args) { return (globalThis.made = await make.apply(this, args)) }
new BroadcastChannel('lose').onmessage = () => globalThis.made.destroy()`
await test('a lost device: every call says so; recover() goes on from the snapshot', async () => {
  const result = await faulty(losing, async () => {
    const mlp = await import('tensorgrad')
    const { compileModule, Module, nn, matmul } = mlp
    class Line extends Module { W = this.param([3, 2]) }
    const model = await compileModule(() => new Line(), (m, { x, y }) => nn.mse(matmul(x, m.W), y),
      { adam: { lr: 0.1 }, inputs: { x: { shape: [null, 3] }, y: { shape: [null, 2] } }, batch: 4, device: 'webgpu' })
    const rows = (n) => ({ x: new Float32Array(3 * n).fill(0.5), y: new Float32Array(2 * n).fill(1) }), batch = rows(4)
    const sizes = async () => [await model.step(batch), await model.step(rows(2)), await model.step(rows(7)), await model.step(batch)].join()
    const message = async (promise) => promise.then(() => 'no error', (error) => `${error.name}: ${error.message}`)
    await model.step(rows(2))
    await model.snapshot()
    const kept = await model.downloadParams()
    const second = await sizes()
    new BroadcastChannel('lose').postMessage('now')
    await new Promise((resolve) => setTimeout(resolve, 200))
    const said = [await message(model.step(batch)), await message(model.downloadParams()), await message(model.reset())]
    await model.recover()
    const back = await model.downloadParams()
    return { said, same: back.W.every((value, i) => value === kept.W[i]), again: (await sizes()) === second }
  })
  for (const said of result.said) assert.match(said, /^DeviceLostError: webgpu: the device( \(.*\))? was lost/)
  assert.ok(result.same, 'the parameters are those of the snapshot')
  assert.ok(result.again, 'the next steps, of sizes there were and of new ones, are as they were')
})
const buffers = `let live = 0
const make = GPUDevice.prototype.createBuffer, destroy = GPUBuffer.prototype.destroy, gone = new WeakSet()
GPUDevice.prototype.createBuffer = function (d) { live++; return make.call(this, d) }
GPUBuffer.prototype.destroy = function () { if (!gone.has(this)) { gone.add(this); live-- } return destroy.call(this) }
const asked = new BroadcastChannel('buffers')
asked.onmessage = ({ data }) => data === 'how many' && asked.postMessage(live)`
await test('the buffers of a size go with it', async () => {
  const counts = await faulty(buffers, async () => {
    const channel = new BroadcastChannel('buffers')
    const count = () => new Promise((resolve) => {
      channel.onmessage = ({ data }) => typeof data === 'number' && resolve(data)
      channel.postMessage('how many')
    })
    const { compileModule, matmul, Module, nn } = await import('tensorgrad')
    class Line extends Module { W = this.param([3, 2]) }
    const model = await compileModule(() => new Line(), (m, { x, y }) => nn.mse(matmul(x, m.W), y),
      { adam: { lr: 0.1 }, inputs: { x: { shape: [null, 3] }, y: { shape: [null, 2] } }, maxSizes: 2, device: 'webgpu' })
    const step = (n) => model.step({ x: new Float32Array(3 * n).fill(0.5), y: new Float32Array(2 * n).fill(1) })
    const counts = []
    for (const sizes of [[3, 4], [5, 6], [7, 3], [4, 3]]) {
      for (let i = 0; i < 4; i++) for (const n of sizes) await step(n)
      counts.push(await count())
    }
    return counts
  })
  assert.ok(counts[0] > 0 && counts.every((each) => each === counts[0]), counts.join(', '))
  return `${counts[0]} buffers`
})
const counting = `const submit = GPUQueue.prototype.submit
let submissions = 0
GPUQueue.prototype.submit = function (...args) { submissions++; return submit.apply(this, args) }
const asked = new BroadcastChannel('submissions')
asked.onmessage = ({ data }) => data === 'how many' && asked.postMessage(submissions)`
await test('a step that takes long is cut into submissions, between which the page draws', async () => {
  const { perStep, ms } = await faulty(counting, async () => {
    const channel = new BroadcastChannel('submissions')
    const count = () => new Promise((resolve) => {
      channel.onmessage = ({ data }) => typeof data === 'number' && resolve(data)
      channel.postMessage('how many')
    })
    const { compileModule, matmul, meanLast, Module, mul, sumAll } = await import('tensorgrad')
    class Large extends Module { W = this.param([256, 256]) }
    const model = await compileModule(() => new Large(), (m, { x }) => {
      for (let i = 0; i < 6; i++) x = mul(matmul(x, m.W), meanLast(x))
      return sumAll(x)
    }, { inputs: { x: { shape: [128, 256] } }, device: 'webgpu' })
    const x = new Float32Array(128 * 256).fill(0.01)
    for (let i = 0; i < 3; i++) await model.step({ x })
    const before = await count(), start = performance.now()
    await model.step({ x })
    return { perStep: await count() - before, ms: performance.now() - start }
  })
  assert.ok(ms < 24 || perStep > 1, `${perStep} submissions in ${ms} ms`)
  return `${perStep} submissions in ${ms.toFixed(0)} ms`
})
const idle = 'GPUComputePassEncoder.prototype.dispatchWorkgroups = function () {}'
await test('a device that executes nothing is an error, and with auto the CPU, which says why', async () => {
  await assert.rejects(faulty(idle, async () => (await import('/built/home.js')).curve('mlp-sin', 'webgpu', 5, 1)),
    /DeviceError: compile: WebGPU cannot be used: the adapter .* does not pass its first computation: word 0 of the answer is 0, and right is \d+: it executes nothing/)
  const device = await faulty(idle, async () => {
    const { compileModule, Module, sumAll } = await import('tensorgrad')
    class M extends Module { w = this.param([2]) }
    return (await compileModule(() => new M(), (m) => sumAll(m.w), { device: 'auto', adapter: 'swift' })).device
  })
  assert.match(device, /^cpu \(simd128.*\): the adapter .* does not pass its first computation/)
})
// what goes wrong below goes wrong after that first computation: one shader, three buffers, one
// dispatch
const badShader = `const make = GPUDevice.prototype.createShaderModule
let made = 0
GPUDevice.prototype.createShaderModule = function (d) {
  return make.call(this, made++ === 0 ? d : { ...d, code: d.code.replace('fn main', '\\noops fn main') })
}`
await test('a shader that does not compile: kernel, compiler and shader in the message', async () => {
  await assert.rejects(faulty(badShader, async () => (await import('/built/home.js')).curve('mlp-sin', 'webgpu', 5, 1)),
    /DeviceError: webgpu: the shader of kernel \S+ does not compile on .*:\nline \d+: expected [\s\S]*\d  fn main/)
})
const badDispatch = `const dispatch = GPUComputePassEncoder.prototype.dispatchWorkgroups
let dispatched = 0
GPUComputePassEncoder.prototype.dispatchWorkgroups = function (...groups) { dispatch.call(this, ...(dispatched++ === 0 ? groups : [1e6, 1, 1])) }`
await test('what the device refuses is said by the call that did it', async () => {
  await assert.rejects(faulty(badDispatch, async () => (await import('/built/home.js')).curve('mlp-sin', 'webgpu', 5, 1)),
    /DeviceError: webgpu: running a step: .*1000000/s)
})
const noMemory = `const make = GPUDevice.prototype.createBuffer
let made = 0
GPUDevice.prototype.createBuffer = function (d) { return make.call(this, made++ < 3 ? d : { ...d, size: 2 ** 45 }) }`
await test('buffers that cannot be had', async () => {
  await assert.rejects(faulty(noMemory, async () => (await import('/built/home.js')).curve('mlp-sin', 'webgpu', 5, 1)), /(DeviceError|MemoryError): webgpu: compiling: /)
})
await gpu.close()
server.close()
finish()
