// The sites of operations in the user's program. They are found late: reading a stack costs far
// more than keeping it, and a trace has hundreds. So a trace gives the core numbers, not files and
// lines. An error or a written graph gets the site for its number. Sites have columns, because a
// minified program is one line: the core, which has no columns, gets "file:line" as the file and
// the column as the line. Must not know a stack format or a graph.

import type { HeldSite, Site } from './errors.js'

/** A site in the core. */
export type CoreSite = Pick<Site, 'file' | 'line'>

const NUMBERED = '\u0001' // used as the file, with the number as line
const NUMBERS = /\u0001:(\d+)/g
export const NOWHERE: Site = { file: '', line: 0, column: 0 }

const held = new Map<number, HeldSite>()
let last = 0

/** Gives `site` a number, which is valid until it is forgotten. */
export function numberSite(site: HeldSite): CoreSite {
  held.set(++last, site)
  return { file: NUMBERED, line: last }
}

const siteOfNumber = (number: number): Site => held.get(number)?.() ?? NOWHERE

export const siteText = ({ file, line, column }: Site): string => (column > 0 ? `${file}:${line}:${column}` : `${file}:${line}`)

export function toCore({ file, line, column }: Site): CoreSite {
  return column > 0 ? { file: `${file}:${line}`, line: column } : { file, line }
}

/** The site for what the core reports, which may be a number. */
export function fromCore({ file, line }: CoreSite): Site {
  if (file === NUMBERED) return siteOfNumber(line)
  const parts = /^(.+):(\d+)$/s.exec(file)
  return parts === null ? { file, line, column: 0 } : { file: parts[1] as string, line: Number(parts[2]), column: line }
}

/** What the core gets instead of a number. */
export const settled = (site: CoreSite): CoreSite => toCore(siteOfNumber(site.line))

/** Replaces every number in a message of the core by its site. */
export const withTrueSites = (message: string): string => message.replace(NUMBERS, (_, number) => siteText(siteOfNumber(Number(number))))

export function forgetSites(sites: readonly CoreSite[]): void {
  for (const site of sites) held.delete(site.line)
}
