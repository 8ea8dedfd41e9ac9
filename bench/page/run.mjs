// Measures tensorgrad, jax-js and tfjs in headless Chromium, on one page of localhost: node bench/page/run.mjs [--rounds N] [--budget MS]
// [--isolated] [--only WORKLOAD] [--alone]. One JSON line for each system and workload: on the CPU, then on WebGPU where the browser has an adapter
// that is not the processor. What is not installed is a line that says how to get it. --isolated: cross-origin isolation, which gives a page
// threads (jax-js and tfjs use them). --alone: no peers.

import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const here = path.dirname(fileURLToPath(import.meta.url))
const root = path.resolve(here, '../..')
const say = (line) => console.log(JSON.stringify(line))
const GET = 'make bench-peers'

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '8' }, budget: { type: 'string', default: '400' },
    isolated: { type: 'boolean', default: false }, only: { type: 'string' }, alone: { type: 'boolean', default: false },
  },
})

const installed = (file) => existsSync(path.join(root, file))
for (const [file, what] of [['web/node_modules/esbuild', 'esbuild and playwright-core'], ['web/dist/tensorgrad.js', 'the package (web/dist)']])
  if (!installed(file)) {
    say({ system: 'browser', missing: `${what}: not there; ${GET} gets it` })
    process.exit(0)
  }
const { serve } = await import('../../web/test/serve.mjs')
const { executablePath, launch } = await import('../../web/test/chromium.mjs')
if (executablePath === undefined) {
  say({ system: 'browser', missing: 'Chromium: not installed; scripts/setup.sh web or the variable CHROMIUM' })
  process.exit(0)
}

const packages = { 'jax-js': '@jax-js/jax', tfjs: '@tensorflow/tfjs-core' }
const version = (name) => JSON.parse(readFileSync(path.join(root, 'bench/node_modules', name, 'package.json'), 'utf8')).version
const wanted = options.alone ? [] : Object.keys(packages)
const present = wanted.filter((system) => installed(`bench/node_modules/${packages[system]}`))
for (const system of wanted)
  if (!present.includes(system)) say({ system, missing: `${packages[system]}: not installed; ${GET} gets it` })

// ---------------------------------------------------------------- the page

const built = path.join(root, 'build/bench-page')
const { default: esbuild } = await import('../../web/node_modules/esbuild/lib/main.js')
const absent = { // a peer that is not installed: its module is empty, and never loaded
  name: 'absent peers',
  setup(build) {
    build.onResolve({ filter: /^tensorgrad$/ }, () => ({ path: '/dist/tensorgrad.js', external: true }))
    build.onResolve({ filter: /^@(jax-js|tensorflow)\// }, ({ path: name, importer }) =>
      importer.includes('node_modules') || installed(`bench/node_modules/${name}`) ? undefined : { path: name, namespace: 'absent' })
    build.onLoad({ filter: /.*/, namespace: 'absent' }, () => ({ contents: 'module.exports = {}' }))
  },
}
await esbuild.build({
  absWorkingDir: here, entryPoints: ['main.js'], outdir: built, bundle: true, splitting: true, format: 'esm', target: 'es2022', minify: true,
  plugins: [absent], logLevel: 'error',
})
const isolation = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' }
const server = await serve(
  {
    '/favicon.ico': () => '', '/dist/': path.join(root, 'web/dist'), '/built/': built,
    '/tfjs-wasm/': path.join(root, 'bench/node_modules/@tensorflow/tfjs-backend-wasm/dist'),
    '/page.html': () => '<!doctype html><meta charset="utf-8"><title>bench</title><script type="module" src="/built/main.js"></script>',
  },
  0, () => (options.isolated ? isolation : {}),
)

async function measureOn(browser, workload, systems, adapter = null) {
  const page = await browser.newPage()
  page.on('pageerror', (error) => console.error(`page: ${error}`))
  await page.goto(`${server.url}/page.html`)
  await page.waitForFunction(() => globalThis.run !== undefined)
  const results = await page.evaluate(([name, all, how]) => globalThis.run(name, all, how),
    [workload, systems, { rounds: Number(options.rounds), budget: Number(options.budget), batchCount: 200 }])
  await page.close()
  const [ours] = results
  for (const { losses, ...result } of results)
    say({
      workload, ...result, isolated: options.isolated, adapter,
      version: result.system in packages ? version(packages[result.system]) : undefined, ...curve(losses, ours.losses),
    })
}
/** That the same work is measured: the same first loss, and losses that go on alike. */
function curve(losses, ours) {
  if (losses === undefined) return {}
  const apart = (i) => Math.abs(losses[i] - ours[i]) / Math.abs(ours[i])
  return { loss_first: losses[0], loss_last: losses.at(-1), apart_first: apart(0), apart: Math.max(...losses.slice(0, 5).map((_, i) => apart(i))) }
}

const all = (device, peer) => [['tensorgrad', device], ...present.map((system) => [system, peer])]
const names = ['mlp-sin', 'transformer-add'].filter((name) => options.only === undefined || options.only === name)
try {
  const browser = await launch(false)
  say({ system: 'browser', version: browser.version() })
  for (const name of names) await measureOn(browser, name, all('cpu', 'wasm'))
  await browser.close()

  const gpu = await launch('real')
  const page = await gpu.newPage()
  await page.goto(`${server.url}/page.html`)
  const adapter = await page.waitForFunction(() => globalThis.adapter).then(() => page.evaluate(() => globalThis.adapter()))
  await page.close()
  if (adapter === null) say({ system: 'browser', missing: 'WebGPU: the browser has no adapter that is a GPU' })
  else for (const name of names) await measureOn(gpu, name, all('webgpu', 'webgpu'), adapter)
  await gpu.close()
} finally {
  server.close()
}
