// The worker's entry in Node. WebGPU comes from the package `webgpu` (Dawn), where it is installed.

import { parentPort, Worker } from 'node:worker_threads'
import type { TransferListItem } from 'node:worker_threads'
import { serve } from './worker.js'
import type { Request } from './protocol.js'
import type { Thread } from './threads.js'

let found: GPU | null | undefined // kept: the package's adapters live as long as this does

async function gpu(): Promise<GPU | null> {
  if (found !== undefined) return found
  const name = 'webgpu' // not resolved by bundlers: it is optional
  const dawn = (await import(/* @vite-ignore */ name).catch(() => null)) as { create(flags: string[]): GPU } | null
  return (found = dawn === null ? null : dawn.create([]))
}

/** What is not one of the three counts as not set, and is said. */
function deviceOfEnvironment(): string {
  const device = process.env['TENSORGRAD_DEVICE'] || 'auto'
  if (['auto', 'cpu', 'webgpu'].includes(device)) return device
  process.emitWarning(`TENSORGRAD_DEVICE is ${JSON.stringify(device)}, not auto, cpu or webgpu: ignored`)
  return 'auto'
}

function startThread(): Thread {
  const worker = new Worker(new URL('./node-thread.js', import.meta.url), { execArgv: [] })
  worker.unref()
  return {
    post: (message) => worker.postMessage(message),
    onMessage: (listener) => {
      worker.on('message', listener)
      worker.on('error', () => listener(null))
    },
    terminate: () => void worker.terminate(),
  }
}

const receive = serve(
  { gpu, startThread, noGpu: 'the package webgpu is not installed', device: deviceOfEnvironment(), adapter: process.env['TENSORGRAD_ADAPTER'] ?? '' },
  (message, transfer) => parentPort?.postMessage(message, transfer as TransferListItem[]),
)
parentPort?.on('message', (request: Request) => receive(request))
