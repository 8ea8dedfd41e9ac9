// Warnings: programs that are correct but most likely not what was meant. They go to `onWarning`,
// or once to the console. Must not know a model.

import type { Site } from './errors.js'
import { siteText } from './sites.js'

export interface Warning {
  message: string
  /** Where in the program; null if there is no such position. */
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

/** Calls `onWarning`; without one, writes each warning once to the console. */
export function warn(onWarning: OnWarning | undefined, message: string, site: Site | null = null): void {
  ;(onWarning ?? tell)({ message, site })
}

/** A warning of the core. Its site is the first one that its text names, and is removed from the
 *  text if that begins with it. */
export function warningOf(text: string): Warning {
  const site = placeIn(text), place = site === null ? '' : `${siteText(site)}: `
  return { message: place !== '' && text.startsWith(place) ? text.slice(place.length) : text, site }
}

/** The first site that a text names. */
export function placeIn(message: string): Site | null {
  const [, file, line, column] = /((?:[a-z]+:\/\/)?[^\s:()]+(?::\d+\/[^\s:()]*)?):(\d+):(\d+)/i.exec(message) ?? []
  return file === undefined ? null : { file, line: Number(line), column: Number(column) }
}
