// Modules: names, tied parameters, and objects that cannot be a model.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  add,
  ArgumentError,
  init,
  matmul,
  materializeParams,
  Module,
  nn,
  ShapeError,
  sum,
  sumAll,
  trace,
  TraceError,
  type Tensor,
} from '../src/index.js'
import { firstLine, opError, thrown, topFile, usePlatform } from './api-support.js'

usePlatform()

const paramsOf = (model: Module) => trace(() => sum(Object.values(materializeParams(model).tensors)[0] as Tensor)).params
const namesOf = (model: Module) => paramsOf(model).map((param) => param.name)

class Leaf extends Module {
  W = this.param([2, 3])
}

test('names are dotted paths: fields, arrays, arrays of arrays', () => {
  class Model extends Module {
    first = new Leaf()
    list = [new Leaf(), new Leaf()]
    grid = [[this.param([1])], [this.param([2]), new Leaf()]]
    last = this.param([4])
    size = 3
    text = 'W'
    fn = () => 3
    nothing = null
    config = { depth: 3, nested: { sizes: [1, 2] } }
    table = new Map([['a', 1]])
  }
  assert.deepEqual(namesOf(new Model()), ['first.W', 'list.0.W', 'list.1.W', 'grid.0.0', 'grid.1.0', 'grid.1.1.W', 'last'])
})

test('subclass fields follow the base class', () => {
  class Base extends Module {
    a = this.param([1])
  }
  class Derived extends Base {
    b: Tensor
    constructor() {
      super()
      this.b = this.param([2])
    }
  }
  assert.deepEqual(namesOf(new Derived()), ['a', 'b'])
})

test('a module or parameter reached twice is one, named by the first path', () => {
  class Tied extends Module {
    a = new Leaf()
    again = this.a
    list = [this.a, new Leaf()]
    W = this.a.W
  }
  const model = new Tied()
  assert.deepEqual(namesOf(model), ['a.W', 'list.1.W'])
  const graph = trace(() => {
    materializeParams(model)
    return sum(add(model.W, model.again.W))
  })
  assert.equal(graph.params.length, 2)
})

test('states are named by their paths, and are no parameters', () => {
  class Model extends Module {
    norms = [new nn.BatchNorm(2), new nn.BatchNorm(3)]
    count = this.state([], { init: 3 })
  }
  const graph = trace(() => {
    const model = new Model()
    assert.deepEqual(Object.keys(materializeParams(model).tensors), ['norms.0.g', 'norms.0.b', 'norms.1.g', 'norms.1.b'])
    return add(model.count, 1)
  })
  assert.equal(graph.params.length, 4)
})

test('layers made of layers are named by place', () => {
  class Model extends Module {
    net = new nn.Sequential(new nn.Linear(2, 3), (x) => x, new nn.MLP([3, 4, 1], { bias: false }))
    attn = new nn.Attention(4, 2, { bias: false })
  }
  const names = ['net.0.W', 'net.0.b', 'net.2.0.W', 'net.2.1.W', 'attn.q.W', 'attn.k.W', 'attn.v.W', 'attn.o.W']
  assert.deepEqual(namesOf(new Model()), names)
})

test('decay: true but for zeros and ones, unless said', () => {
  class Model extends Module {
    randn = this.param([1])
    zeros = this.param([1], { init: 'zeros' })
    ones = this.param([1], { init: 'ones' })
    kaiming = this.param([1], { init: init.kaiming() })
    literal = this.param([1], { init: init.literal(new Float32Array([3])) })
    uniform = this.param([1], { init: init.uniform({ bound: 1 }) })
    asked = this.param([1], { init: 'zeros', decay: true })
    refused = this.param([1], { decay: false })
    frozen = this.param([1], { frozen: true })
  }
  const flags = Object.fromEntries(paramsOf(new Model()).map((param) => [param.name, param.decay]))
  assert.deepEqual(flags, {
    randn: true,
    zeros: false,
    ones: false,
    kaiming: true,
    literal: true,
    uniform: true,
    asked: true,
    refused: false,
    frozen: true,
  })
  assert.deepEqual(
    paramsOf(new Model())
      .filter((param) => param.frozen)
      .map((param) => param.name),
    ['frozen'],
  )
})

test('decayFilter overrides the flags', () => {
  const model = new Leaf()
  const graph = trace(() => sum(materializeParams(model, { decayFilter: () => false }).tensors['W'] as Tensor))
  assert.equal(graph.params[0]?.decay, false)
})

test('one instance can be traced again and again', () => {
  const model = new Leaf()
  assert.deepEqual([namesOf(model), namesOf(model)], [['W'], ['W']])
})

test('the shape of a parameter is known before any trace', () => {
  assert.deepEqual([...new Leaf().W.shape], [2, 3])
  assert.equal(new nn.Linear(2, 3).b?.shape[0], 3)
})

// ---------------------------------------------------------------- refused

const refusal = (model: Module) => thrown(() => namesOf(model))

test('a cycle', () => {
  class Node extends Module {
    W = this.param([1])
    children: Node[] = []
    parent: Node | null = null
  }
  const root = new Node()
  const child = new Node()
  root.children.push(child)
  child.parent = root
  const error = refusal(root)
  assert.ok(error instanceof ArgumentError)
  assert.equal(error.message, 'the model contains a cycle: children.0.parent is the model itself again')
  const deep = new Node()
  const list: Node[] = [deep]
  deep.children = list
  const outer = new Node()
  outer.children = [deep]
  assert.equal(refusal(outer).message, 'the model contains a cycle: children.0.children.0 is children.0 again')
})

test('parameters hidden in a Map, a Set or a plain object', () => {
  class InMap extends Module {
    W = this.param([1])
    heads = new Map([['a', new Leaf()]])
  }
  class InSet extends Module {
    heads = new Set([this.param([1])])
  }
  class InObject extends Module {
    inner = new Leaf()
    list = [{ deep: { heads: [new Leaf()] } }]
  }
  const advice = 'keep modules and parameters in fields or arrays'
  assert.equal(refusal(new InMap()).message, `the field heads hides parameters in a Map: ${advice}`)
  assert.equal(refusal(new InSet()).message, `the field heads hides parameters in a Set: ${advice}`)
  assert.equal(refusal(new InObject()).message, `the field list.0 hides parameters in a plain object: ${advice}`)
  assert.ok(refusal(new InMap()) instanceof ArgumentError)
})

test('a plain object that refers to itself is no trouble', () => {
  class Model extends Module {
    W = this.param([1])
    config: Record<string, unknown> = {}
  }
  const model = new Model()
  model.config['self'] = model.config
  assert.deepEqual(namesOf(model), ['W'])
})

test('a factory that returns no Module', () => {
  const error = thrown(() => trace(() => Object.values(materializeParams({} as Module).tensors)[0] as Tensor))
  assert.equal(firstLine(error), 'the factory returned something that is no Module')
})

test('modules and tensors of another copy of the library', () => {
  const theirs = { [Symbol.for('tensorgrad.module')]: true }
  const tensor = { [Symbol.for('tensorgrad.tensor')]: true }
  class Model extends Module {
    inner: unknown = theirs
  }
  assert.match(refusal(new Model()).message, /^the field inner comes from another copy of tensorgrad/)
  assert.match(
    thrown(() => trace(() => Object.values(materializeParams(theirs as never).tensors)[0] as Tensor)).message,
    /^the model comes from another copy/,
  )
  const error = opError(() => sumAll(tensor as never))
  assert.ok(error instanceof TraceError)
  assert.match(error.message, /^sum: the operand comes from another copy of tensorgrad/)
})

test('a literal of the wrong length: both numbers, at the line of param', () => {
  class Model extends Module {
    W = this.param([2, 3], { init: init.literal(new Float32Array(5)) })
  }
  const error = refusal(new Model())
  assert.equal(firstLine(error), 'param W: the literal has 5 numbers, the shape [2, 3] has 6')
  assert.equal(topFile(error), 'api-module.test.js')
})

test('initial values that are none', () => {
  class Model extends Module {
    W = this.param([2], { init: 'xavier' as never })
  }
  assert.equal(refusal(new Model()).message, `param: the initial value is "xavier": one of init.*, 'randn', 'zeros' or 'ones'`)
  const error = thrown(() => init.literal([1, 2] as never))
  assert.ok(error instanceof ArgumentError && topFile(error) === 'api-module.test.js')
})

test('a size below 1, a shape that is none, a dtype that is not f32', () => {
  class Zero extends Module {
    W = this.param([2, 0])
  }
  class Half extends Module {
    W = this.param([2, 0.5])
  }
  class Ints extends Module {
    W = this.param([2], { dtype: 'i32' })
  }
  const zero = refusal(new Zero())
  assert.ok(zero instanceof ShapeError)
  assert.match(zero.message, /^param W: /)
  const half = thrown(() => new Half())
  assert.ok(half instanceof ArgumentError && topFile(half) === 'api-module.test.js')
  assert.equal(half.message, 'param: shape[1] is 0.5, not a whole number')
  assert.equal(refusal(new Ints()).message, 'param W: parameters are f32, not i32')
  class None extends Module {
    W = this.param(3 as never)
  }
  assert.equal(thrown(() => new None()).message, 'param: shape is the number 3, not an array of numbers')
})

test('a parameter that the model does not reach', () => {
  class Model extends Module {
    #hidden = this.param([3, 4])
    W = this.param([2, 3])
    get hidden() {
      return this.#hidden
    }
  }
  const model = new Model()
  const error = thrown(() =>
    trace(() => {
      materializeParams(model)
      return sum(matmul(model.W, model.hidden))
    }),
  )
  assert.ok(error instanceof TraceError)
  assert.match(
    error.message,
    /^matmul: operand 2 is a parameter \[3, 4\] \(made at .*api-module\.test\.js:\d+:\d+\) that the traced model does not reach$/,
  )
})
