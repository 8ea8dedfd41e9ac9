// Stacks of three engines, and errors across the worker's boundary.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { errorOfStatus, parseFrame, restoreError, serialiseError, userFrames } from '../src/errors.js'
import { DeviceError, DeviceLostError, NotFiniteError, ShapeError, TensorgradError } from '../src/index.js'
import { topFile } from './api-support.js'

const own = new URL('../src/ops.js', import.meta.url).href
const ownPath = own.replace('file://', '')

test('frames of V8, Firefox and Safari', () => {
  const place = { file: 'https://a.b/app.js', line: 12, column: 3 }
  for (const line of [
    '    at f (https://a.b/app.js:12:3)',
    '    at https://a.b/app.js:12:3',
    '    at new Model (https://a.b/app.js:12:3)',
    '    at async https://a.b/app.js:12:3',
    '    at async Promise.all (https://a.b/app.js:12:3)',
    '    at Object.f [as g] (https://a.b/app.js:12:3)',
    'f@https://a.b/app.js:12:3',
    '@https://a.b/app.js:12:3',
    'async*f@https://a.b/app.js:12:3',
    'module code@https://a.b/app.js:12:3',
  ])
    assert.deepEqual(parseFrame(line), place, line)
  for (const line of [
    'Error: at 3:4',
    'ShapeError: matmul: x[2, 3]',
    '  x: input at model.ts:12',
    '    at Array.map (<anonymous>)',
    '[native code]',
    'f@[native code]',
  ])
    assert.equal(parseFrame(line), null, line)
})

test('the library and the engine are left out', () => {
  const v8 = [
    'ShapeError: no',
    '  x: input at app.js:2',
    `    at add (${own}:1:2)`,
    `    at add (${ownPath}:1:2)`,
    '    at forward (file:///app/model.js:3:4)',
    '    at node:internal/main:1:1',
  ].join('\n')
  assert.equal(userFrames(v8), '    at forward (file:///app/model.js:3:4)')
  assert.equal(userFrames(`add@${own}:1:2\nforward@http://app/model.js:3:4\n`), 'forward@http://app/model.js:3:4')
  assert.equal(userFrames(`add@${own}:1:2`), `add@${own}:1:2`) // better than nothing
  assert.equal(userFrames(undefined), '')
})

test('errors made by hand begin with the caller, after one header', () => {
  const error = new ShapeError('no')
  assert.equal(topFile(error), 'api-errors.test.js')
  assert.equal(error.stack?.split('\n')[0], 'ShapeError: no')
})

test('every status has its class and survives the journey', () => {
  const names = new Set<string>()
  for (let status = 1; status <= 18; status++) {
    const error = errorOfStatus(status, `message ${status}`, { file: 'a.ts:3', line: 7 })
    const back = restoreError(structuredClone(serialiseError(error)), '    at call (file:///app.js:1:1)')
    assert.equal(back.constructor, error.constructor)
    assert.ok(back instanceof TensorgradError)
    assert.deepEqual(
      [back.name, back.message, back.status, back.site],
      [error.name, `message ${status}`, status, { file: 'a.ts', line: 3, column: 7 }],
    )
    assert.equal(back.stack, `${error.name}: message ${status}\n    at a.ts:3:7\n    at call (file:///app.js:1:1)`)
    names.add(error.name)
  }
  assert.equal(names.size, 17) // shapes and dtypes share one; TG_ERROR_IO cannot happen here
  assert.ok(errorOfStatus(2, '') instanceof ShapeError && errorOfStatus(3, '') instanceof ShapeError)
  assert.ok(errorOfStatus(13, '') instanceof DeviceError && errorOfStatus(13, '') instanceof DeviceLostError)
})

test('what is no error is one after the journey', () => {
  const back = restoreError(serialiseError('a text'), '')
  assert.equal(back.message, 'Error in the worker: a text')
  const notFinite = new NotFiniteError('nan')
  notFinite.loss = Infinity
  const restored = restoreError(structuredClone(serialiseError(notFinite)), '')
  assert.ok(restored instanceof NotFiniteError && restored.loss === Infinity)
})
