// Builds the demo page into web/build/demo: node demo/build.mjs [--serve PORT].
import { copyFileSync, existsSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { bundle, web } from '../test/bundle.mjs'
import { serve } from '../test/serve.mjs'

const { values: options } = parseArgs({ options: { serve: { type: 'string' } } })
const out = await bundle(['demo/demo.ts'], 'demo')
const built = path.join(web, 'dist/tensorgrad.js')
if (!existsSync(built)) throw new Error(`${built} is not there: node build.mjs makes it`)
copyFileSync(built, path.join(out, 'tensorgrad.js'))
for (const file of ['index.html', 'demo.css']) copyFileSync(path.join(web, 'demo', file), path.join(out, file))
copyFileSync(path.join(web, 'node_modules/uplot/dist/uPlot.min.css'), path.join(out, 'uPlot.min.css'))
if (options.serve !== undefined) {
  const { url } = await serve({ '/': out }, Number(options.serve))
  console.log(`the demo is at ${url} (Ctrl-C ends it)`)
}
