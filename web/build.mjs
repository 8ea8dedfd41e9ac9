// Builds the package into dist/ from the sources and the compiled cores: node build.mjs [--wasm FOLDER] [--no-types].
//   tensorgrad.js          browsers, everything in one file: core and worker are inlined
//   webgpu.js              the same without the CPU executor
//   split.js worker.js tensorgrad.wasm     for bundlers and strict policies: no blob:, no eval
//   node.js node-worker.js                 Node; shares the .wasm
//   tensorgrad.d.ts        the types, of all of them
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { deflateRawSync } from 'node:zlib'
import esbuild from 'esbuild'

const here = fileURLToPath(new URL('.', import.meta.url))
const { values: options } = parseArgs({ options: { wasm: { type: 'string' }, 'no-types': { type: 'boolean' } } })
const wasm = options.wasm ?? `${here}../build/wasm`
const dist = `${here}dist`

const common = {
  bundle: true, minify: true, format: 'esm', target: 'es2022', legalComments: 'none', sourcemap: false, logLevel: 'warning', absWorkingDir: here,
}
const core = (name) => {
  const file = `${wasm}/${name}.wasm`
  if (!existsSync(file)) throw new Error(`${file} is not there: scripts/build-wasm makes it`)
  return readFileSync(file)
}

async function bundle(entry, name, more = {}) {
  await esbuild.build({ ...common, entryPoints: [`src/${entry}.ts`], outfile: `${dist}/${name}.js`, ...more })
}

async function inlined(name, bytes) {
  const worker = await esbuild.build({ ...common, entryPoints: ['src/worker-browser.ts'], write: false })
  const define = {
    INLINED_WORKER: JSON.stringify(worker.outputFiles[0].text.trim()),
    INLINED_CORE: JSON.stringify(deflateRawSync(bytes, { level: 9, memLevel: 9 }).toString('base64')),
    INLINED_CORE_SIZE: String(bytes.length),
  }
  await bundle('browser', name, { define })
}

function types() {
  const bundler = `${here}node_modules/dts-bundle-generator/dist/bin/dts-bundle-generator.js`
  const done = spawnSync(process.execPath, [bundler, '--project', 'tsconfig.types.json', '--no-banner', '--no-check',
    '--export-referenced-types=false', '-o', 'dist/tensorgrad.d.ts', 'src/index.ts'], { cwd: here, encoding: 'utf8' })
  if (done.status !== 0) throw new Error(`dts-bundle-generator: ${done.stderr}${done.stdout}`)
  const file = `${dist}/tensorgrad.d.ts`
  writeFileSync(file, readFileSync(file, 'utf8').replace(/\n(?:export \{\};\n)+$/, '\n'))
}

rmSync(dist, { recursive: true, force: true })
mkdirSync(dist, { recursive: true })
await inlined('tensorgrad', core('core'))
await inlined('webgpu', core('core-gpu'))
await bundle('split', 'split')
await bundle('worker-browser', 'worker')
await bundle('node', 'node', { platform: 'node' })
await bundle('worker-node', 'node-worker', { platform: 'node' })
copyFileSync(`${wasm}/core.wasm`, `${dist}/tensorgrad.wasm`)
for (const file of ['LICENSE']) copyFileSync(`${here}../${file}`, `${here}${file}`)
if (!options['no-types']) types()
