/** The tree of queues, and the amounts of one resource in the accounts of one plugin. */

import { amountsOf } from '../amounts';
import type { BarMark } from '../bars';
import { groupBy } from '../lists';
import type { Account, QueueStatus } from '../protocol';

export interface TreeRow {
  status: QueueStatus;
  /** Number of queues above it. */
  depth: number;
  /** True: no other queue names it as its parent. */
  isLeaf: boolean;
}

/** Queues depth first, children by name. A queue whose parent is unknown, or above itself, is at the top. */
export function treeOf(queues: QueueStatus[]): TreeRow[] {
  const names = new Set(queues.map((status) => status.queue.name));
  const children = groupBy(queues, ({ queue: { name, parent = '' } }) => (parent !== name && names.has(parent) ? parent : ''));
  const rows: TreeRow[] = [];
  const seen = new Set<string>();
  const visit = (status: QueueStatus, depth: number) => {
    if (seen.has(status.queue.name)) return;
    seen.add(status.queue.name);
    const own = children.get(status.queue.name) ?? [];
    rows.push({ status, depth, isLeaf: own.length === 0 });
    for (const child of own) visit(child, depth + 1);
  };
  for (const status of children.get('') ?? []) visit(status, 0);
  for (const status of queues) visit(status, 0);
  return rows;
}

/** Plugins that keep accounts of queues; those with entitlements or limits come first. */
export function accountPlugins(queues: QueueStatus[]): string[] {
  const limiting = new Map<string, boolean>();
  for (const account of queues.flatMap((status) => status.accounts ?? [])) {
    const limits = Boolean(account.deserved?.length || account.capability?.length || account.realCapability?.length);
    limiting.set(account.plugin, limits || (limiting.get(account.plugin) ?? false));
  }
  return [...limiting].sort(([one, a], [other, b]) => Number(b) - Number(a) || one.localeCompare(other)).map(([plugin]) => plugin);
}

const AMOUNT_LISTS = ['allocated', 'request', 'inqueue', 'deserved', 'guarantee', 'capability', 'realCapability'] as const;
const USUAL = ['cpu', 'memory', 'pods'];

/** Resources and cards in the accounts of a plugin: cards first, then cpu, memory and pods. */
export function accountResources(queues: QueueStatus[], plugin: string): string[] {
  const found = new Set<string>();
  for (const status of queues) {
    const account = accountOf(status, plugin);
    for (const list of AMOUNT_LISTS) for (const amount of account?.[list] ?? []) found.add(amount.resource);
  }
  const rank = (resource: string) => USUAL.indexOf(resource);
  return [...found].sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
}

export function accountOf(status: QueueStatus, plugin: string): Account | undefined {
  return status.accounts?.find((account) => account.plugin === plugin);
}

/** What a queue has of one resource. An absent limit is unlimited. */
export interface QueueAmounts {
  held: number;
  /** Reserved for admitted jobs, which do not hold it yet. */
  reserved: number;
  deserved: number;
  guarantee: number;
  capability: number | undefined;
  /** Limit after the guarantees of others. */
  mayHold: number | undefined;
}

export function queueAmounts(account: Account | undefined, resource: string): QueueAmounts {
  const of = (list: (typeof AMOUNT_LISTS)[number]) => amountsOf(account?.[list]).get(resource);
  return {
    held: of('allocated') ?? 0,
    reserved: of('inqueue') ?? 0,
    deserved: of('deserved') ?? 0,
    guarantee: of('guarantee') ?? 0,
    capability: of('capability'),
    mayHold: of('realCapability'),
  };
}

/** Marks on the bar of a queue, as far as they are on it. A queue without a limit of its own has no mark of one; what it may hold has its own mark. */
export function marksOf(own: QueueAmounts, most: number): BarMark[] {
  const { capability, mayHold } = own;
  const marks: BarMark[] = [
    { kind: 'limit', value: capability ?? 0 },
    { kind: 'may-hold', value: mayHold === capability ? 0 : (mayHold ?? 0) },
    { kind: 'guarantee', value: own.guarantee },
    { kind: 'deserved', value: own.deserved },
  ];
  return marks.filter((mark) => mark.value > 0 && mark.value <= most);
}

/** What a queue lends to others or borrows from them. Neither: both are 0. */
export interface QueueLoan {
  lends: number;
  borrows: number;
}

/**
 * Loans by queue. A queue borrows what it holds beyond what it deserves. It lends what it deserves and does not hold, while
 * another queue borrows that has to give it back. Only leaves are compared: what a queue above others holds is theirs.
 */
export function loansOf(rows: TreeRow[], plugin: string, resource: string): Map<string, QueueLoan> {
  const leaves = rows.filter((row) => row.isLeaf && accountOf(row.status, plugin));
  const beyond = leaves.map(({ status }) => {
    const { held, deserved } = queueAmounts(accountOf(status, plugin), resource);
    return { name: status.queue.name, beyond: held - deserved, gives: status.queue.reclaimable !== false };
  });
  const loans = beyond.map(({ name, beyond: own }): [string, QueueLoan] => {
    const lent = own < 0 && beyond.some((other) => other.name !== name && other.gives && other.beyond > 0);
    return [name, { lends: lent ? -own : 0, borrows: Math.max(0, own) }];
  });
  return new Map(loans);
}
