// A thread's entry in a browser.

import { thread } from './thread.js'
import type { ThreadMessage } from './threads.js'

const receive = thread((message) => postMessage(message), () => close())
onmessage = (event: MessageEvent<ThreadMessage>): void => receive(event.data)
