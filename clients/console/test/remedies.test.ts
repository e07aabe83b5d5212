import { afterEach, describe, expect, it, vi } from 'vitest';
import type { ClusterRecords } from '../src/copy';
import type { AdmitItem, JobStatus, PlaceResult, QueueStatus, Rejection, StoredTask } from '../src/protocol';
import { askOrder, type JobAnswers } from '../src/waiting/explain';
import { waitingJobs } from '../src/waiting/jobs';
import { actionsOf, askEvictions, evictionText, evicts, isPassing, mayPreempt, victimsOf } from '../src/waiting/preemption';
import { type Change, type Outcome, changedCluster, remediesOf, serverTrial } from '../src/waiting/remedies';
import { orderKeysText, ordinalText, queueTurnText, turnOf } from '../src/waiting/turn';
import { type Verdict, verdictOf } from '../src/waiting/verdict';

afterEach(() => {
  vi.unstubAllGlobals();
});

// What a server with examples/queues answered about x/gang: its queue holds 2 of 8 cores, and nodes have room for 4 of 10 tasks.
const status: JobStatus = { job: { name: 'x/gang', queue: 'research', phase: 'JOB_PHASE_INQUEUE', minMember: 10 } };
const tasks = Array.from({ length: 10 }, (_, at): StoredTask => ({ task: { name: `x/gang-${at}`, job: 'x/gang', status: 'TASK_STATUS_PENDING', requests: { items: { cpu: '1', memory: '1Gi' } } } }));
const research: QueueStatus = { queue: { name: 'research', state: 'QUEUE_STATE_OPEN', capability: { items: { cpu: '8', memory: '64Gi' } } } };
const cores = (name: string, value: number) => ({ name, value, unit: 'cores' });
const noRoom: Rejection = { reason: { plugin: 'resource-fit', code: 'InsufficientResource', message: 'insufficient cpu', resolution: 'RESOLUTION_UNSCHEDULABLE', resource: 'cpu' }, count: 2, samples: [{ node: 'node-1', measurements: [cores('requested', 1), cores('future idle', 0)] }] };
const together: AdmitItem = { reasons: [{ plugin: 'proportion', code: 'QueueOverDeserved', resource: 'cpu', measurements: [cores('requested', 10), cores('allocated', 2), cores('total', 12), cores('deserved', 8), cores('capability', 8)] }] };
const placement: PlaceResult = { groups: [{ allocated: { names: ['node-3', 'node-4', 'node-3', 'node-4'] } }], blockers: [noRoom], placedCount: 4 };
const [gang] = waitingJobs([status], tasks);
if (!gang) throw new Error('x/gang waits');
const answers: JobAnswers = { admission: undefined, together, classes: [{ tasks: gang.waiting, admission: { permitted: true, headroom: '6' }, filter: { fitCount: 2, rejections: [noRoom] } }], groups: [gang.waiting], placement, notEvaluated: [] };
const found = verdictOf(gang, answers, research);

/** A cluster in which the gang starts under some changes. Keeps what was tried. */
function trials(starts: (change: Change) => boolean, placed = 4): { tried: Change[]; trial: (change: Change) => Promise<Outcome | undefined> } {
  const tried: Change[] = [];
  return { tried, trial: async (change) => (tried.push(change), { starts: starts(change), placed }) };
}

describe('remedies', () => {
  const remedies = async (starts: (change: Change) => boolean, verdict: Verdict = found, placed = 4) => (await remediesOf(gang, answers, verdict, research, [], trials(starts, placed).trial)).changes;

  it('name everything that is needed: the limit, the share and the room on nodes', async () => {
    // As the example decides: neither a limit of 12 nor more room alone lets it start.
    const needs = ({ queue, room, minMember }: Change) => (minMember ?? 10) <= 4 || (queue?.guarantee?.items?.['cpu'] === '12' && queue.capability?.items?.['cpu'] === '12' && room?.items?.['cpu'] === '6');
    expect(await remedies(needs)).toEqual([
      'A minMember of at most 4 would let it start.',
      'To let it start, raise spec.capability of queue research to at least 12 cores of cpu, give queue research a spec.guarantee of at least 12 cores of cpu and add nodes with room for 6 of its tasks (6 cores of cpu and 6Gi of memory).',
    ]);
  });

  it('are not shown where the job does not start with them', async () => {
    expect(await remedies(() => false)).toEqual([]);
  });

  it('are the least change', async () => {
    expect(await remedies(({ queue }) => queue !== undefined, found, 10)).toEqual(['To let it start, raise spec.capability of queue research to at least 12 cores of cpu.']);
    expect(await remedies(({ room }) => room !== undefined)).toEqual(['To let it start, add nodes with room for 6 of its tasks (6 cores of cpu and 6Gi of memory).']);
  });

  it('keep facts, and tell when a state is too large to try changes', async () => {
    const { facts, changes, isPartial } = await remediesOf(gang, answers, found, research, [], async (change) => (change.minMember ? { starts: true, placed: 4 } : undefined));
    expect(facts).toEqual(['It never fits as it is: queue research may hold at most 8 cores of cpu.']);
    expect([changes, isPartial]).toEqual([['A minMember of at most 4 would let it start.'], true]);
  });

  it('of a job that no node takes are smaller requests', async () => {
    const near = { ...noRoom, count: 4, samples: [{ node: 'node-3', measurements: [cores('requested', 4), cores('future idle', 2)] }] };
    const none: JobAnswers = { ...answers, together: undefined, placement: { blockers: [near] }, classes: [{ tasks: gang.waiting, admission: { permitted: true }, filter: { rejections: [near] } }] };
    const verdict = verdictOf(gang, none, research);
    const { tried, trial } = trials(({ requests }) => requests !== undefined);
    expect((await remediesOf(gang, none, verdict, research, undefined, trial))).toMatchObject({ facts: ['Preemption may help on 4 nodes.'], changes: ['It would start if each of its tasks asked for at most 2 cores of cpu.'] });
    expect(tried[0]).toEqual({ requests: { group: 0, requests: { items: { cpu: '2', memory: '1Gi' } } } });
  });

  it('try nothing where a record is the cause', async () => {
    const { tried, trial } = trials(() => true);
    expect(await remediesOf(gang, answers, { code: 'gated', sentence: '', reasons: [] }, research, undefined, trial)).toEqual({ facts: ['Whoever set spec.schedulingGates has to remove them.'], changes: [], isPartial: false });
    expect(tried).toEqual([]);
  });

  it('cover what overcommit has not left', async () => {
    const overused: AdmitItem = { reasons: [{ plugin: 'overcommit', code: 'ResourceOveruse', resource: 'cpu', measurements: [cores('requested', 7), cores('inqueue', 33), cores('idle', 10.4)] }] };
    const verdict: Verdict = { code: 'quota', sentence: '', reasons: overused.reasons ?? [] };
    expect(await remedies(({ room }) => room?.items?.['cpu'] === '22600m', verdict)).toEqual(['To let it start, add nodes with 22.6 cores of cpu and 6Gi of memory, for its tasks and what is reserved for other jobs.']);
  });
});

describe('trials', () => {
  const cluster: ClusterRecords = {
    nodes: [{ name: 'node-1', labels: { zone: 'a' }, unschedulable: true }], queues: [research.queue, { name: 'batch' }],
    jobs: [status.job, { name: 'x/notebook', queue: 'research' }, { name: 'x/etl', queue: 'batch' }], tasks: [{ name: 'x/notebook-0', job: 'x/notebook' }, { name: 'x/etl-0', job: 'x/etl' }], namespaces: [],
  };

  it('change the copy of a state', () => {
    const changed = changedCluster(cluster, gang, answers, { queue: { ...research.queue, weight: 3 }, isAlone: true, room: { items: { cpu: '6' } } });
    expect(changed.queues.map(({ weight }) => weight)).toEqual([3, undefined]);
    expect(changed.jobs.map(({ name }) => name)).toEqual(['x/gang', 'x/etl']);
    expect(changed.tasks.map(({ name }) => name)).toEqual(['x/etl-0']);
    expect(changed.nodes[1]).toMatchObject({ labels: { zone: 'a' }, allocatable: { items: { cpu: '6' } }, ready: true, unschedulable: false });
    expect(changedCluster(cluster, gang, answers, {})).toEqual(cluster);
  });

  it('ask Admit first for a job that is not enqueued, and Place about the changed job', async () => {
    const calls: { method: string; request: { job?: object; against: object } }[] = [];
    let permitted = false;
    vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
      calls.push({ method: path.split('/').at(-1) ?? '', request: JSON.parse(String(init.body)) });
      return new Response(JSON.stringify({ result: path.endsWith('Admit') ? { items: [{ permitted }] } : { placed: true, placedCount: 4 } }));
    });
    const trial = serverTrial({ ...gang, isPending: true }, answers, '2026-11-30T12:00:00Z', async () => ({ cluster, policyDocument: 'tiers: []' }));
    expect(await trial({ minMember: 4 })).toEqual({ starts: false, placed: 0 });
    permitted = true;
    expect(await trial({ minMember: 4 })).toEqual({ starts: true, placed: 4 });
    expect(calls.map(({ method }) => method)).toEqual(['Admit', 'Admit', 'Place']);
    expect(calls[2]?.request).toMatchObject({ job: { ...status.job, minMember: 4 }, against: { now: '2026-11-30T12:00:00Z' } });
    expect(await trial({ isAlone: true })).toEqual({ starts: true, placed: 4 });
    expect(calls.at(-1)?.request.against).toMatchObject({ inline: { policyDocument: 'tiers: []', cluster: { tasks: [{ name: 'x/etl-0' }] } } });
    expect(await serverTrial(gang, answers, '', async () => undefined)({ isAlone: true })).toBeUndefined();
  });
});

describe('preemption', () => {
  const reason = noRoom.reason ?? {};

  it('needs an action that evicts', () => {
    expect(actionsOf('actions: "enqueue, allocate, backfill"\npumice:\n  compatibility: corrected\n')).toEqual(['enqueue', 'allocate', 'backfill']);
    expect([evicts(['enqueue', 'allocate']), evicts(['allocate', 'preempt']), evicts(['reclaim'])]).toEqual([false, true, true]);
    expect(isPassing({ ...reason, resolution: 'RESOLUTION_UNRESOLVABLE' })).toBe(false);
    expect(isPassing({ ...reason, measurements: [cores('requested', 10), cores('capability', 8)] })).toBe(false);
  });

  it('helps where the server finds victims', () => {
    const on = (node: string) => [{ action: 'reclaim', nodes: [node], tasks: ['x/etl-0'] }];
    expect([mayPreempt(noRoom, []), mayPreempt(noRoom, on('node-1')), mayPreempt(noRoom, on('node-2'))]).toEqual([false, true, false]);
    expect(evictionText({ action: 'reclaim', nodes: ['node-1', 'node-2'], tasks: ['a', 'b', 'c', 'd'] })).toBe('Preemption may help on 2 nodes: reclaim evicts 4 tasks on node-1 (a, b, c and 1 more) for one of its tasks.');
  });

  it('follows its own rules in a policy without actions', async () => {
    expect(actionsOf('apiVersion: kubescheduler.config.k8s.io/v1\n')).toBeUndefined();
    expect([evicts(undefined), mayPreempt(noRoom, undefined)]).toEqual([true, true]);
    expect(await askEvictions(gang, answers.classes, undefined, { jobs: [], tasks: [], queues: [] }, { now: '' })).toBeUndefined();
  });

  const running = (name: string, owner: string, more: object = {}): StoredTask => ({ task: { name, job: owner, node: 'node-1', status: 'TASK_STATUS_RUNNING', ...more } });
  const records = {
    jobs: [status, { job: { name: 'x/notebook', queue: 'research' } }, { job: { name: 'x/etl', queue: 'batch' } }, { job: { name: 'x/kept', queue: 'keeps' } }],
    queues: [research, { queue: { name: 'batch' } }, { queue: { name: 'keeps', reclaimable: false } }],
    tasks: [running('x/notebook-0', 'x/notebook'), running('x/etl-0', 'x/etl'), running('x/etl-1', 'x/etl', { annotations: { 'volcano.sh/preemptable': 'false' } }), running('x/kept-0', 'x/kept'), running('x/lone', 'x/unknown'), running('x/gang-99', 'x/gang')],
  };

  it('takes victims of its queue, or of queues that give back', () => {
    const names = (kind: 'VICTIM_KIND_PREEMPT' | 'VICTIM_KIND_RECLAIM') => [...victimsOf(gang, kind, records)].map(([node, own]) => [node, own.map(({ name }) => name)]);
    expect(names('VICTIM_KIND_PREEMPT')).toEqual([['node-1', ['x/notebook-0']]]);
    expect(names('VICTIM_KIND_RECLAIM')).toEqual([['node-1', ['x/etl-0']]]);
  });

  it('asks for victims by the actions of the policy', async () => {
    const requests: { kind: string }[] = [];
    vi.stubGlobal('fetch', async (_: string, init: RequestInit) => {
      const request = JSON.parse(String(init.body));
      requests.push(request);
      return new Response(JSON.stringify({ result: { items: [request.kind === 'VICTIM_KIND_RECLAIM' ? { victims: [0], fitsAfter: 1, queueMayReclaim: true } : {}] } }));
    });
    expect(await askEvictions(gang, answers.classes, ['allocate'], records, { now: '' })).toEqual([]);
    expect(requests).toEqual([]);
    expect(await askEvictions(gang, answers.classes, ['preempt', 'reclaim'], records, { now: '' })).toEqual([{ action: 'reclaim', nodes: ['node-1'], tasks: ['x/etl-0'] }]);
    expect(requests).toMatchObject([{ kind: 'VICTIM_KIND_PREEMPT' }, { kind: 'VICTIM_KIND_RECLAIM', groups: [{ preemptor: { name: 'x/gang-0' }, node: 'node-1', candidates: [{ name: 'x/etl-0' }] }] }]);
  });
});

describe('turn', () => {
  const order = {
    queues: ['batch', 'default', 'serving', 'research', 'root'].map((name) => ({ name })),
    jobs: [{ name: 'x/now' }, { name: 'x/gang', keys: [{ plugin: 'priority', values: [-10] }, { plugin: 'gang', values: [0] }, { plugin: 'drf', values: [0.25] }] }],
  };
  const [now] = waitingJobs([{ job: { ...status.job, name: 'x/now', queue: 'serving' } }], []);

  it('counts all queues, as explain does', () => {
    const turn = turnOf(gang, now ? [now, gang] : [gang], order);
    expect(turn).toMatchObject({ queue: 4, queues: 5, queuesAhead: ['serving'], job: 1, jobs: [{ name: 'x/gang' }] });
    expect(queueTurnText(turn, 'research')).toBe('Queue research is 4th of 5; before it with waiting jobs: serving.');
    expect([1, 2, 3, 11, 22].map(ordinalText)).toEqual(['1st', '2nd', '3rd', '11th', '22nd']);
  });

  it('asks for the order of all queues', async () => {
    let request: unknown;
    vi.stubGlobal('fetch', async (_: string, init: RequestInit) => {
      request = JSON.parse(String(init.body));
      return new Response('{"result": {}}');
    });
    await askOrder([gang], { now: '' });
    expect(request).toMatchObject({ queues: {}, jobs: { names: ['x/gang'] } });
  });

  it('shows keys with their meaning', () => {
    expect(orderKeysText(order.jobs[1] ?? { name: '' })).toBe('priority 10, gang: not ready, drf: share 0.25');
    expect(orderKeysText({ name: '', keys: [{ plugin: 'gang', values: [1] }, { plugin: 'sla', values: [7, 5] }] })).toBe('gang: ready, sla: 7, 5');
  });
});
