// A model and its siblings: owns the worker that they share and the queue of their calls. Calls go
// out in order. Must not check or change anything itself: the core in the worker does.

import type { Forward } from './compile-types.js'
import { StateError, type Frames } from './errors.js'
import { Module } from './module.js'
import { Connection, type GraphMessage, type RequestKind } from './protocol.js'
import { Sizes, type SizeArguments } from './sizes.js'
import { refuseNested } from './tensor.js'
import { writtenModel, type Plan } from './traced.js'
import type { InputSpecs } from './types.js'

export const ROOT = 1 // the graph number of a root

/** What a model and its siblings share: the worker, its device, its parameters. */
export class Family<M extends Module> {
  #lastGraph = ROOT
  /** The sizes that siblings use by default. */
  sizes: SizeArguments | null = null
  /** Resolves when the size being compiled is ready and the calls after it have gone out. Null if
   *  none is compiled. */
  #line: Promise<void> | null = null
  /** Resolves when the training runs asked for have ended. Null if there are none. */
  turn: Promise<void> | null = null
  constructor(
    readonly connection: Connection,
    readonly factory: (() => M) | null,
  ) {}

  nextGraph(): number {
    return ++this.#lastGraph
  }
  /** Numbers of data sets count like those of graphs. */
  readonly nextDataset = this.nextGraph
  /** Runs `body` after the training runs before it have ended. */
  inTurn<R>(body: () => Promise<R>): Promise<R> {
    const before = this.turn
    const result = before === null ? body() : before.then(body)
    const turn = result.then(() => undefined, () => undefined).then(() => {
      if (this.turn === turn) this.turn = null
    })
    this.turn = turn
    return turn.then(() => undefined).then(() => result) // after the calls that waited for it
  }
  /** Posts after the calls before have been posted, in order, and after what `prepare` begins has
   *  ended. */
  send<R>(prepare: () => void | Promise<void>, post: () => Promise<R>): Promise<R> {
    const ready = this.#line === null ? prepare() : this.#line.then(prepare)
    if (ready === undefined) return post()
    const result = ready.then(post)
    const line: Promise<void> = ready.catch(() => undefined).then(() => {
      if (this.#line === line) this.#line = null
    })
    this.#line = line
    return result
  }
  /** Resolves when every call so far has been answered; of a training run, the steps asked for so
   *  far. */
  async settled(): Promise<void> {
    await this.#line
    await this.connection.settled()
  }
  destroy(): Promise<void> {
    return this.connection.shutDown(ROOT, (what) => new StateError(`${what}: the model is destroyed`))
  }
}

/** Requests that change a model wait for the training runs before them. Those that read it are
 *  served between submissions. */
export const WAITS_FOR_TRAINING: ReadonlySet<RequestKind> = new Set<RequestKind>([
  'step', 'profile', 'uploadParams', 'reset', 'resetOptimizer', 'setLR', 'recover', 'compileForward',
])

export interface Started<M extends Module> {
  family: Family<M>
  graph: number
  message: GraphMessage
}

/** How the other sizes of a model are compiled, if it has any. */
export function sizesOf<M extends Module>(
  plan: Plan<M>,
  forward: Forward<M, InputSpecs>,
  training: boolean,
  { family, graph, message }: Started<M>,
  sizes: SizeArguments,
): Sizes | null {
  const specs = plan.options.inputs ?? {}, { connection } = family
  if (!Sizes.areNeeded(specs)) return null
  const compile = async (size: number, what: string, frames: Frames) => {
    refuseNested(frames)
    const bytes = await writtenModel(plan, forward, frames, false, training, size), number = family.nextGraph()
    return { graph: number, message: await connection.request({ kind: 'compileSize', graph: number, parent: graph, bytes }, [bytes.buffer], frames, what) }
  }
  const drop = (number: number) => void connection.request({ kind: 'destroy', graph: number }, [], () => '').catch(() => undefined)
  return new Sizes(specs, sizes, graph, message, compile, drop)
}
