// The worker's entry in the one-file build: that of any browser, but a text is the packed core, to be answered with the compiled one.

import { unpackText } from './unpack.js'
import { receive } from './worker-browser.js'

const scope = self as unknown as { onmessage: unknown; postMessage(message: unknown): void }

scope.onmessage = (event: MessageEvent) => {
  if (typeof event.data !== 'string') receive(event)
  else WebAssembly.compile(unpackText(event.data)).then((module) => scope.postMessage(module), reportError) // to the page's worker.onerror
}
