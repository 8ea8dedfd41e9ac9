// Cuts work that would keep a page from drawing into pieces. Must not know what the work is.

/** The length of a piece: a page draws every 16 ms, and other work needs time too. */
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

/** Calls body for each item, in order, with pauses between. */
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
