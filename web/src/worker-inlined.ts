// The worker's entry in the one-file build: that of any browser, except that a message that is a
// text is the packed core, and is answered with the compiled module.

import { unpackText } from './unpack.js'
import { receive } from './worker-browser.js'

const scope = self as unknown as { onmessage: unknown; postMessage(message: unknown): void }

scope.onmessage = (event: MessageEvent) => {
  if (typeof event.data !== 'string') receive(event)
  else WebAssembly.compile(unpackText(event.data)).then((module) => scope.postMessage(module), reportError) // to the page's worker.onerror
}
