// No name of the C library reaches a user of the package: every text of the core that can become a
// message is translated.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { errorOfStatus } from '../src/errors.js'
import { inJavaScript } from '../src/names.js'
import * as tg from '../src/index.js'
import { aGraph, FakePort, rejection, thrown, usePlatform } from './api-support.js'

const root = process.env['TENSORGRAD_ROOT'] as string

/** What is no message: code that is emitted, names of files, environment and formats. */
const OTHER_TEXT = /\.(h|inc|dll|so|dylib|cache|json)$|@compute|@builtin|@group|^TENSORGRAD_|^XDG_|^F8_|data_offsets|^lib|[&|;{}]|tg_text_add|^allow_unsafe_apis$|^vulkan_|TENSORGRAD_TUNING/
/** What the page's core is built without, and what emits code. */
const leftOut = /^left_out='(.*)'$/m.exec(readFileSync(path.join(root, 'scripts/build-wasm'), 'utf8'))?.[1] as string
const OTHER_FILES = new RegExp(`${leftOut}|^src/emit/|_(avx2|avx512|neon)\\.c$`)
const C_NAME = /\b[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+\b/

function* texts(): Generator<{ file: string; text: string }> {
  const within = (folder: string) => (readdirSync(path.join(root, folder), { recursive: true }) as string[]).map((file) => `${folder}/${file}`)
  for (const name of [...within('src'), ...within('web/core')])
    if (name.endsWith('.c') && !OTHER_FILES.test(name))
      for (const [, text] of readFileSync(path.join(root, name), 'utf8').matchAll(/"((?:[^"\\\n]|\\.)*)"/g)) yield { file: name, text: text as string }
}

test('no text of the core names a C function, option or constant', () => {
  let names = 0
  for (const { file, text } of texts()) {
    if (!C_NAME.test(text) || OTHER_TEXT.test(text)) continue
    names++
    // a name alone is what a message begins with, or an option within one
    const isName = /^\w+$/.test(text)
    const spoken = isName ? [inJavaScript(`${text}: no`), inJavaScript(`optimizer: ${text} must be over 0`)] : [inJavaScript(text)]
    assert.ok(spoken.some((each) => !C_NAME.test(each)), `${file}: "${text}" reads ${spoken.join(' or ')}`)
  }
  assert.ok(names > 60, `${names} names found`) // else the pattern is out of date
})

test('what such messages say', () => {
  const says = (message: string) => errorOfStatus(1, message).message
  assert.equal(says('compile: the loss must be rank 0, got [4]: reduce it with tg_mean or tg_sum'), 'compile: the loss must be rank 0, got [4]: reduce it with mean or sum')
  assert.equal(says('set_lr: a learning rate must be finite and at least 0, got -1'), 'setLR: a learning rate must be finite and at least 0, got -1')
  assert.equal(says('step: this is a forward model: use tg_run'), 'step: this is a forward model: use run')
  assert.equal(says('optimizer: beta1 must be in [0, 1), got 2'), 'optimizer: b1 must be in [0, 1), got 2')
  assert.equal(says('optimizer: clip_norm must be finite and at least 0, got nan'), 'optimizer: clipNorm must be finite and at least 0, got nan')
  assert.equal(says('use tg_nn_split_heads'), 'use splitHeads')
})

test('what a user named stays as it is', () => {
  const said = 'log_softmax: x_in[2, 3] and clip_norm[3], "weight_decay", set_lr: in src/target_loss.ts\n  clip_norm: input at tg_run.ts:3:4'
  assert.equal(inJavaScript(said), 'logSoftmax: x_in[2, 3] and clip_norm[3], "weight_decay", set_lr: in src/target_loss.ts\n  clip_norm: input at tg_run.ts:3:4')
})

test('a size that does not compile is told the call that needs it', async () => {
  class Model extends tg.Module {
    l = new tg.nn.Linear(2, 3)
  }
  const port = new FakePort({ compileSize: () => new Promise(() => undefined), step: () => ({ loss: 1, captures: null }) })
  usePlatform(() => port)
  const compile = () => tg.compileModule(() => new Model(), (m, { x }) => tg.sum(m.l.fwd(x)), { inputs: { x: { shape: [null, 2] } } })
  const model = await compile()
  const stopped = rejection(model.step({ x: new Float32Array(8) })), ran = rejection(model.run({ x: new Float32Array(8) }))
  setTimeout(() => port.crash('stack overflow'), 20)
  assert.equal((await stopped).message, 'step: the worker is gone: stack overflow')
  assert.equal((await ran).message, 'run: the worker is gone: stack overflow')
  assert.equal((await rejection(model.inspect('ir'))).message, 'inspect: the worker is gone: stack overflow')
  usePlatform(() => new FakePort({ compileForward: () => aGraph }))
  const other = await compile()
  await other.destroy()
  assert.equal((await rejection(other.resetOptimizerState())).message, 'resetOptimizerState: the model is destroyed')
  assert.equal(thrown(() => tg.logSoftmax(new Model().l.W)).message.split(':')[0], 'logSoftmax')
})
