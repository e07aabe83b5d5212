import { describe, expect, it } from 'vitest';
import { placeParts } from '../src/bars';
import type { QueueStatus } from '../src/protocol';
import { accountOf, accountPlugins, accountResources, loansOf, marksOf, queueAmounts, treeOf } from '../src/queues/tree';

function queue(name: string, parent: string, held: number, deserved: number, reclaimable = true): QueueStatus {
  const amount = (value: number) => [{ resource: 'cpu', value: value * 1000 }];
  return { queue: { name, parent, reclaimable }, source: 'file', accounts: [{ plugin: 'proportion', allocated: amount(held), deserved: amount(deserved) }] };
}

describe('tree', () => {
  it('puts children below their parents', () => {
    const rows = treeOf([queue('a', 'eng', 0, 0), queue('eng', '', 0, 0), queue('z', 'eng', 0, 0), queue('lost', 'unknown', 0, 0)]);
    expect(rows.map((row) => [row.status.queue.name, row.depth, row.isLeaf])).toEqual([['eng', 0, false], ['a', 1, true], ['z', 1, true], ['lost', 0, true]]);
  });

  it('shows queues that are above each other once', () => {
    expect(treeOf([queue('a', 'b', 0, 0), queue('b', 'a', 0, 0)])).toHaveLength(2);
  });
});

describe('loans', () => {
  it('shows who lends and who borrows', () => {
    const loans = loansOf(treeOf([queue('batch', '', 26, 8), queue('research', '', 2, 8), queue('serving', '', 8, 8)]), 'proportion', 'cpu');
    expect(Object.fromEntries(loans)).toEqual({ batch: { lends: 0, borrows: 18 }, research: { lends: 6, borrows: 0 }, serving: { lends: 0, borrows: 0 } });
  });

  it('lends nothing to a queue that never gives back', () => {
    const loans = loansOf(treeOf([queue('batch', '', 26, 8, false), queue('research', '', 2, 8)]), 'proportion', 'cpu');
    expect(loans.get('research')).toEqual({ lends: 0, borrows: 0 });
  });

  it('leaves out queues above others', () => {
    expect([...loansOf(treeOf([queue('top', '', 26, 8), queue('leaf', 'top', 26, 8)]), 'proportion', 'cpu').keys()]).toEqual(['leaf']);
  });
});

describe('accounts', () => {
  it('reads an absent limit as none, and absent amounts as 0', () => {
    const own = queueAmounts(accountOf(queue('a', '', 1, 2), 'proportion'), 'cpu');
    expect(own).toEqual({ held: 1, reserved: 0, deserved: 2, guarantee: 0, capability: undefined, mayHold: undefined });
  });

  it('puts the plugin with entitlements first, and cards before cpu', () => {
    const status = queue('a', '', 1, 2);
    status.accounts?.unshift({ plugin: 'drf', allocated: [{ resource: 'cpu' }] });
    status.accounts?.at(-1)?.allocated?.push({ resource: 'NVIDIA-A100', value: 1000 });
    expect(accountPlugins([status])).toEqual(['proportion', 'drf']);
    expect(accountResources([status], 'proportion')).toEqual(['NVIDIA-A100', 'cpu']);
  });
});

it('cuts the parts of a bar at its end', () => {
  const parts = placeParts([{ kind: 'held', value: 6, text: '' }, { kind: 'beyond', value: 10, text: '' }], 12, 120);
  expect(parts.map(({ x, width }) => [x, width])).toEqual([[0, 60], [60, 60]]);
});

it('marks a limit only for a queue that has one', () => {
  const own = { held: 26, reserved: 0, deserved: 8, guarantee: 0, capability: undefined, mayHold: 30 };
  expect(marksOf(own, 40)).toEqual([{ kind: 'may-hold', value: 30 }, { kind: 'deserved', value: 8 }]);
  expect(marksOf({ ...own, capability: 8, mayHold: 8 }, 40)).toEqual([{ kind: 'limit', value: 8 }, { kind: 'deserved', value: 8 }]);
  expect(marksOf({ ...own, capability: 35 }, 32)).toEqual([{ kind: 'may-hold', value: 30 }, { kind: 'deserved', value: 8 }]);
});
