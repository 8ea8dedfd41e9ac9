// Headless Chromium as the system has it, with WebGPU on the processor (SwiftShader), on a GPU ('real'; for bench/), or with none.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const places = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome', '/usr/lib/chromium/chromium']
export const executablePath = places.find((place) => place && existsSync(place))

const quiet = ['--headless=new', '--no-sandbox', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run']
const withGpu = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--enable-features=Vulkan', '--use-vulkan=swiftshader']
const withRealGpu = ['--enable-unsafe-webgpu', '--enable-features=Vulkan', '--ignore-gpu-blocklist']
const withoutGpu = ['--disable-gpu', '--disable-features=WebGPU']

export function launch(webgpu) {
  if (executablePath === undefined) throw new Error('there is no chromium: scripts/setup.sh web installs it')
  return chromium.launch({ executablePath, args: [...quiet, ...(webgpu === 'real' ? withRealGpu : webgpu ? withGpu : withoutGpu)] })
}

/** Threads that run workers in the browsers of this process, as Linux counts them. */
export function workerThreads() {
  const parentOf = new Map()
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) parentOf.set(pid, fromProc(`${pid}/stat`).replace(/^.*\) /s, '').split(' ')[1])
  const isOurs = (pid) => pid !== undefined && (pid === String(process.pid) || isOurs(parentOf.get(pid)))
  const names = [...parentOf.keys()].filter(isOurs).flatMap((pid) => tasksOf(pid).map((task) => fromProc(`${pid}/task/${task}/comm`)))
  return names.filter((name) => name.startsWith('DedicatedWorker')).length
}
/** '': it has just ended. */
function fromProc(file) {
  try {
    return readFileSync(`/proc/${file}`, 'utf8')
  } catch {
    return ''
  }
}
function tasksOf(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`)
  } catch {
    return []
  }
}
