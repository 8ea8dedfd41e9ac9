// Where operations stand in the user's program, found out late: reading a stack costs far more than keeping it, and a trace has hundreds. So
// a trace gives the core numbers in place of files and lines; whoever is shown one of them, an error or a graph that is written, has
// it replaced. Knows no stack's format and no graph.

import type { HeldSite, Site } from './errors.js'

const NUMBERED = '\u0001' // in place of a file, with the number as line
const NUMBERS = /\u0001:(\d+)/g
const NOWHERE: Site = { file: '', line: 0 }

const held = new Map<number, HeldSite>()
let last = 0

/** A site that stands for `site` until it is forgotten. */
export function numberSite(site: HeldSite): Site {
  held.set(++last, site)
  return { file: NUMBERED, line: last }
}

const siteOfNumber = (number: number): Site => held.get(number)?.() ?? NOWHERE

/** The site itself, where it is a number's. */
export function trueSite(site: Site): Site {
  return site.file === NUMBERED ? siteOfNumber(site.line) : site
}

/** The same of every number in a message of the core. */
export function withTrueSites(message: string): string {
  return message.replace(NUMBERS, (_, number) => {
    const { file, line } = siteOfNumber(Number(number))
    return `${file}:${line}`
  })
}

export function forgetSites(sites: readonly Site[]): void {
  for (const site of sites) held.delete(site.line)
}
