// Builds the package into dist/ from the sources and the compiled cores: node build.mjs [--wasm FOLDER] [--no-types].
//   tensorgrad.js          browsers, everything in one file: core and worker are inlined
//   webgpu.js              the same without the CPU executor
//   split.js worker.js tensorgrad.wasm     for bundlers and strict policies: no blob:, no eval
//   node.js node-worker.js                 Node; shares the .wasm
//   thread.js node-thread.js tensorgrad-threads.wasm     what split.js and node.js load where threads are asked for
//   compat.js compat.d.ts  names of version 0.4, over whichever of these `tensorgrad` is
//   tensorgrad.d.ts        the types, of all of them
import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import esbuild from 'esbuild'
import ts from 'typescript'
import { pack } from './pack.mjs'

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

/** The end of the statement that is nearest to the middle of a module's text. */
function middleOf(text) {
  const ends = ts.createSourceFile('shared.js', text, ts.ScriptTarget.ES2022).statements.map((statement) => statement.end)
  return ends.reduce((best, end) => (Math.abs(end - text.length / 2) < Math.abs(best - text.length / 2) ? end : best), 0)
}

/** Page and worker both contain the shared code. Each half of the worker's copy follows directly after
 *  that half of the page's: gzip looks back 32 KiB, so the second copy compresses to nothing. */
async function inlined(name, bytes) {
  const { outputFiles } = await esbuild.build({
    ...common, entryPoints: ['src/browser.ts', 'src/worker-inlined.ts'], splitting: true, outdir: dist, write: false,
    define: { INLINED_WORKER: '$worker', INLINED_CORE: '$core' },
  })
  const part = (start) => outputFiles.find((file) => path.basename(file.path).startsWith(start)).text.trim()
  const renamed = (names) => names.replaceAll(/([\w$]+) as ([\w$]+)/g, '$1:$2')
  const returned = (names) => `return{${names.replaceAll(/([\w$]+) as ([\w$]+)/g, '$2:$1')}}`
  const [, text, exported] = /^([^]*)export\{([^}]*)\};$/.exec(part('chunk-')), middle = middleOf(text)
  const halves = [text.slice(0, middle), text.slice(middle) + returned(exported)]
  const cut = (own) => {
    const [whole, names] = /^import\{([^}]*)\}from"\.\/chunk-\w+\.js";/.exec(own)
    return [`const{${renamed(names)}}=(()=>{`, own.slice(whole.length)]
  }
  const quoted = (plain) => `'${plain.replaceAll(/[\\']/g, '\\$&').replaceAll('\n', '\\n')}'`
  const [before, page] = cut(part('browser')), [workerBefore, worker] = cut(part('worker-inlined'))
  const first = `${halves[0]};$half=${quoted(`${workerBefore}${halves[0]};`)};`
  const second = `${halves[1]}})();const $worker=$half+${quoted(`${halves[1]}})();${worker}`)};`
  const packed = Buffer.from(pack(bytes)).toString('base64')
  writeFileSync(`${dist}/${name}.js`, `let $half;${before}${first}${second}${page}const $core="${packed}"\n`)
}

async function types() {
  const bundler = `${here}node_modules/dts-bundle-generator/dist/bin/dts-bundle-generator.js`
  const done = spawnSync(process.execPath, [bundler, '--project', 'tsconfig.types.json', '--no-banner', '--no-check',
    '--export-referenced-types=false', '-o', 'dist/tensorgrad.d.ts', 'src/index.ts'], { cwd: here, encoding: 'utf8' })
  if (done.status !== 0) throw new Error(`dts-bundle-generator: ${done.stderr}${done.stdout}`)
  const file = `${dist}/tensorgrad.d.ts`
  writeFileSync(file, await withoutForeignValues(readFileSync(file, 'utf8').replace(/\n(?:export \{\};\n)+$/, '\n')))
}

/** The bundler forgets that a class is exported as a type alone: a value is what the package has at run time. */
async function withoutForeignValues(text) {
  const values = Object.keys(await import(`${dist}/node.js`)), types = []
  const plain = text.replaceAll(/^export (declare (?:abstract )?class (\w+))/gm, (whole, declared, name) => {
    if (values.includes(name)) return whole
    types.push(name)
    return declared
  })
  return types.length === 0 ? plain : `${plain}\nexport type { ${types.join(', ')} };\n`
}

/** What src/compat.ts declares, the package's own types by their name. */
function compatTypes() {
  const folder = mkdtempSync(path.join(tmpdir(), 'tensorgrad-compat-'))
  try {
    const tsc = `${here}node_modules/typescript/bin/tsc`
    const done = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.types.json', '--rootDir', 'src', '--outDir', folder], { cwd: here, encoding: 'utf8' })
    if (done.status !== 0) throw new Error(`tsc: ${done.stdout}${done.stderr}`)
    const read = (name) => readFileSync(`${folder}/${name}.d.ts`, 'utf8')
    const own = read('safetensors').replace(/^import [^\n]*\n/gm, '').replace(/^export \{\};\n/m, '')
    writeFileSync(`${dist}/compat.d.ts`, `${read('compat').replace(/^export \{[^\n]*'\.\/safetensors\.js';\n/m, '')}\n${own}`)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

rmSync(dist, { recursive: true, force: true })
mkdirSync(dist, { recursive: true })
await inlined('tensorgrad', core('core'))
await inlined('webgpu', core('core-gpu'))
await bundle('split', 'split')
await bundle('worker-split', 'worker')
await bundle('thread-browser', 'thread')
await bundle('compat', 'compat', { external: ['tensorgrad'] })
await bundle('node', 'node', { platform: 'node' })
await bundle('worker-node', 'node-worker', { platform: 'node' })
await bundle('thread-node', 'node-thread', { platform: 'node' })
copyFileSync(`${wasm}/core.wasm`, `${dist}/tensorgrad.wasm`)
copyFileSync(`${wasm}/core-threads.wasm`, `${dist}/tensorgrad-threads.wasm`)
for (const file of ['LICENSE']) copyFileSync(`${here}../${file}`, `${here}${file}`)
if (!options['no-types']) {
  await types()
  compatTypes()
}
