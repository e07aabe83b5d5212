import { describe, expect, it } from 'vitest';
import { cellAfterKey, cellAt, layOut, placeOf } from '../src/cluster/layout';
import { cellsOf, domainLabels, groupCells, summaryOf } from '../src/cluster/nodes';
import { shadeOf } from '../src/cluster/paint';
import type { NodeStatus } from '../src/protocol';

function node(name: string, change: Partial<NodeStatus> = {}, record: Partial<NodeStatus['node']> = {}): NodeStatus {
  return {
    node: { name, allocatable: { items: { cpu: '8', memory: '32Gi', pods: '110', 'nvidia.com/gpu': '4' } }, ...record },
    source: 'file',
    used: [{ resource: 'cpu', value: 2000 }, { resource: 'nvidia.com/gpu', value: 1000 }],
    cards: [{ card: 'NVIDIA-A100', resource: 'nvidia.com/gpu', count: '4' }],
    ...change,
  };
}

describe('cells', () => {
  it('has used parts and free cards', () => {
    const [cell] = cellsOf([node('a')], new Set());
    expect(cell).toMatchObject({ kind: 'NVIDIA-A100', state: 'ready', cards: 4, freeCards: 3, strandedCards: 0 });
    expect(cell?.used).toEqual({ cpu: 0.25, memory: 0, cards: 0.25 });
  });

  it('strands the free cards of a node without cpu, and of one that takes no tasks', () => {
    const full = node('full', { used: [{ resource: 'cpu', value: 8000 }] });
    const cordoned = node('cordoned', {}, { unschedulable: true });
    const cells = cellsOf([full, cordoned, node('open')], new Set());
    expect(cells.map((cell) => cell.strandedCards)).toEqual([4, 3, 0]);
    expect(summaryOf(cells)).toMatchObject({ nodes: 3, cards: 12, freeCards: 10, strandedCards: 7 });
  });

  it('marks stale sources, but the stronger state first', () => {
    const cells = cellsOf([node('a'), node('b', {}, { ready: false }), node('c', { invalid: [{ message: 'x' }] })], new Set(['file']));
    expect(cells.map((cell) => cell.state)).toEqual(['stale', 'not ready', 'invalid']);
  });

  it('reads cards from amounts and labels where the policy derives none', () => {
    const amounts = { items: { cpu: '8', 'nvidia.com/gpu': '4', 'nvidia.com/gpumem': '320', 'nvidia.com/mig-1g.5gb': '7', 'example.com/fpga': '1' } };
    const [labelled, plain] = cellsOf([node('a', { cards: [] }, { labels: { 'nvidia.com/gpu.product': 'NVIDIA-H100' } }), node('b', { cards: [] }, { allocatable: amounts })], new Set());
    expect(labelled).toMatchObject({ kind: 'NVIDIA-H100', cards: 4, freeCards: 3 });
    expect(plain).toMatchObject({ kind: 'nvidia.com/gpu', cards: 11, freeCards: 10 });
    expect(cellsOf([node('c', { cards: [] }, { allocatable: { items: { cpu: '8' } } })], new Set())[0]).toMatchObject({ kind: 'no cards', cards: 0 });
  });

  it('groups by kind or by a label', () => {
    const cells = cellsOf([node('n10', {}, { labels: { zone: 'b' } }), node('n2', { cards: [] }, { labels: { zone: 'a' } })], new Set());
    expect(groupCells(cells, '').map((group) => group.title)).toEqual(['NVIDIA-A100', 'nvidia.com/gpu']);
    expect(groupCells(cells, 'zone').map((group) => group.title)).toEqual(['a', 'b']);
    expect(domainLabels(cells)).toEqual(['zone']);
  });
});

describe('layout', () => {
  const groups = (count: number) => groupCells(cellsOf(Array.from({ length: count }, (_, at) => node(`n${at}`)), new Set()), '');

  it.each([10, 1000, 10_000])('fits %d nodes into the height', (count) => {
    const layout = layOut(groups(count), 1100, 520);
    expect(layout.height).toBeLessThanOrEqual(520);
    expect(layout.step).toBeGreaterThanOrEqual(4);
  });

  it('finds each cell at its place', () => {
    const layout = layOut(groups(1000), 1100, 520);
    const place = placeOf(layout, 'n777');
    expect(place).toBeDefined();
    expect(cellAt(layout, (place?.x ?? 0) + 1, (place?.y ?? 0) + 1)?.name).toBe('n777');
    expect(cellAt(layout, 0, 1)).toBeUndefined();
  });

  it('moves by keys, and stays within the map', () => {
    const layout = layOut(groups(100), 1100, 520);
    expect(cellAfterKey(layout, 'n0', 'ArrowRight')?.name).toBe('n1');
    expect(cellAfterKey(layout, 'n0', 'ArrowUp')?.name).toBe('n0');
    expect(cellAfterKey(layout, 'n0', 'ArrowDown')?.name).toBe(`n${layout.columns}`);
    expect(cellAfterKey(layout, '', 'ArrowDown')?.name).toBe('n0');
    expect(cellAfterKey(layout, 'n0', 'a')).toBeUndefined();
  });
});

it('shades from unused to full, and beyond', () => {
  expect([0, 0.5, 1, 3, -1].map(shadeOf)).toEqual([0, 4, 8, 8, 0]);
});
