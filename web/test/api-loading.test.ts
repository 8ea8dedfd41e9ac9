// If the core or a worker does not load, the error says what to do, and a later try can succeed.

import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import * as tg from '../src/index.js'
import { compileCore, fetchCore, notStarted } from '../src/loading.js'
import { setPlatform } from '../src/platform.js'
import { portOf } from '../src/port.js'
import { FakePort, rejection, topFile } from './api-support.js'

const bytes = readFileSync(process.env['TENSORGRAD_WASM'] as string)
const url = new URL('https://a.b/tensorgrad.wasm')
class Model extends tg.Module {
  l = new tg.nn.Linear(2, 3)
}
const compile = () => tg.compileModule(() => new Model(), (m, { x }) => tg.sum(m.l.fwd(x)), { inputs: { x: { shape: [4, 2] } } })

/** The message of a fetch that goes this way. */
async function fetched(answer: () => Response | Promise<Response>): Promise<string> {
  const real = globalThis.fetch
  globalThis.fetch = async () => answer()
  try {
    const error = await rejection(fetchCore(url))
    assert.ok(error instanceof tg.WorkerError, error.stack)
    return error.message
  } finally {
    globalThis.fetch = real
  }
}

test('a core that does not come', async () => {
  assert.equal(await fetched(() => Promise.reject(new TypeError('Failed to fetch'))),
    "the core does not load: https://a.b/tensorgrad.wasm: Failed to fetch: is the page offline, or does its policy (connect-src) or the server's (CORS) forbid it?")
  assert.equal(await fetched(() => new Response('', { status: 404, statusText: 'Not Found' })),
    'the core does not load: https://a.b/tensorgrad.wasm: 404 Not Found: the file must lie beside the program: does the bundler copy it?')
  assert.match(await fetched(() => new Response('<!doctype html><title>App</title>', { headers: { 'content-type': 'text/html' } })),
    /^the core does not load: https:\/\/a\.b\/tensorgrad\.wasm is a page \(HTML\): the server answers with something else: tensorgrad\.wasm must lie beside/)
  assert.match(await fetched(() => new Response('version https://git-lfs')), /is no WebAssembly: /)
  assert.match(await fetched(() => new Response(new Uint8Array(0))), /is no WebAssembly: /)
  const broken = new ReadableStream({ pull: (controller) => controller.error(new TypeError('terminated')) })
  assert.match(await fetched(() => new Response(broken)), /: terminated: the connection broke off: try again$/)
  assert.match(await fetched(() => new Response(bytes.subarray(0, 1000))), /^the core does not start: WebAssembly\.compile\(\): /)
})

test('the right file under a wrong type is taken', async () => {
  const real = globalThis.fetch
  globalThis.fetch = async () => new Response(bytes, { headers: { 'content-type': 'text/plain' } })
  try {
    assert.ok((await fetchCore(url)) instanceof WebAssembly.Module)
  } finally {
    globalThis.fetch = real
  }
  assert.ok((await compileCore(new Uint8Array(bytes), 'here')) instanceof WebAssembly.Module)
})

test('a policy that forbids WebAssembly, in the words of three engines', () => {
  const remedy = ": the page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to its script-src"
  for (const said of [
    "WebAssembly.compile(): Compiling or instantiating WebAssembly module violates the following Content Security policy directive because neither 'wasm-eval' nor 'unsafe-eval' is an allowed source of script",
    'call to WebAssembly.compile() blocked by CSP',
    "Refused to create a WebAssembly object because 'unsafe-eval' or 'wasm-unsafe-eval' is not an allowed source of script",
    'WebAssembly.Module(): Wasm code generation disallowed by embedder',
  ])
    assert.equal(notStarted(new Error(said)).message, `the core does not start: ${said}${remedy}`)
})

test('an engine without SIMD, and one without WebAssembly', () => {
  const { validate } = WebAssembly, real = globalThis.WebAssembly
  try {
    WebAssembly.validate = () => false
    assert.match(notStarted(new Error('invalid value type')).message, /: this browser has no SIMD in WebAssembly/)
    WebAssembly.validate = validate
    assert.equal(notStarted(new Error('other')).message, 'the core does not start: other')
    Reflect.deleteProperty(globalThis, 'WebAssembly')
    assert.match(notStarted(new ReferenceError('WebAssembly is not defined')).message, /: this browser has no WebAssembly/)
  } finally {
    globalThis.WebAssembly = real
    WebAssembly.validate = validate
  }
})

test('compiling says so at the line of the call, and the next try goes well', async () => {
  let tries = 0
  const loadModule = () => (++tries === 1 ? Promise.reject(new Error('blocked by CSP')) : WebAssembly.compile(bytes))
  setPlatform({ loadModule, startWorker: () => new FakePort() })
  const error = await rejection(compile())
  assert.ok(error instanceof tg.WorkerError && topFile(error) === 'api-loading.test.js', error.stack)
  assert.match(error.message, /^the core does not start: blocked by CSP: the page's Content-Security-Policy/)
  assert.ok(await compile())
})

test('workers that a page cannot have', async () => {
  const hint = ': is worker.js beside this file?'
  const blocked = () => portOf(() => { throw new Error("Failed to construct 'Worker'") }, 'w', hint)
  setPlatform({ loadModule: () => WebAssembly.compile(bytes), startWorker: blocked })
  const none = await rejection(compile())
  assert.ok(none instanceof tg.WorkerError && topFile(none) === 'api-loading.test.js', none.stack)
  assert.equal(none.message, 'compileModule: the worker does not start: there are no workers here') // in Node
  const scope = globalThis as { Worker?: unknown }
  scope.Worker = class {}
  try {
    assert.equal((await rejection(compile())).message, `compileModule: the worker does not start: Failed to construct 'Worker'${hint}`)
  } finally {
    delete scope.Worker
  }
})

test('files of the package that were not taken along, in Node', async () => {
  const source = path.dirname(fileURLToPath(new URL('../src/node.js', import.meta.url)))
  const folder = mkdtempSync(path.join(tmpdir(), 'tensorgrad-loading-'))
  try {
    const copy = async (name: string, left: RegExp) => {
      cpSync(source, path.join(folder, name), { recursive: true, filter: (file) => !left.test(file) })
      cpSync(path.join(source, '../package.json'), path.join(folder, 'package.json'))
      const { compileModule, Module, nn, sum } = (await import(pathToFileURL(path.join(folder, name, 'node.js')).href)) as typeof tg
      class Small extends Module { l = new nn.Linear(2, 3) }
      return rejection(compileModule(() => new Small(), (m, { x }) => sum(m.l.fwd(x)), { inputs: { x: { shape: [4, 2] } } }))
    }
    const remedy = "the package's files must lie together: where a bundler packs the program, mark tensorgrad as external"
    const core = await copy('a', /\.wasm$/)
    assert.equal(core.name, 'WorkerError')
    assert.match(core.message, new RegExp(`^the core does not load: ENOENT.*tensorgrad\\.wasm.*: ${remedy}$`))
    const worker = await copy('b', /node-worker\.js$/)
    assert.equal(worker.name, 'WorkerError')
    assert.match(worker.message, new RegExp(`^compileModule: the worker is gone: it could not start: Cannot find module [^]*: ${remedy}$`))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
