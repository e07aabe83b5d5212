import { afterEach, expect, it, vi } from 'vitest';
import { decide, latestAt } from '../src/decide';
import type { WaitingJob } from '../src/waiting/jobs';
import { list } from '../src/rpc';
import { askAbout } from '../src/waiting/explain';

/** Answers calls by `answer`, and keeps what was asked. */
function server(answer: (path: string, request: Record<string, unknown>) => object): { path: string; request: Record<string, unknown> }[] {
  const calls: { path: string; request: Record<string, unknown> }[] = [];
  vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
    const request = JSON.parse(String(init.body)) as Record<string, unknown>;
    calls.push({ path, request });
    return new Response(JSON.stringify(answer(path, request)));
  });
  return calls;
}
afterEach(() => {
  vi.unstubAllGlobals();
});

it('names the time in whole seconds', async () => {
  expect(latestAt(Date.UTC(2026, 10, 30, 12, 0, 0) + 999)).toEqual({ now: '2026-11-30T12:00:00.000Z' });
  const calls = server(() => ({}));
  await decide('Order', latestAt(0), { queues: {} });
  expect(calls).toEqual([{ path: '/pumice.v1.DecisionService/Order', request: { against: { now: '1970-01-01T00:00:00.000Z' }, queues: {} } }]);
});

it('asks everything about a job for one time, and collects what was not evaluated', async () => {
  const plugin = { subject: 'policy', name: 'extender', effect: 'asks a webhook' };
  const calls = server(() => ({ metadata: { notEvaluated: [plugin] }, result: { items: [{ permitted: true, notEvaluated: [{ subject: 'task', name: 'nodeSelector', effect: 'selects nodes' }] }] } }));
  const task = { name: 'x/a-0', job: 'x/a' };
  const job: WaitingJob = { name: 'x/a', queue: 'q', job: { job: { name: 'x/a', queue: 'q' } }, unknownJob: '', waiting: [task], gated: [], started: [], tasks: 1, needed: 1, since: undefined, isPending: true, invalid: undefined };
  const answers = await askAbout(job, latestAt(7000), true);
  expect(calls.map(({ path }) => path.split('/').at(-1)).sort()).toEqual(['Admit', 'Admit', 'Filter', 'Place']);
  expect(new Set(calls.map(({ request }) => JSON.stringify(request['against'])))).toEqual(new Set(['{"now":"1970-01-01T00:00:07.000Z"}']));
  expect(answers.notEvaluated.map(({ name }) => name).sort()).toEqual(['extender', 'nodeSelector']);
});

it('follows the pages of each list to its end', async () => {
  const calls = server((path, request) => {
    const token = path.includes('Policy') ? request['pageToken'] : (request['page'] as { token: string }).token;
    return { entries: [token], ...(token === '' ? { nextPageToken: 'b' } : {}) };
  });
  expect(await list('StateService/ListNodes', 'entries')).toEqual(['', 'b']);
  expect(await list('PolicyService/ListPolicies', 'entries', { name: 'default' })).toEqual(['', 'b']);
  expect(calls.map(({ request }) => request)).toEqual([
    { page: { size: 1000, token: '' } }, { page: { size: 1000, token: 'b' } },
    { name: 'default', pageSize: 1000, pageToken: '' }, { name: 'default', pageSize: 1000, pageToken: 'b' },
  ]);
});
