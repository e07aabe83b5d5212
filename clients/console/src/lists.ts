/** Parts of lists: pages of one that is too long to be shown at once, and groups. */

export interface Page<Entry> {
  entries: Entry[];
  /** Number of this page and of the last one, from 1. */
  number: number;
  last: number;
}

/** One page of a list, from 1. A page beyond the end is the last one, and what is not a number is the first. */
export function pageOf<Entry>(entries: Entry[], page: number | string | undefined, size: number): Page<Entry> {
  const last = Math.max(1, Math.ceil(entries.length / size));
  const number = Math.min(last, Math.max(1, Math.floor(Number(page)) || 1));
  return { entries: entries.slice((number - 1) * size, number * size), number, last };
}

/** Entries by key, in the order of the first entry of each. */
export function groupBy<Entry>(entries: Entry[], key: (entry: Entry) => string): Map<string, Entry[]> {
  const groups = new Map<string, Entry[]>();
  for (const entry of entries) {
    const own = key(entry);
    const group = groups.get(own);
    if (group) group.push(entry);
    else groups.set(own, [entry]);
  }
  return groups;
}
