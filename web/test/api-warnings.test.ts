// Warnings: programs that compile but most likely contain a mistake.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import * as tg from '../src/index.js'
import { placeIn } from '../src/warnings.js'
import { FakePort, posted, rejection, usePlatform } from './api-support.js'

class Model extends tg.Module {
  l = new tg.nn.Linear(2, 3)
}
const inputs = { x: { shape: [4, 2] } } as const
const loss = (m: Model, { x }: { x: tg.Tensor }) => tg.sum(m.l.fwd(x))

/** What the console is told meanwhile. */
async function said(body: () => Promise<unknown>): Promise<string[]> {
  const real = console.warn, lines: string[] = []
  console.warn = (...all: unknown[]) => void lines.push(all.join(' '))
  try {
    await body()
  } finally {
    console.warn = real
  }
  return lines
}

test('a training model without an optimizer: the console once a place, or onWarning', async () => {
  usePlatform()
  const compile = () => tg.compileModule(() => new Model(), loss, { inputs })
  const lines = await said(async () => (await compile(), await compile()))
  assert.equal(lines.length, 1)
  assert.match(lines[0] as string, /^tensorgrad: compileModule: there is no optimizer: a step computes loss and gradients and changes nothing: give one, as in \{ adam: \{ lr: 0\.001 \} \} \(.*api-warnings\.test\.js:\d+:\d+\)$/)
  const told: tg.Warning[] = []
  const quiet = await said(() => tg.compileModule(() => new Model(), loss, { inputs, onWarning: (warning) => void told.push(warning) }))
  assert.deepEqual(quiet, [])
  assert.equal(told.length, 1)
  assert.ok(told[0]?.message.startsWith('compileModule: there is no optimizer') && told[0].site?.file.endsWith('api-warnings.test.js'))
})

test('no warning where something changes: an optimizer, a writeback, a forward pass', async () => {
  usePlatform()
  const lines = await said(async () => {
    await tg.compileModule(() => new Model(), loss, { inputs, sgd: { lr: 1 } })
    await tg.compileForward(() => new Model(), loss, { inputs })
    await tg.compileModule(() => new Model(), (m, { x }) => {
      tg.writeback(m.l.W, tg.mul(m.l.W, 0.9))
      return loss(m, { x })
    }, { inputs })
    await tg.compileModule(() => new Model(), (m, { x }) => {
      const value = loss(m, { x })
      tg.appendOptimizer(value, { sgd: { lr: 1 } })
      return value
    }, { inputs })
  })
  assert.deepEqual(lines, [])
})

test('what the core warns of reaches onWarning, of siblings too', async () => {
  const message = 'the parameter unused.W has no gradient: declared at file:///app/model.ts:12:3'
  usePlatform(() => new FakePort({}, { createRuntime: [message], compileForward: ['another'] }))
  const told: tg.Warning[] = []
  const options = { inputs, sgd: { lr: 1 }, onWarning: (warning: tg.Warning) => void told.push(warning) }
  const model = await tg.compileModule(() => new Model(), loss, options)
  await model.compileForward(loss, { inputs })
  assert.deepEqual(told, [{ message, site: { file: 'file:///app/model.ts', line: 12, column: 3 } }, { message: 'another', site: null }])
  assert.equal((await rejection(tg.compileModule(() => new Model(), loss, { inputs, onWarning: 'no' as never }))).message, 'compileModule: onWarning is "no", not a function')
})

test('the place that a warning of the core begins with is its site, and stands once', async () => {
  const text = 'compile: made, but never used, so it does not learn: b.W'
  usePlatform(() => new FakePort({}, { createRuntime: [`file:///app/model.ts:12:3: ${text}`] }))
  const compile = (more: object) => tg.compileModule(() => new Model(), loss, { inputs, sgd: { lr: 1 }, ...more })
  const told: tg.Warning[] = []
  await compile({ onWarning: (warning: tg.Warning) => void told.push(warning) })
  assert.deepEqual(told, [{ message: text, site: { file: 'file:///app/model.ts', line: 12, column: 3 } }])
  assert.deepEqual(await said(() => compile({})), [`tensorgrad: ${text} (file:///app/model.ts:12:3)`])
})

test('what the core warns of later comes with any answer, of a call that fails too', async () => {
  const none = posted('DeviceError', 'reset: the device is lost', 9)
  usePlatform(() => new FakePort({ step: () => ({ loss: 0.5, captures: null }), reset: () => Promise.reject(none) }, {
    step: ['step: steps change nothing: made at file:///app/model.ts:12:3', 'a second'], reset: ['the device is lost'],
  }))
  const told: tg.Warning[] = []
  const model = await tg.compileModule(() => new Model(), loss, { inputs, sgd: { lr: 1 }, onWarning: (warning) => void told.push(warning) })
  assert.equal(told.length, 0)
  assert.equal(await model.step({ x: new Float32Array(8) }), 0.5)
  assert.deepEqual(told.splice(0).map(({ message, site }) => [message.slice(0, 10), site?.line]), [['step: step', 12], ['a second', undefined]])
  assert.match((await rejection(model.reset())).message, /lost/)
  assert.deepEqual(told, [{ message: 'the device is lost', site: null }])
})

test('threads that cannot be: said, with what to do', async () => {
  usePlatform()
  const lines = await said(() => tg.compileForward(() => new Model(), loss, { inputs, device: 'cpu', threads: 2 }))
  assert.equal(lines.length, 1)
  assert.match(lines[0] as string, /^tensorgrad: compileForward: one thread instead of 2: /)
})

test('places in texts', () => {
  const place = (file: string) => ({ file, line: 3, column: 4 })
  assert.deepEqual(placeIn('made at http://localhost:8080/app.js:3:4'), place('http://localhost:8080/app.js'))
  assert.deepEqual(placeIn('x (src/model.ts:3:4) is'), place('src/model.ts'))
  assert.equal(placeIn('compile: nothing at 3:4'), null)
})
