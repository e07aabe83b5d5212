import { describe, expect, it } from 'vitest';
import type { AdmitItem, JobStatus, PlaceResult, QueueStatus, StoredTask } from '../src/protocol';
import { type JobAnswers, placeRequest } from '../src/waiting/explain';
import { groupEqualTasks, sumOfRequests, waitingJobs } from '../src/waiting/jobs';
import { minimumsOf, seatGroups, seatsOf } from '../src/waiting/seats';
import { nearestNodes, quotaOf, quotasOf, verdictOf } from '../src/waiting/verdict';

// What a server with examples/queues answered about x/gang, shortened.
const job: JobStatus = { job: { name: 'x/gang', queue: 'research', creationTime: '2026-11-20T10:02:00Z', phase: 'JOB_PHASE_INQUEUE', minMember: 10 } };
const tasks = Array.from({ length: 10 }, (_, at): StoredTask => ({
  task: { name: `x/gang-${at}`, job: 'x/gang', status: 'TASK_STATUS_PENDING', requests: { items: { cpu: '1', memory: '1Gi' } } },
}));
const research: QueueStatus = { queue: { name: 'research', state: 'QUEUE_STATE_OPEN' } };
const insufficient = {
  reason: { plugin: 'resource-fit', code: 'InsufficientResource', message: 'insufficient cpu', resolution: 'RESOLUTION_UNSCHEDULABLE', resource: 'cpu' },
  count: 4,
  samples: [{ node: 'node-1', measurements: [{ name: 'requested', value: 1, unit: 'cores' }, { name: 'future idle', unit: 'cores' }] }],
};
const placement: PlaceResult = { groups: [{ allocated: { names: ['node-3', 'node-4', 'node-3', 'node-4'] } }], blockers: [insufficient], placedCount: 4 };
const together: AdmitItem = {
  headroom: '0',
  reasons: [
    {
      plugin: 'proportion',
      code: 'QueueOverDeserved',
      message: 'Queue <research> has not enough cpu: requested <10>, held <2>, deserved amount <8>',
      resource: 'cpu',
      measurements: [
        { name: 'requested', value: 10, unit: 'cores' }, { name: 'allocated', value: 2, unit: 'cores' }, { name: 'inqueue', unit: 'cores' },
        { name: 'total', value: 12, unit: 'cores' }, { name: 'deserved', value: 8, unit: 'cores' }, { name: 'capability', value: 8, unit: 'cores' },
      ],
    },
  ],
};
const [gang] = waitingJobs([job], tasks);
if (!gang) throw new Error('x/gang waits');
const answers: JobAnswers = {
  admission: undefined,
  together,
  classes: [{ tasks: gang.waiting, admission: { permitted: true, headroom: '6' }, filter: { fitCount: 2, rejections: [{ ...insufficient, count: 2 }] } }],
  groups: [gang.waiting],
  placement,
  notEvaluated: [],
};

const nothing: JobAnswers = { admission: undefined, together: undefined, classes: [], groups: [], placement: undefined, notEvaluated: [] };

describe('jobs that wait', () => {
  it('has what still must start together', () => {
    expect(gang).toMatchObject({ name: 'x/gang', queue: 'research', needed: 10, started: [], tasks: 10, isPending: false });
    const running = tasks.map((stored, at) => (at < 3 ? { task: { ...stored.task, status: 'TASK_STATUS_RUNNING', node: 'node-1' } } : stored));
    expect(waitingJobs([job], running)[0]).toMatchObject({ needed: 7, started: { length: 3 } });
  });

  it('leaves out jobs whose tasks all have nodes, and finds tasks without a job', () => {
    const running: StoredTask = { task: { name: 'x/a-0', job: 'x/a', status: 'TASK_STATUS_RUNNING', node: 'node-1' } };
    const lone: StoredTask = { task: { name: 'x/lone', status: 'TASK_STATUS_PENDING' } };
    expect(waitingJobs([{ job: { name: 'x/a', phase: 'JOB_PHASE_RUNNING' } }], [running, lone]).map((own) => own.name)).toEqual(['x/lone']);
  });

  it('leaves out what has completed, also with tasks that are still there', () => {
    const ended = (phase: string, status: string) => waitingJobs([{ job: { ...job.job, phase } }], tasks.map(({ task }) => ({ task: { ...task, status } })));
    expect(ended('JOB_PHASE_COMPLETED', 'TASK_STATUS_SUCCEEDED')).toEqual([]);
    expect(ended('JOB_PHASE_COMPLETED', 'TASK_STATUS_PENDING')).toEqual([]);
    expect(ended('JOB_PHASE_RUNNING', 'TASK_STATUS_SUCCEEDED')).toEqual([]);
    expect(waitingJobs([{ job: { ...job.job, phase: 'JOB_PHASE_COMPLETED' } }, { job: { ...job.job, name: 'x/old', phase: 'JOB_PHASE_RUNNING' } }], [])).toEqual([]);
  });

  it('waits for tasks that are not there yet', () => {
    const [own] = waitingJobs([job], []);
    expect(own && verdictOf(own, nothing, research)).toMatchObject({ code: 'too few tasks', sentence: 'it starts with 10 tasks, and none is known' });
    const [pending] = waitingJobs([{ job: { ...job.job, phase: 'JOB_PHASE_PENDING' } }], []);
    expect(pending && verdictOf(pending, nothing, research).code).toBe('its turn');
  });

  it('names the gate that keeps tasks from the scheduler', () => {
    const gated = (number: number, schedulingGates?: string[]) => tasks.map(({ task }, at): StoredTask => ({ task: at < number ? { ...task, gated: true, ...(schedulingGates ? { schedulingGates } : {}) } : task }));
    const verdictOn = (stored: StoredTask[]) => {
      const [own] = waitingJobs([job], stored);
      return own && verdictOf(own, nothing, research);
    };
    expect(verdictOn(gated(10))).toMatchObject({ code: 'gated', sentence: '10 of its 10 waiting tasks have a scheduling gate' });
    expect(verdictOn(gated(1, ['x.io/quota', 'x.io/data']))).toMatchObject({ code: 'gated', sentence: '1 of its 10 waiting tasks has the scheduling gates x.io/quota, x.io/data' });
    const [lone] = waitingJobs([], [{ task: { name: 'x/lone', gated: true, schedulingGates: ['x.io/quota'] } }]);
    expect(lone && verdictOf(lone, nothing, undefined)).toMatchObject({ code: 'gated', sentence: 'it has the scheduling gate x.io/quota' });
  });

  it('tries tasks with the gate of their queue, which the scheduler removes', () => {
    const [own] = waitingJobs([job], tasks.map(({ task }) => ({ task: { ...task, gated: true, schedulingGates: ['scheduling.volcano.sh/queue-allocation-gate'] } })));
    expect(own).toMatchObject({ gated: [], waiting: { length: 10 } });
    expect(own && placeRequest(own, groupEqualTasks(own.waiting))).toMatchObject({ groups: [{ count: 10, task: { gated: false, schedulingGates: [] } }] });
  });

  it('shows the record that the server rejected, and the job that it does not have', () => {
    const [own] = waitingJobs([job], tasks.map((stored, at) => (at === 3 ? { ...stored, invalid: [{ message: 'not a quantity' }] } : stored)));
    expect(own && verdictOf(own, answers, research)).toMatchObject({ code: 'record invalid', sentence: 'the newest record of task x/gang-3 was rejected: not a quantity' });
    const [lost] = waitingJobs([], tasks.slice(0, 1));
    expect(lost && verdictOf(lost, nothing, undefined)).toMatchObject({ code: 'no job', sentence: 'there is no job x/gang' });
    expect(verdictOf(gang, answers, { ...research, invalid: [{ message: 'not a quantity' }] }).code).toBe('queue invalid');
  });

  it('groups equal tasks and sums what they ask for', () => {
    expect(groupEqualTasks(gang.waiting)).toHaveLength(1);
    expect(sumOfRequests(gang.waiting)).toEqual({ items: { cpu: '10', memory: `${10 * 2 ** 30}` } });
    expect(sumOfRequests([{ requests: { items: { cpu: '500m' } } }])).toEqual({ items: { cpu: '500m' } });
  });
});

describe('verdict', () => {
  it('is the quota of the gang', () => {
    const found = verdictOf(gang, answers, research);
    expect(found.code).toBe('quota');
    expect(found.sentence).toBe('queue research has 6 of 8 cores of cpu left, and the gang of 10 tasks asks for 10 cores; the queue admits 6 of its tasks now, and nodes have room for 4 of them');
  });

  it('is the gang, where the quota admits it', () => {
    const found = verdictOf(gang, { ...answers, together: undefined }, research);
    expect(found).toMatchObject({ code: 'gang', sentence: '10 tasks must start together, and only 4 find a node; the next finds none (4 nodes: insufficient cpu)' });
  });

  it('is the nodes, where none takes a task', () => {
    const none = { ...answers, together: undefined, placement: { ...placement, placedCount: 0 } };
    expect(verdictOf(gang, none, research).code).toBe('no node');
  });

  it('is its turn, where nodes take it', () => {
    expect(verdictOf(gang, { ...answers, together: undefined, placement: { placed: true, placedCount: 10 } }, research).code).toBe('its turn');
  });

  it('is the queue first', () => {
    expect(verdictOf(gang, answers, undefined)).toMatchObject({ code: 'no queue', sentence: 'there is no queue research' });
    expect(verdictOf(gang, answers, { queue: { name: 'research', state: 'QUEUE_STATE_CLOSED' } }).code).toBe('queue closed');
  });

  it('shows what the server cannot evaluate', () => {
    const broken = { ...answers, classes: [{ tasks: gang.waiting, admission: { problem: { message: 'not a quantity' } }, filter: undefined }] };
    expect(verdictOf(gang, broken, research)).toMatchObject({ code: 'request invalid', sentence: 'the server cannot evaluate it: not a quantity' });
    const unplaced = { ...nothing, placement: { groups: [{ problem: { message: 'the tasks name no job' } }] } };
    expect(verdictOf(gang, unplaced, research)).toMatchObject({ code: 'request invalid', sentence: 'the server cannot evaluate it: the tasks name no job' });
  });
});

describe('seats', () => {
  const member = (name: string, role: string, subGroup = '', status = 'TASK_STATUS_PENDING'): StoredTask => ({ task: { name, job: 'x/roles', status, role, ...(subGroup ? { subGroup } : {}), requests: { items: { cpu: role === 'ps' ? '4' : '1' } } } });
  const record: JobStatus = { job: { name: 'x/roles', queue: 'research', phase: 'JOB_PHASE_INQUEUE', minMember: 4, minTaskMember: { ps: 2, worker: 2 } } };
  const stored = [member('x/ps-0', 'ps'), member('x/ps-1', 'ps'), member('x/worker-0', 'worker'), member('x/worker-1', 'worker'), member('x/worker-2', 'worker')];
  const answer = (groups: PlaceResult['groups'], own: StoredTask[]): JobAnswers => ({ ...nothing, groups: groupEqualTasks(own.map(({ task }) => task)), placement: { ...(groups ? { groups } : {}), placedCount: 4, blockers: [insufficient] } });

  it('have the nodes of their own group', () => {
    const [roles] = waitingJobs([record], stored);
    if (!roles) throw new Error('x/roles waits');
    const own = answer([{ allocated: { names: ['node-1'] } }, { allocated: { names: ['node-2', 'node-2'] }, pipelined: { names: ['node-3'] } }], stored);
    const seats = seatsOf(own);
    expect(seats.map(({ task, node, isLater }) => [task.name, node, isLater])).toEqual([
      ['x/ps-0', 'node-1', false], ['x/ps-1', '', false], ['x/worker-0', 'node-2', false], ['x/worker-1', 'node-2', false], ['x/worker-2', 'node-3', true],
    ]);
    expect(seatGroups(roles, seats).map(({ title, found, needed }) => [title, found, needed])).toEqual([['role ps', 1, 2], ['role worker', 3, 2]]);
    expect(minimumsOf(roles, seats)).toEqual([{ what: 'tasks', needed: 4, found: 4 }, { what: 'tasks of role ps', needed: 2, found: 1 }, { what: 'tasks of role worker', needed: 2, found: 3 }]);
    expect(verdictOf(roles, own, research)).toMatchObject({ code: 'gang', sentence: 'it starts with 2 tasks of role ps, and only 1 of them finds a place, although nodes take 4 of its tasks (4 nodes: insufficient cpu)' });
  });

  it('count the groups of a policy that are complete, started tasks included', () => {
    const groups: JobStatus = { job: { ...record.job, minTaskMember: {}, minMember: 1, subGroupPolicies: [{ name: 'rack', size: 2, minGroups: 2 }] } };
    const all = [member('x/0', '', 'rack/a', 'TASK_STATUS_RUNNING'), member('x/1', '', 'rack/a'), member('x/2', '', 'rack/b'), member('x/3', '', 'rack/b')];
    const [own] = waitingJobs([groups], all);
    if (!own) throw new Error('x/roles waits');
    const seats = seatsOf(answer([{ allocated: { names: ['node-1'] } }, { allocated: { names: ['node-2'] } }], all.slice(1)));
    expect(seatGroups(own, seats).map(({ title, found, started, needed }) => [title, found, started, needed])).toEqual([['group rack/a', 1, 1, 2], ['group rack/b', 1, 0, 2]]);
    expect(minimumsOf(own, seats).at(-1)).toEqual({ what: 'groups of rack', needed: 2, found: 1 });
  });

  it('leaves minimums of roles out that the job does not apply', () => {
    const [own] = waitingJobs([{ job: { ...record.job, minMember: 3 } }], stored);
    expect(own && minimumsOf(own, [])).toEqual([{ what: 'tasks', needed: 3, found: 0 }]);
  });
});

it('asks for one task where the job has no minimum', () => {
  const [lone] = waitingJobs([], [{ task: { name: 'x/lone' } }]);
  expect(lone && placeRequest(lone, [lone.waiting])).toEqual({ groups: [{ names: ['x/lone'] }], minAvailable: 1, effect: 'PLACE_EFFECT_PREVIEW' });
  expect(placeRequest(gang, [gang.waiting.slice(0, 1)])).toEqual({ job: { name: 'x/gang' }, groups: [{ names: ['x/gang-0'] }], effect: 'PLACE_EFFECT_PREVIEW' });
});

it('reads the amounts of a quota', () => {
  expect(quotaOf(together.reasons?.[0] ?? {})).toEqual({ resource: 'cpu', unit: 'cores', requested: 10, held: 2, reserved: 0, left: 6, ceiling: 8, bound: 8, isDeserved: true });
  expect(quotaOf({ measurements: [] })).toBeUndefined();
  expect([quotasOf({ code: 'quota', sentence: '', reasons: together.reasons ?? [] }).length, quotasOf({ code: 'gang', sentence: '', reasons: together.reasons ?? [] }).length]).toEqual([1, 0]);
});

it('sorts rejected nodes by what they lack', () => {
  const sample = (name: string, idle: number) => ({ node: name, measurements: [{ name: 'requested', value: 4, unit: 'cores' }, { name: 'future idle', value: idle, unit: 'cores' }] });
  const near = nearestNodes([{ reason: { resource: 'cpu' }, samples: [sample('far', 0), sample('near', 3)] }], 1);
  expect(near).toEqual([{ node: 'near', resource: 'cpu', unit: 'cores', requested: 4, idle: 3, allocatable: 0 }]);
});
