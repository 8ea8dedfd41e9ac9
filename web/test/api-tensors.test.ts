// Tensors in JavaScript's operators, in the console and in texts.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { format, inspect } from 'node:util'
import * as tg from '../src/index.js'
import { thrown, topFile, usePlatform } from './api-support.js'

usePlatform()

type Loose = (x: never, y: never) => unknown
const operators: Record<string, Loose> = {
  '>': (x, y) => x > y, '<': (x, y) => x < y, '>=': (x, y) => x >= y, '<=': (x, y) => x <= y,
  '+': (x, y) => x + y, '-': (x, y) => (x as number) - y, '*': (x, y) => (x as number) * y, '/': (x, y) => (x as number) / y,
  '%': (x, y) => (x as number) % y, '**': (x, y) => (x as number) ** y, '== 2': (x) => x == (2 as never), '== "2"': (x) => x == ('2' as never),
  'unary -': (x) => -x, 'unary +': (x) => +x, '|': (x, y) => (x as number) | y, 'Math.max': (x, y) => Math.max(x, y), Number: (x) => Number(x),
  'new Float32Array': (x) => Float32Array.of(x), 'text +': (x) => 'the value ' + (x as string),
}

test('operators are refused with the operations that were meant', () => {
  class Model extends tg.Module {
    w = this.param([2, 3])
  }
  const model = new Model()
  tg.trace(() => {
    const x = tg.tensorInput('x', [2, 3])
    for (const [name, operator] of Object.entries(operators))
      for (const [a, b] of [[x, 2], [2, x], [x, x], [model.w, 2]]) {
        if (a === 2 && !/^[-+*/%><|]/.test(name) && name !== 'Math.max') continue
        const error = thrown(() => operator(a as never, b as never))
        assert.ok(error instanceof tg.TraceError, name)
        assert.match(error.message, /^Tensor f32\[2, 3\] is no number while it is traced: .*greater\(x, 0\).*less.*equal.*add\(x, 1\).*mul\(x, 2\).*where\(c, a, b\)/)
        assert.equal(topFile(error), 'api-tensors.test.js', name)
      }
    return tg.sum(x)
  })
})

test('the console, texts and JSON show dtype and shape', () => {
  const x = tg.trace(() => tg.tensorInput('x', [2, 3], 'i32')).result, text = 'Tensor i32[2, 3]'
  assert.equal(String(x), text)
  assert.equal(`${x}`, text)
  assert.equal(x.toString(), text)
  assert.equal(inspect(x), text)
  assert.equal(inspect({ x }), `{ x: ${text} }`)
  assert.equal(format('%s %o', x, x), `${text} ${text}`)
  assert.equal(JSON.stringify({ x }), `{"x":"${text}"}`)
  assert.equal([x, x].join(), `${text},${text}`)
  assert.equal(x === x && !!x, true)
  class Model extends tg.Module {
    w = this.param([4])
  }
  assert.equal(inspect(new Model()), 'Model { w: Tensor f32[4] }')
  assert.equal(JSON.stringify(new Model()), '{"w":"Tensor f32[4]"}')
})
