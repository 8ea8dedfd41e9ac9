// What is no mistake and yet not what was meant, most likely: told to `onWarning`, or once to the console. Knows no model.

import type { Site } from './errors.js'
import { siteText } from './sites.js'

export interface Warning {
  message: string
  /** Where in the program; null: nowhere in particular. */
  site: Site | null
}
export type OnWarning = (warning: Warning) => void

const told = new Set<string>()

function tell({ message, site }: Warning): void {
  const text = `tensorgrad: ${message}${site === null || site.line === 0 ? '' : ` (${siteText(site)})`}`
  if (told.has(text)) return
  told.add(text)
  console.warn(text)
}

/** Tells `onWarning`; without one, the console, each thing once. */
export function warn(onWarning: OnWarning | undefined, message: string, site: Site | null = null): void {
  ;(onWarning ?? tell)({ message, site })
}

/** A warning of the core: its site is the first place that its text names, and is left out where the text begins with it. */
export function warningOf(text: string): Warning {
  const site = placeIn(text), place = site === null ? '' : `${siteText(site)}: `
  return { message: place !== '' && text.startsWith(place) ? text.slice(place.length) : text, site }
}

/** The first place that a text names. */
export function placeIn(message: string): Site | null {
  const [, file, line, column] = /((?:[a-z]+:\/\/)?[^\s:()]+(?::\d+\/[^\s:()]*)?):(\d+):(\d+)/i.exec(message) ?? []
  return file === undefined ? null : { file, line: Number(line), column: Number(column) }
}
