// A thread's entry in Node.

import { parentPort } from 'node:worker_threads'
import { thread } from './thread.js'
import type { ThreadMessage } from './threads.js'

const receive = thread((message) => parentPort?.postMessage(message), () => parentPort?.close())
parentPort?.on('message', (message: ThreadMessage) => receive(message))
