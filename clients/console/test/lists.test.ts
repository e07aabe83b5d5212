import { expect, it } from 'vitest';
import { groupBy, pageOf } from '../src/lists';

it('shows one page, and the nearest page for a number that is none', () => {
  const entries = Array.from({ length: 45 }, (_, at) => at);
  expect(pageOf(entries, '2', 20)).toEqual({ entries: entries.slice(20, 40), number: 2, last: 3 });
  expect(pageOf(entries, 3, 20).entries).toHaveLength(5);
  for (const [page, number] of [[undefined, 1], ['x', 1], ['-2', 1], ['0', 1], ['1.5', 1], ['99', 3]] as const) expect(pageOf(entries, page, 20).number).toBe(number);
  expect(pageOf([], 7, 20)).toEqual({ entries: [], number: 1, last: 1 });
});

it('groups in the order of the first entries', () => {
  expect([...groupBy(['b1', 'a1', 'b2'], (text) => text[0] ?? '')]).toEqual([['b', ['b1', 'b2']], ['a', ['a1']]]);
});
