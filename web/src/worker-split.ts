// The worker's entry as a file of its own: that of any browser, with threads from the file beside
// it.

import type { ThreadAnswer, ThreadMessage } from './threads.js'
import { setStartThread } from './worker-browser.js'

setStartThread(() => {
  const worker = new Worker(new URL('./thread.js', import.meta.url), { type: 'module' })
  return {
    post: (message: ThreadMessage) => worker.postMessage(message),
    onMessage: (listener) => {
      worker.onmessage = (event: MessageEvent<ThreadAnswer>) => listener(event.data)
      worker.onerror = (event) => {
        event.preventDefault() // else it is an error of the page too
        listener(null)
      }
    },
    terminate: () => worker.terminate(),
  }
})
