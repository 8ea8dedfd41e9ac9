// Native test suites as WebAssembly: node test/suites.mjs FOLDER [--cpu] [--webgpu] [SUITE...], or
// --list for all names. Runs each SUITE.wasm of scripts/build-wasm-tests on the CPU here, and some
// in headless Chromium on WebGPU (SwiftShader); --cpu or --webgpu selects one of the two. Ends with
// "N passed, N failed", which count the suites' own cases.

import { readFileSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { bundle } from './bundle.mjs'
import { launch } from './chromium.mjs'
import { serve } from './serve.mjs'

const ON_CPU = [
  'test_ops', 'test_conv', 'test_nn', 'test_gradients', 'test_random_graphs', 'test_contract', 'test_vm', 'test_optim', 'test_fusion', 'test_life',
  'test_net_curves', 'test_identities', 'test_reports', 'test_sums',
]
const ON_WEBGPU = ['test_ops', 'test_random_graphs', 'test_identities', 'test_sums']

if (process.argv[2] === '--list') {
  console.log(ON_CPU.join(' '))
  process.exit()
}
const folder = path.resolve(process.argv[2])
const homes = process.argv.slice(3).filter((word) => word.startsWith('--'))
const names = process.argv.slice(3).filter((word) => !word.startsWith('--'))
const wanted = (home) => (suite) => (homes.length === 0 || homes.includes(home)) && (names.length === 0 || names.includes(suite))
const built = await bundle(['test/suite.ts'], 'suite')
let passed = 0, failed = 0

/** Adds up what a suite says, in cmocka's words. */
function count(where, { code, output }, ms) {
  const said = (word) => Number(new RegExp(`^\\[  ${word}\\s+\\] (\\d+) test`, 'm').exec(output)?.[1] ?? 0)
  const bad = said('FAILED') || Number(code !== 0 || said('PASSED') === 0)
  passed += said('PASSED')
  failed += bad
  console.log(`${bad ? 'FAILED ' : 'ok     '} ${where}: ${said('PASSED')} passed, ${said('SKIPPED')} skipped ${(ms / 1000).toFixed(1)} s`)
  if (bad) console.log(output.split('\n').filter((line) => !/^\[/.test(line) || /FAILED/.test(line)).slice(-40).join('\n'))
}

async function timed(where, body) {
  const start = performance.now()
  const ended = await body().catch((error) => ({ code: 1, output: String(error?.stack ?? error) }))
  count(where, ended, performance.now() - start)
}

const { runSuite } = await import(pathToFileURL(path.join(built, 'suite.js')).href)
for (const suite of ON_CPU.filter(wanted('--cpu')))
  await timed(`wasm, cpu: ${suite}`, () => runSuite(new WebAssembly.Module(readFileSync(path.join(folder, `${suite}.wasm`))), 'cpu'))

const inBrowser = ON_WEBGPU.filter(wanted('--webgpu'))
if (inBrowser.length > 0) {
  const server = await serve({ '/built/': built, '/suites/': folder, '/page': () => '<!doctype html><title>suites</title>', '/favicon.ico': () => '' })
  const browser = await launch(true)
  for (const suite of inBrowser)
    await timed(`browser, webgpu: ${suite}`, async () => {
      const page = await (await browser.newContext()).newPage()
      await page.goto(`${server.url}/page`)
      return page.evaluate(async (name) => {
        const { runSuite } = await import('/built/suite.js')
        return runSuite(await WebAssembly.compile(await (await fetch(`/suites/${name}.wasm`)).arrayBuffer()), 'webgpu')
      }, suite).finally(() => page.context().close())
    })
  await browser.close()
  server.close()
}
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed > 0 || passed === 0 ? 1 : 0)
