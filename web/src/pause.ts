// Work that would keep a page from drawing, cut into pieces. Knows not what the work is.

/** A piece's length: a page draws every 16 ms, and other work wants its share. */
const SLICE_MS = 8

/** Lets everything that waits for this thread run, drawing included. */
export function pause(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel()
    port1.onmessage = () => {
      port1.close()
      resolve()
    }
    port2.postMessage(null)
  })
}

/** body of each item, in their order, with pauses between. */
export async function inSlices<T>(items: readonly T[], body: (item: T) => void): Promise<void> {
  let end = performance.now() + SLICE_MS
  for (const item of items) {
    if (performance.now() > end) {
      await pause()
      end = performance.now() + SLICE_MS
    }
    body(item)
  }
}
