import { Text } from '@codemirror/state';
import { describe, expect, it } from 'vitest';
import { draftAfter, expectedVersion, isOvertaken } from '../src/policy/draft';
import { placeFinding } from '../src/policy/editor';
import { changeText, clusterOf, turnsOf } from '../src/policy/impact';

it('copies what accepts nothing new as closed, and what is reserved as admitted', () => {
  const invalid = [{ message: 'not a quantity' }];
  const records = clusterOf({
    nodes: [{ node: { name: 'a' } }, { node: { name: 'b' }, invalid }],
    queues: [{ queue: { name: 'root' } }, { queue: { name: 'q' }, source: 'file', invalid }],
    jobs: [{ job: { name: 'x/a' } }, { job: { name: 'x/b' } }, { job: { name: 'x/c', phase: 'JOB_PHASE_RUNNING' } }],
    tasks: [{ task: { name: 'x/a-0' } }],
    namespaces: [{ namespace: { name: 'x' } }],
    reservations: [{ job: 'x/b' }, { job: 'x/c' }],
  });
  expect(records).toEqual({
    nodes: [{ name: 'a' }, { name: 'b', unschedulable: true }],
    queues: [{ name: 'q', state: 'QUEUE_STATE_CLOSED' }],
    jobs: [{ name: 'x/a' }, { name: 'x/b', phase: 'JOB_PHASE_INQUEUE' }, { name: 'x/c', phase: 'JOB_PHASE_RUNNING' }],
    tasks: [{ name: 'x/a-0' }],
    namespaces: [{ name: 'x' }],
  });
});

describe('turns', () => {
  it('are by queue, then by job', () => {
    const jobs = [{ name: 'x/a', queue: 'late' }, { name: 'x/b', queue: 'early' }, { name: 'x/c', queue: 'early' }];
    const order = { queues: [{ name: 'early' }, { name: 'late' }], jobs: [{ name: 'x/c' }, { name: 'x/a' }, { name: 'x/b' }] };
    expect(Object.fromEntries(turnsOf(jobs, order))).toEqual({ 'x/c': 1, 'x/b': 2, 'x/a': 3 });
  });
});

describe('draft', () => {
  const draft = draftAfter(undefined, 'a: 2', 'a: 1', '4');

  it('expects the version at which it began, whatever others push since', () => {
    expect(draft).toEqual({ document: 'a: 2', base: '4' });
    const later = draftAfter(draft, 'a: 3', 'a: 1', '5');
    expect(expectedVersion(later, '5')).toBe('4');
    expect([isOvertaken(later, '4'), isOvertaken(later, '5')]).toEqual([false, true]);
  });

  it('ends where an edit restores the stored document', () => {
    expect(draftAfter(draft, 'a: 1', 'a: 1', '5')).toBeUndefined();
    expect([expectedVersion(undefined, '5'), isOvertaken(undefined, '5')]).toEqual(['5', false]);
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
