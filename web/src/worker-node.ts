// The worker's entry in Node. WebGPU comes from the package `webgpu` (Dawn), if it is installed.

import { parentPort, Worker, workerData } from 'node:worker_threads'
import type { TransferListItem } from 'node:worker_threads'
import { serve } from './worker.js'
import type { Request } from './protocol.js'
import type { Thread } from './threads.js'

const isKeeper = workerData === 'keep the driver' // a thread without models: see node.ts
let found: GPU | null | undefined // kept: the package's adapters live as long as this does

async function gpu(): Promise<GPU | null> {
  if (found !== undefined) return found
  const name = 'webgpu' // not resolved by bundlers: it is optional
  const dawn = (await import(/* @vite-ignore */ name).catch(() => null)) as { create(flags: string[]): GPU } | null
  found = dawn === null ? null : dawn.create([])
  if (found !== null && !isKeeper) parentPort?.postMessage('on a GPU')
  return found
}

/** Holds an adapter, so that its driver stays loaded. */
async function keepDriver(): Promise<void> {
  kept = (await (await gpu())?.requestAdapter()) ?? null
}
let kept: GPUAdapter | null = null

/** Any value except auto, cpu and webgpu counts as not set, with a warning. */
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

const home = {
  gpu, startThread, noGpu: 'the package webgpu is not installed', device: deviceOfEnvironment(), adapter: process.env['TENSORGRAD_ADAPTER'] ?? '',
}
if (!isKeeper) {
  const receive = serve(home, (message, transfer) => parentPort?.postMessage(message, transfer as TransferListItem[]))
  parentPort?.on('message', (request: Request) => receive(request))
} else {
  await keepDriver().catch(() => undefined)
  parentPort?.on('message', () => kept) // a thread that listens does not end
}
