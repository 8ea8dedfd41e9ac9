// Shared by the runners: counting, native curves.

import { execFileSync } from 'node:child_process'

/** test(name, body) runs at once and counts; finish() prints "N passed, N failed" and ends the
 *  process. ONLY=text: those whose name has it. */
export function runner(where) {
  let passed = 0
  const failures = []
  async function test(name, body) {
    if (process.env.ONLY !== undefined && !name.includes(process.env.ONLY)) return
    const start = performance.now()
    try {
      const said = await body()
      passed++
      const ms = performance.now() - start
      console.log(`ok      ${where}: ${name}${said === undefined ? '' : ` (${said})`}${ms > 1000 ? ` ${(ms / 1000).toFixed(1)} s` : ''}`)
    } catch (error) {
      failures.push(name)
      console.log(`FAILED  ${where}: ${name}\n  ${String(error?.stack ?? error).split('\n').slice(0, 12).join('\n  ')}`)
    }
  }
  function finish() {
    console.log(`${passed} passed, ${failures.length} failed`)
    process.exit(failures.length > 0 || passed === 0 ? 1 : 0)
  }
  return { test, finish }
}

/** Examples that learn from files, and how many of their steps are compared. */
export const FROM_FILES = { cpu: [['digits-cnn', 20], ['makemore', 50], ['char-gru', 10]], webgpu: [['digits-cnn', 2], ['makemore', 20]] }

const curves = new Map()
/** Losses of the first steps of the native program on its CPU. `data`: the folder of
 *  scripts/get-data. */
export function nativeCurve(program, example, seed, steps, data) {
  const key = `${example} ${seed}`
  if ((curves.get(key)?.length ?? 0) < steps) {
    const folder = data === undefined ? [] : ['--data', data]
    const text = execFileSync(program, ['train', example, '--device', 'cpu', '--seed', seed, '--steps', Math.max(50, steps), '--json', ...folder], { encoding: 'utf8' })
    curves.set(key, text.trim().split('\n').map((line) => JSON.parse(line).loss))
  }
  return curves.get(key).slice(0, steps)
}

/** mlp-sin makes over 1,000 steps a second on the CPU, waited for one by one or not. `measure`:
 *  speed() of home.ts. */
export async function checkManySteps(measure) {
  const { awaited, inFlight } = await measure('mlp-sin', 'cpu', 300, 20, 1)
  const said = `${Math.round(1000 / awaited)} steps a second waited for, ${Math.round(1000 / inFlight)} in flight`
  if (!(awaited < 1 && inFlight < 1)) throw new Error(said)
  return said
}

/** A step of transformer-add on the CPU takes at most four times as long as natively on one thread
 *  with AVX2. */
export async function checkAgainstNative(measure, program) {
  let ours = Infinity, native = Infinity
  for (let round = 0; round < 4 && !(Number.isFinite(ours) && ours <= 4 * native); round++) { // a busy machine lengthens either: the best count
    const { awaited, inFlight } = await measure('transformer-add', 'cpu', 15, 2, 0)
    ours = Math.min(ours, awaited, inFlight)
    const text = execFileSync(program, ['bench', 'transformer-add', '--device', 'cpu', '--threads', 1, '--steps', 30, '--json'],
      { encoding: 'utf8', env: { ...process.env, TENSORGRAD_ISA: 'avx2' } })
    native = Math.min(native, JSON.parse(text).ms_per_step)
  }
  const said = `${ours.toFixed(1)} ms, natively ${native.toFixed(1)}: ${(ours / native).toFixed(1)} times`
  if (!(Number.isFinite(ours) && ours <= 4 * native)) throw new Error(said)
  return said
}

/** 1e-4 relative at every step. Says what was seen. */
export function checkCurve({ losses, device, msPerStep }, native) {
  const errors = losses.map((loss, i) => Math.abs(loss - native[i]) / Math.abs(native[i]))
  const worst = Math.max(...errors)
  if (!(worst <= 1e-4)) throw new Error(`${device}: step ${errors.indexOf(worst) + 1}: ${losses[errors.indexOf(worst)]}, natively ${native[errors.indexOf(worst)]} (${worst.toExponential(1)})`)
  return `${losses.length} steps on ${device}, ${msPerStep.toFixed(1)} ms each, within ${worst.toExponential(1)}`
}
