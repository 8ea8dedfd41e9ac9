// Captures: the values of named tensors that a step or run brought back. Must not know devices.

import { blame, NotFoundError } from './errors.js'
import { shown } from './options.js'
import type { CaptureMessage } from './protocol.js'
import type { DataArray, Dtype, Shape } from './types.js'

export class Captures {
  readonly #items = new Map<string, CaptureMessage>()

  constructor(items: readonly CaptureMessage[]) {
    for (const item of items) this.#items.set(item.name, item)
  }

  /** The values, row-major, in the tensor's own dtype. */
  get<A extends DataArray = Float32Array>(name: string): A {
    return this.#find(name, this.get).data as A
  }

  shapeOf(name: string): Shape {
    return this.#find(name, this.shapeOf).shape
  }

  dtypeOf(name: string): Dtype {
    return this.#find(name, this.dtypeOf).dtype
  }

  has(name: string): boolean {
    return this.#items.has(name)
  }

  /** The names, sorted. */
  names(): string[] {
    return [...this.#items.keys()].sort()
  }

  #find(name: string, above: unknown): CaptureMessage {
    const item = this.#items.get(name)
    if (item !== undefined) return item
    const known = this.names().join(', ') || 'none: the graph captures nothing'
    throw blame(new NotFoundError(`captures: there is no ${JSON.stringify(name)} (captures: ${known})`), above)
  }
}
shown(Captures, (captures) => `Captures (${captures.names().map((name) => `${name} ${captures.dtypeOf(name)}[${captures.shapeOf(name).join(', ')}]`).join(', ') || 'none'})`)
