import { Text } from '@codemirror/state';
import { describe, expect, it } from 'vitest';
import { placeFinding } from '../src/policy/editor';
import { changeText, turnsOf } from '../src/policy/impact';

describe('turns', () => {
  it('are by queue, then by job', () => {
    const jobs = [{ name: 'x/a', queue: 'late' }, { name: 'x/b', queue: 'early' }, { name: 'x/c', queue: 'early' }];
    const order = { queues: [{ name: 'early' }, { name: 'late' }], jobs: [{ name: 'x/c' }, { name: 'x/a' }, { name: 'x/b' }] };
    expect(Object.fromEntries(turnsOf(jobs, order))).toEqual({ 'x/c': 1, 'x/b': 2, 'x/a': 3 });
  });
});

it('shows one text where nothing changes', () => {
  expect(changeText('6', '6')).toBe('6');
  expect(changeText('6', 'no limit')).toBe('6 → no limit');
});

describe('findings', () => {
  const document = Text.of(['# policy', 'actions: "allocate, backfil"', '']);

  it('run from their column to the end of the line', () => {
    const finding = { severity: 'SEVERITY_ERROR', code: 'ACTION_UNKNOWN', message: 'unknown action', line: 2, column: 10 };
    expect(placeFinding(document, finding)).toEqual({ from: 18, to: 37, severity: 'error', message: 'unknown action' });
  });

  it('stay within a document that became shorter', () => {
    expect(placeFinding(document, { line: 99, column: 99, code: 'X' })).toMatchObject({ from: 38, to: 38, severity: 'warning' });
    expect(placeFinding(document, { line: 0 })).toMatchObject({ from: 0, to: 8 });
  });
});
