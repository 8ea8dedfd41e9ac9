// Drives the demo page as a person would, on a laptop and on a phone: starts, watches the loss
// fall, reads predictions, pauses, resets. Takes screenshots into build/web/demo/. Ends with "N
// passed, N failed".

import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { launch } from './chromium.mjs'
import { serve } from './serve.mjs'
import { runner } from './support.mjs'
import { web } from './bundle.mjs'

const { test, finish } = runner('demo')
const pictures = path.resolve(web, '../build/web/demo')
mkdirSync(pictures, { recursive: true })
const server = await serve({ '/': path.join(web, 'build/demo') })
const laptop = { viewport: { width: 1280, height: 900 } }
const phone = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true, colorScheme: 'dark' }

async function open(browser, where, settings) {
  const page = await (await browser.newContext(settings)).newPage()
  const said = []
  page.on('pageerror', (error) => said.push(String(error)))
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()))
  await page.goto(`${server.url}/${where}`)
  await page.getByRole('button', { name: 'Start' }).and(page.locator(':enabled')).waitFor({ timeout: 120000 })
  const number = async (id) => Number(await page.locator(`#${id}`).textContent())
  const until = async (holds, what, seconds) => {
    const end = Date.now() + seconds * 1000
    while (!(await holds())) {
      const message = await page.locator('#message').textContent()
      assert.equal(message, '')
      if (Date.now() > end) throw new Error(`not in ${seconds} s: ${what}`)
      await page.waitForTimeout(100)
    }
  }
  return { page, said, number, until, picture: (name) => page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true }) }
}

/** What is drawn must not lie beside the page. */
const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)

const gpu = await launch(true)
await test('mlp-sin on WebGPU, on a laptop: start, loss falls, pause, rate, reset', async () => {
  const { page, said, number, until, picture } = await open(gpu, '?example=mlp-sin&device=webgpu', laptop)
  assert.match(await page.locator('#where').textContent(), /^webgpu \(/)
  await picture('mlp-sin-begin')
  await page.getByRole('button', { name: 'Start' }).click()
  await until(async () => (await number('step')) >= 2, 'step 2', 60)
  const first = await number('loss')
  await until(async () => (await number('step')) >= 25, 'step 25', 120)
  await page.getByRole('button', { name: 'Pause' }).click()
  await page.getByRole('button', { name: 'Go on' }).waitFor()
  const last = await number('loss')
  assert.ok(last < first, `the loss went from ${first} to ${last}`)
  await page.getByRole('slider').fill('-2')
  assert.equal(await page.locator('#rate-text').textContent(), '0.010')
  await picture('mlp-sin')
  assert.ok(await fits(page), 'the page is wider than the screen')
  await page.getByRole('button', { name: 'Reset' }).click()
  await until(async () => (await number('step')) === 0, 'step 0', 20)
  assert.deepEqual(said, [])
  await page.context().close()
})
await gpu.close()

const plain = await launch(false)
await test('mlp-sin on the CPU: the curve is fitted', async () => {
  const { page, number, until, picture } = await open(plain, '?example=mlp-sin', laptop)
  await page.getByRole('button', { name: 'Start' }).click()
  await until(async () => (await number('loss')) < 0.01, 'a loss under 0.01', 60)
  await page.getByRole('button', { name: 'Pause' }).click()
  await picture('mlp-sin-cpu')
  await page.context().close()
})
for (const [name, settings] of [['laptop', laptop], ['phone', phone]])
  await test(`transformer-add on the CPU, on a ${name}: loss falls, predictions, attention`, async () => {
    const { page, said, number, until, picture } = await open(plain, '', settings)
    assert.match(await page.locator('#where').textContent(), /^cpu \(simd128.*: /)
    await page.getByText('Addition').click()
    await page.locator('#attention canvas').first().waitFor({ timeout: 60000 })
    await page.getByRole('button', { name: 'Start' }).click()
    await until(async () => (await number('step')) >= 2, 'step 2', 60)
    const first = await number('loss')
    await until(async () => (await number('step')) >= (name === 'laptop' ? 120 : 20), 'its last step', 90)
    await page.getByRole('button', { name: 'Pause' }).click()
    await page.getByRole('button', { name: 'Go on' }).waitFor()
    assert.ok((await number('loss')) < first, 'the loss fell')
    const sums = await page.getByRole('listitem').allTextContents()
    assert.equal(sums.length, 18)
    for (const sum of sums) assert.match(sum, /^\d\d\+\d\d=[\d+=]{3} [✓✗]$/)
    assert.equal(await page.locator('#attention canvas').count(), 12)
    await picture(`transformer-add-${name}`)
    assert.ok(await fits(page), 'the page is wider than the screen')
    assert.deepEqual(said, [])
    await page.context().close()
  })
await plain.close()
server.close()
finish()
