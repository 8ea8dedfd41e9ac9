// The demo page: trains one of the two examples step after step and shows what it learns. All numbers come from the package; here are controls
// and pictures. ?example=, ?device= and ?rate= set the beginning.

import uPlot from 'uplot'
import { type CompiledForward, type CompiledModule } from 'tensorgrad'
import * as mlpSin from '../examples/mlp-sin.js'
import * as transformerAdd from '../examples/transformer-add.js'

const SEED = 5
const SHOWN_SUMS = 18
const DRAW_MS = 120 // between two looks at what it has learned
const RATES = { 'mlp-sin': 0.005, 'transformer-add': 0.003 }
type Example = keyof typeof RATES

const element = <E extends HTMLElement = HTMLElement>(id: string): E => document.getElementById(id) as E
const start = element<HTMLButtonElement>('start'), reset = element<HTMLButtonElement>('reset')
const rate = element<HTMLInputElement>('rate'), device = element<HTMLSelectElement>('device')
const colour = (name: string): string => {
  const probe = document.createElement('i')
  probe.style.color = `var(--${name})`
  document.body.append(probe)
  const value = getComputedStyle(probe).color
  probe.remove()
  return value
}

// ---------------------------------------------------------------- what is trained

interface Trained { model: CompiledModule; forward: CompiledForward; example: Example }
let trained: Trained | null = null
let running = false
let step = 0
let losses: { steps: number[]; values: number[] } = { steps: [], values: [] }
let loop: Promise<void> = Promise.resolve()

const chosen = (): Example => (document.querySelector<HTMLInputElement>('input[name=example]:checked')?.value ?? 'mlp-sin') as Example
const wantedRate = (): number => 10 ** Number(rate.value)

async function compile(): Promise<void> {
  await stop()
  say('')
  const example = chosen()
  start.disabled = reset.disabled = true
  element('where').textContent = 'compiling …'
  element('fit-panel').hidden = example !== 'mlp-sin'
  element('sums-panel').hidden = element('attention-panel').hidden = example !== 'transformer-add'
  rate.value = String(Math.log10(startRate ?? RATES[example]))
  startRate = undefined
  showRate()
  try {
    await trained?.model.destroy()
    trained = null
    const options = { seed: SEED, device: device.value as 'auto' | 'cpu' | 'webgpu' }
    const compiled = example === 'mlp-sin' ? await mlpSin.compile(options) : await transformerAdd.compile(options, SHOWN_SUMS)
    trained = { ...(compiled as unknown as { model: CompiledModule; forward: CompiledForward }), example }
    element('where').textContent = trained.model.device
    await begin()
    start.disabled = reset.disabled = false
  } catch (error) {
    element('where').textContent = '–'
    say(String(error))
  }
}

/** At step 0 of a model that is as it was compiled. */
async function begin(): Promise<void> {
  step = 0
  losses = { steps: [], values: [] }
  await (trained as Trained).model.setLR(wantedRate())
  await look()
}

async function stop(): Promise<void> {
  running = false
  await loop
}

async function train(now: Trained): Promise<void> {
  let drawn = 0, counted = step, since = performance.now()
  while (running) {
    const batch = now.example === 'mlp-sin' ? mlpSin.batch(SEED, step + 1) : transformerAdd.batch(SEED, step + 1)
    const value = await now.model.step(batch as never)
    losses.steps.push(++step)
    losses.values.push(value)
    const at = performance.now()
    if (at - drawn < DRAW_MS) continue
    element('speed').textContent = ((step - counted) / ((at - since) / 1000)).toPrecision(3)
    if (at - since > 2000) [counted, since] = [step, at]
    await look()
    await new Promise(requestAnimationFrame)
    drawn = performance.now()
  }
}

// ---------------------------------------------------------------- controls

function say(text: string): void {
  element('message').textContent = text
}
function showRate(): void {
  element('rate-text').textContent = wantedRate().toPrecision(2)
}
function showRunning(): void {
  start.textContent = running ? 'Pause' : step > 0 ? 'Go on' : 'Start'
}

start.addEventListener('click', () => {
  if (trained === null) return
  running = !running
  showRunning()
  if (!running) return
  const now = trained
  loop = loop.then(() => train(now)).catch((error: unknown) => {
    running = false
    showRunning()
    say(String(error))
  })
})
reset.addEventListener('click', async () => {
  await stop()
  await trained?.model.reset()
  if (trained !== null) await begin()
  element('speed').textContent = '–'
  showRunning()
})
rate.addEventListener('input', showRate)
rate.addEventListener('change', () => void trained?.model.setLR(wantedRate()).catch((error: unknown) => say(String(error))))
device.addEventListener('change', () => void compile().then(showRunning))
for (const radio of document.querySelectorAll('input[name=example]')) radio.addEventListener('change', () => void compile().then(showRunning))

// ---------------------------------------------------------------- pictures

function chart(id: string, series: uPlot.Series[], scales: uPlot.Scales, axes: uPlot.Axis[] = [{}, {}]): uPlot {
  const holder = element(id)
  const lines = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line') } }
  const size = () => ({ width: Math.max(240, holder.clientWidth), height: series.length > 2 ? 230 : 260 })
  const plot = new uPlot({
    ...size(), series, scales, axes: axes.map((axis) => ({ ...lines, ...axis })), legend: { show: series.length > 2, live: false }, cursor: { show: false },
  }, series.map(() => []) as unknown as uPlot.AlignedData, holder)
  new ResizeObserver(() => plot.setSize(size())).observe(holder)
  return plot
}
const short = (_: uPlot, values: number[]) => values.map((value) => (value === null ? '' : value >= 1 || value === 0 ? String(value) : value.toExponential(0)))
/** Lines at powers of ten alone once there are many. */
const decades = (_: uPlot, values: number[]) =>
  values.map((value) => ((values.at(-1) as number) / (values[0] as number) < 50 || Math.log10(value) % 1 === 0 ? value : null))
const lossChart = chart('loss-chart', [{}, { stroke: colour('accent'), width: 2, points: { show: false } }],
  { x: { time: false }, y: { distr: 3 } }, [{}, {
    values: short, size: 56, grid: { stroke: colour('line'), width: 1, filter: decades }, ticks: { stroke: colour('line'), filter: decades },
  }])
const fitChart = chart('fit-chart', [
  {}, { label: 'sin x', stroke: colour('quiet'), width: 2, dash: [6, 4], points: { show: false } },
  { label: 'network', stroke: colour('second'), width: 2.5, points: { show: false } },
], { x: { time: false }, y: { range: [-1.5, 1.5] } })

/** At most some hundred points: the mean of each stretch of steps. */
function thinned(): [number[], number[]] {
  const every = Math.max(1, Math.ceil(losses.steps.length / 400))
  const x: number[] = [], y: number[] = []
  for (let i = 0; i < losses.steps.length; i += every) {
    const part = losses.values.slice(i, i + every)
    x.push(losses.steps[Math.min(i + every, losses.steps.length) - 1] as number)
    y.push(Math.exp(part.reduce((sum, value) => sum + Math.log(Math.max(value, 1e-12)), 0) / part.length))
  }
  return [x, y]
}

async function look(): Promise<void> {
  const now = trained as Trained
  element('step').textContent = String(step)
  element('loss').textContent = losses.values.length > 0 ? (losses.values.at(-1) as number).toPrecision(3) : '–'
  lossChart.setData(thinned())
  if (now.example === 'mlp-sin') await lookAtFit(now)
  else await lookAtSums(now)
}

async function lookAtFit({ forward }: Trained): Promise<void> {
  const { x, truth } = mlpSin.fitPoints()
  const predicted = await forward.run({ x } as never)
  fitChart.setData([[...x], [...truth], [...predicted]])
}

const sums = Array.from({ length: SHOWN_SUMS }, (_, place) => transformerAdd.sumAt(SEED, place))

async function lookAtSums({ forward }: Trained): Promise<void> {
  let attention: Record<string, Float32Array> = {}
  const run = async (tokens: Int32Array): Promise<Int32Array> => {
    const { output, captures } = await forward.run<Int32Array>({ tokens } as never, { withCaptures: true })
    attention = Object.fromEntries(captures.names().map((name) => [name, captures.get(name)]))
    return output
  }
  const answers = await transformerAdd.answer(run, sums, SHOWN_SUMS)
  showSums(answers)
  showAttention(attention, answers[0] as number[])
}

function showSums(answers: number[][]): void {
  const right = (row: number) => answers[row]?.join() === transformerAdd.spell(sums[row] as number).slice(6).join()
  element('sums').replaceChildren(...sums.map((sum, row) => {
    const item = document.createElement('li'), digits = document.createElement('span')
    digits.className = right(row) ? 'right' : 'wrong'
    digits.textContent = transformerAdd.characters(answers[row] as number[])
    item.append(transformerAdd.characters(transformerAdd.spell(sum).slice(0, 6)), digits, right(row) ? ' ✓' : ' ✗')
    item.setAttribute('aria-label', `${item.textContent?.slice(0, -2)}, ${right(row) ? 'right' : 'wrong'}`)
    return item
  }))
  element('sums-score').textContent = `${sums.filter((_, row) => right(row)).length} of ${sums.length} right`
}

function showAttention(attention: Record<string, Float32Array>, answer: number[]): void {
  const { T, HEADS } = transformerAdd
  const asked = transformerAdd.characters(transformerAdd.spell(sums[0] as number).slice(0, 6))
  element('attention-sum').textContent = asked + transformerAdd.characters(answer.slice(0, 2))
  const holder = element('attention')
  Object.values(attention).forEach((weights, layer) => {
    for (let head = 0; head < HEADS; head++) {
      const canvas = attentionCanvas(holder, layer, head)
      const context = canvas.getContext('2d') as CanvasRenderingContext2D
      context.fillStyle = colour('accent')
      context.clearRect(0, 0, T, T)
      for (let i = 0; i < T * T; i++) {
        context.globalAlpha = Math.min(1, weights[head * T * T + i] as number) // of the first sum
        context.fillRect(i % T, Math.floor(i / T), 1, 1)
      }
    }
  })
}
function attentionCanvas(holder: HTMLElement, layer: number, head: number): HTMLCanvasElement {
  const id = `attention-${layer}-${head}`
  const found = document.getElementById(id)
  if (found !== null) return found as HTMLCanvasElement
  const figure = document.createElement('figure'), canvas = document.createElement('canvas'), caption = document.createElement('figcaption')
  const text = `layer ${layer + 1}, head ${head + 1}`
  Object.assign(canvas, { id, width: transformerAdd.T, height: transformerAdd.T })
  canvas.style.imageRendering = 'pixelated'
  canvas.setAttribute('role', 'img')
  canvas.setAttribute('aria-label', `attention of ${text}`)
  caption.textContent = text
  figure.append(canvas, caption)
  holder.append(figure)
  return canvas
}

// ---------------------------------------------------------------- begin

const asked = new URLSearchParams(location.search)
let startRate: number | undefined = asked.has('rate') ? Number(asked.get('rate')) : undefined
const radio = document.querySelector<HTMLInputElement>(`input[name=example][value="${CSS.escape(asked.get('example') ?? '')}"]`)
if (radio !== null) radio.checked = true
if (['auto', 'cpu', 'webgpu'].includes(asked.get('device') ?? '')) device.value = asked.get('device') as string
void compile().then(showRunning)
