import { Text } from '@codemirror/state';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { clusterOf, isBeyondRequest, isTooLargeToTry } from '../src/copy';
import { draftAfter, expectedVersion, isOvertaken, keepDraft, keptDraft } from '../src/policy/draft';
import { placeFinding } from '../src/policy/editor';
import { changeText, impactOf, startText, startsText, turnsOf } from '../src/policy/impact';

afterEach(() => {
  vi.unstubAllGlobals();
});

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

it('copies no state that is too large', () => {
  const cluster = { nodes: [{ name: 'a' }], queues: [], jobs: [], tasks: [], namespaces: [] };
  const limits = (value: string) => [{ name: 'request_bytes', value }];
  expect([isBeyondRequest(cluster, limits('10')), isBeyondRequest(cluster, limits('1000')), isBeyondRequest(cluster, undefined)]).toEqual([true, false, false]);
  expect([isTooLargeToTry(cluster, undefined), isTooLargeToTry({ ...cluster, tasks: Array.from({ length: 20_000 }, () => ({})) }, undefined)]).toEqual([false, true]);
});

describe('impact', () => {
  const task = (name: string, job: string) => ({ name, job, requests: { items: { cpu: '1' } } });
  const cluster = {
    nodes: [{ name: 'node-1' }], queues: [{ name: 'q' }], namespaces: [],
    jobs: [{ name: 'x/a', queue: 'q', phase: 'JOB_PHASE_INQUEUE', minMember: 2 }, { name: 'x/b', queue: 'q', phase: 'JOB_PHASE_INQUEUE', minMember: 1 }],
    tasks: [task('x/a-0', 'x/a'), task('x/a-1', 'x/a'), task('x/b-0', 'x/b')],
  };

  /** A server whose nodes take one task under the policy `old`, and `places` under another. */
  function server(places: number): void {
    vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
      const request = JSON.parse(String(init.body));
      const isOld = request.against.inline.policyDocument === 'old';
      const method = path.split('/').at(-1);
      const admits = { permitted: true, headroom: isOld ? '1' : '6' };
      const placedCount = isOld ? 1 : places;
      const placed = placedCount >= (request.job?.name === 'x/a' ? 2 : 1);
      const result = method === 'Place' ? { placedCount, ...(placed ? { placed } : {}) } : method === 'Admit' ? { items: [admits, admits, admits, admits] } : method === 'Score' ? { items: [{}] } : {};
      return new Response(JSON.stringify({ result }));
    });
  }

  it('says that no other job starts, and how many tasks find a node', async () => {
    server(1);
    const impact = await impactOf(cluster, '2026-11-30T12:00:00Z', 'old', 'new');
    expect(impact.starts).toEqual({ tried: 2, before: ['x/b'], after: ['x/b'] });
    expect(startsText(impact)).toBe('The same 1 job would start under both policies (x/b).');
    expect(impact.changedJobs.map(({ name, after }) => `${name} ${startText(after)}`)).toEqual(['x/a no: 1 of 2 tasks finds a node', 'x/b yes']);
    expect(startsText({ ...impact, starts: { tried: 2, before: [], after: [] } })).toBe('No waiting job would start under either policy.');
  });

  it('names the jobs that would start, and those that would not', async () => {
    server(2);
    const impact = await impactOf(cluster, '2026-11-30T12:00:00Z', 'old', 'new');
    expect(startsText(impact)).toBe('x/a would start.');
    expect(startsText({ ...impact, jobs: 9, starts: { tried: 2, before: ['x/a'], after: [] } })).toBe('Of the 2 jobs that were tried, x/a would no longer start.');
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

it('keeps the draft of each policy with its base', () => {
  keepDraft('default', { document: 'a: 2', base: '4' });
  expect([keptDraft('default'), keptDraft('other')]).toEqual([{ document: 'a: 2', base: '4' }, undefined]);
  keepDraft('default', undefined);
  expect(keptDraft('default')).toBeUndefined();
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
