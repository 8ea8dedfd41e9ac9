// Bundles a TypeScript file of the tests without the package, which it imports by name, as users
// do.

import esbuild from 'esbuild'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const web = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')

const byName = {
  name: 'the package by its name',
  setup(build) {
    build.onResolve({ filter: /^(tensorgrad|\.\.\/src\/index\.js)$/ }, () => ({ path: 'tensorgrad', external: true }))
  },
}

/** Writes `entries` (files under web/) to web/build/`folder`, from where Node finds the package by
 *  its own name. */
export async function bundle(entries, folder) {
  const outdir = path.join(web, 'build', folder)
  await esbuild.build({
    absWorkingDir: web, entryPoints: entries, outdir, bundle: true, format: 'esm', target: 'es2022', plugins: [byName], logLevel: 'warning',
    entryNames: '[name]',
  })
  return outdir
}
