// Times systems on one page, in turn: each makes a few steps, then the next does, round after round, so that what else the machine does hits all
// alike. Every step waits for its loss. Knows no system: they come as { start(workload, device, parameters) }.

import { workloads } from './workloads.js'

const WARM = 3
const KEPT = 20 // losses that are handed back
const GRAIN = 10 // ms

function median(times) {
  const sorted = times.toSorted((a, b) => a - b)
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2
}

async function begin({ system, device, load }, workload, parameters, batches) {
  const entry = { system, device, times: [], losses: [], t: 0, steps: 0 }
  try {
    const began = performance.now()
    entry.running = await (await load()).start(workload, device, parameters)
    entry.where = entry.running.where
    for (let i = 0; i < WARM; i++) entry.losses.push(await entry.running.step(batches[entry.t++]))
    entry.startMs = performance.now() - began
  } catch (error) {
    entry.error = String(error?.message ?? error).slice(0, 300)
  }
  return entry
}

/** Steps of one system for about `budget` ms, one at least. What is kept is the mean of a few at a time: a page's clock may be as coarse as
 *  0.1 ms. */
async function turn(entry, batches, budget) {
  const end = performance.now() + budget
  do {
    const before = performance.now()
    let steps = 0, taken = 0
    do {
      const loss = await entry.running.step(batches[entry.t++ % batches.length])
      if (entry.losses.length < KEPT) entry.losses.push(loss)
      steps++
      taken = performance.now() - before
    } while (taken < GRAIN)
    entry.times.push(taken / steps)
    entry.steps += steps
  } while (performance.now() < end)
}

/** The same for calls that are not waited for one by one, where a system has such: ms a step, one number a turn. */
async function flight(entry, batches, budget) {
  if (entry.running.flight === undefined) return
  const count = Math.max(1, Math.min(200, Math.round(budget / median(entry.times))))
  const taken = Array.from({ length: count }, (_, i) => batches[(entry.t + i) % batches.length])
  entry.t += count
  const before = performance.now()
  await entry.running.flight(taken)
  entry.flights ??= []
  entry.flights.push((performance.now() - before) / count)
}

/** systems: [{ system, device, load }], ours first: it gives the initial parameters of all. */
export async function measure(workload, systems, { rounds, budget, batchCount }) {
  const batches = Array.from({ length: batchCount }, (_, i) => workloads[workload].batch(i + 1))
  const [ours] = systems
  const model = await (await ours.load()).start(workload, ours.device)
  const parameters = await model.parameters()
  await model.stop()

  const entries = []
  for (const each of systems) entries.push(await begin(each, workload, parameters, batches))
  for (let round = 0; round < rounds; round++)
    for (const entry of entries.filter((each) => each.error === undefined)) {
      try {
        await turn(entry, batches, budget)
        await flight(entry, batches, budget)
      } catch (error) {
        entry.error = String(error?.message ?? error).slice(0, 300)
      }
    }
  const results = []
  for (const { system, device, where, times, flights, losses, startMs, error, running, steps } of entries) {
    await running?.stop()
    results.push(error !== undefined ? { system, device, error } : {
      system, device, where, steps, ms_per_step: median(times), ms_min: Math.min(...times),
      ms_in_flight: flights === undefined ? null : median(flights), start_ms: startMs, losses,
    })
  }
  return results
}
