// tensorgrad as its examples use it: the model lives in the library's worker, a step is awaited.

import { mlp, SEED, transformer } from './workloads.js'

/** device: 'cpu' (wasm) or 'webgpu'. */
export async function start(workload, device) {
  const { model } = await (workload === 'mlp-sin' ? mlp : transformer).compile({ seed: SEED, device })
  return {
    where: model.device,
    step: (batch) => model.step(batch),
    flight: (batches) => Promise.all(batches.map((batch) => model.step(batch))),
    parameters: () => model.downloadParams(),
    stop: () => model.destroy(),
  }
}
