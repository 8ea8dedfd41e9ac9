// Headless Chromium as the system has it, with WebGPU on the processor (SwiftShader), on a GPU
// ('real'; for bench/), or with none.

import { existsSync } from 'node:fs'
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
