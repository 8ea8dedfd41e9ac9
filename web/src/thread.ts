// A thread of a core with shared memory: an instance of the same module on the same memory, which
// runs the pool's loop when told to. Its kernels need only the functions of Math from the platform.

import type { ThreadAnswer, ThreadMessage } from './threads.js'

interface Exports {
  __stack_pointer: WebAssembly.Global
  thread_main(worker: number): void
  thread_died(worker: number): void
}

/** Returns the function to call with each message. Once the pool has ended, the thread reports it
 *  and closes itself. */
export function thread(post: (message: ThreadAnswer) => void, close: () => void): (message: ThreadMessage) => void {
  let x: Exports | null = null
  const refused = (name: string) => () => { throw new Error(`a thread called ${name}`) }
  return (message) => {
    if ('module' in message) {
      const imports: Record<string, WebAssembly.ImportValue> = {}
      for (const { module, name } of WebAssembly.Module.imports(message.module))
        if (module === 'tg') imports[name] = (Math as unknown as Record<string, () => number>)[name] ?? refused(name)
      x = new WebAssembly.Instance(message.module, { tg: imports, env: { memory: message.memory } }).exports as unknown as Exports
      post('ready')
    } else if (x !== null) {
      x.__stack_pointer.value = message.stackTop
      try {
        x.thread_main(message.worker)
      } catch (error) {
        x.thread_died(message.worker)
        throw error
      }
      post('ended')
      close()
    }
  }
}
