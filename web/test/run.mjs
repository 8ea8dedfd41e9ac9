// Runs the API's tests: every TypeScript file becomes JavaScript in the same folder layout
// (unbundled: the tests tell the library's frames from their own), then node:test runs
// test/*.test.js. Arguments: names of tests to keep ("api-ops"). TENSORGRAD_WASM: the core's file.

import { build, transform } from 'esbuild'
import { spawnSync } from 'node:child_process'
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const web = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const out = path.resolve(web, '../build/web/api')

const sources = (folder) =>
  readdirSync(path.join(web, folder), { recursive: true })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts'))
    .map((name) => path.join(web, folder, name))

/** Examples say `from 'tensorgrad'`, as a user does. */
function nameTheSource(file, source = '../src/index.js') {
  const text = readFileSync(file, 'utf8')
  writeFileSync(file, text.replaceAll(/from "tensorgrad"/g, `from "${source}"`))
}

rmSync(out, { recursive: true, force: true })
await build({
  absWorkingDir: web,
  entryPoints: ['src', 'test', 'examples'].flatMap(sources),
  outbase: web,
  outdir: out,
  format: 'esm',
  platform: 'node',
  target: 'es2022',
  logLevel: 'warning',
})
writeFileSync(path.join(out, 'package.json'), '{ "type": "module" }')
for (const name of readdirSync(path.join(out, 'examples'))) nameTheSource(path.join(out, 'examples', name))

for (const name of ['compat.js', 'safetensors.js']) nameTheSource(path.join(out, 'src', name), './index.js')

/** The programs of the pages are tests: they run to their end. */
const programs = ['README.md', 'COMING-FROM.md'].flatMap((page) => [...readFileSync(path.join(web, page), 'utf8').matchAll(/```ts\n([^]*?)```/g)])
for (const [n, [, program]] of programs.entries()) {
  const { code } = await transform(program, { loader: 'ts', format: 'esm', target: 'es2022' })
  writeFileSync(path.join(out, 'test', `api-readme-${n}.test.js`), 
    code.replaceAll(/from "tensorgrad"/g, 'from "../src/node.js"').replaceAll(/from "tensorgrad\/compat"/g, 'from "../src/compat.js"; import "../src/node.js"'))
}

// What src/node.ts looks for beside itself.
const wasm = path.resolve(process.env.TENSORGRAD_WASM ?? path.join(web, '../build/wasm/core.wasm'))
copyFileSync(wasm, path.join(out, 'src/tensorgrad.wasm'))
writeFileSync(path.join(out, 'src/node-worker.js'), "import './worker-node.js'\n")

const wanted = process.argv.slice(2)
const tests = readdirSync(path.join(out, 'test'))
  .filter((name) => /^api.*\.test\.js$/.test(name) && (wanted.length === 0 || wanted.some((each) => name.includes(each))))
  .map((name) => path.join(out, 'test', name))
const env = { ...process.env, TENSORGRAD_WASM: wasm, TENSORGRAD_ROOT: path.resolve(web, '..') }
const { status } = spawnSync(process.execPath, ['--test', '--test-concurrency=1', ...tests], { stdio: 'inherit', env })
process.exit(status ?? 1)
