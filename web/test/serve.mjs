// A static server on localhost for tests and the demo: folders by prefix, no cache. Headers by path
// for tests of policies.

import { createServer } from 'node:http'
import { readFile } from 'node:fs/promises'
import path from 'node:path'

const types = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml', '.json': 'application/json',
}

/** mounts: { '/dist/': folder, ... }, the longest prefix wins; a function answers with text.
 *  Resolves to { url, close }. */
export async function serve(mounts, port = 0, headers = () => ({})) {
  const prefixes = Object.keys(mounts).sort((a, b) => b.length - a.length)
  const server = createServer(async (request, response) => {
    const name = decodeURIComponent(new URL(request.url, 'http://localhost').pathname)
    const prefix = prefixes.find((each) => name.startsWith(each))
    try {
      const mount = mounts[prefix]
      const within = name.slice(prefix.length) || 'index.html'
      if (typeof mount !== 'function' && path.relative(mount, path.join(mount, within)).startsWith('..')) throw new Error('outside')
      const body = typeof mount === 'function' ? mount(within) : await readFile(path.join(mount, within))
      const type = types[path.extname(within)] ?? 'application/octet-stream'
      response.writeHead(200, { 'content-type': type, 'cache-control': 'no-store', ...headers(name) }).end(body)
    } catch {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('not found')
    }
  })
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve))
  return { url: `http://localhost:${server.address().port}`, close: () => server.close() }
}
