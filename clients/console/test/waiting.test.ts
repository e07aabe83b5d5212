import { describe, expect, it } from 'vitest';
import type { AdmitItem, JobStatus, PlaceResult, QueueStatus, StoredTask } from '../src/protocol';
import type { JobAnswers } from '../src/waiting/explain';
import { groupEqualTasks, sumOfRequests, waitingJobs } from '../src/waiting/jobs';
import { helpOf, nearestNodes, quotaOf, verdictOf } from '../src/waiting/verdict';

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
const placement: PlaceResult = { placed: true, groups: [{ allocated: { names: ['node-3', 'node-4', 'node-3', 'node-4'] } }], blockers: [insufficient], placedCount: 4 };
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
  placement,
};

describe('jobs that wait', () => {
  it('has what still must start together', () => {
    expect(gang).toMatchObject({ name: 'x/gang', queue: 'research', needed: 10, held: 0, tasks: 10, isPending: false });
    const running = tasks.map((stored, at) => (at < 3 ? { task: { ...stored.task, status: 'TASK_STATUS_RUNNING', node: 'node-1' } } : stored));
    expect(waitingJobs([job], running)[0]).toMatchObject({ needed: 7, held: 3 });
  });

  it('leaves out jobs whose tasks all have nodes, and finds tasks without a job', () => {
    const running: StoredTask = { task: { name: 'x/a-0', job: 'x/a', status: 'TASK_STATUS_RUNNING', node: 'node-1' } };
    const lone: StoredTask = { task: { name: 'x/lone', status: 'TASK_STATUS_PENDING' } };
    expect(waitingJobs([{ job: { name: 'x/a', phase: 'JOB_PHASE_RUNNING' } }], [running, lone]).map((own) => own.name)).toEqual(['x/lone']);
  });

  it('does not wait for gated tasks', () => {
    const gated = tasks.map((stored) => ({ task: { ...stored.task, gated: true } }));
    const [own] = waitingJobs([job], gated);
    expect(own).toMatchObject({ gated: 10, waiting: [] });
    expect(own && verdictOf(own, { ...answers, classes: [], placement: undefined }, research)).toMatchObject({ code: 'gated', sentence: '10 of its 10 waiting tasks have a scheduling gate' });
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
    expect(found.sentence).toBe('queue research has 6 of 8 cores of cpu left, and the gang of 10 tasks asks for 10 cores; the queue admits 6 of its tasks now');
    expect(helpOf(gang, answers, found)).toEqual([
      'It never fits: queue research may hold at most 8 cores of cpu. Raise its limit to at least 12 cores of cpu.',
      'The queue would let it start with a minMember of at most 6.',
    ]);
  });

  it('is the gang, where the quota admits it', () => {
    const found = verdictOf(gang, { ...answers, together: undefined }, research);
    expect(found).toMatchObject({ code: 'gang', sentence: '10 tasks must start together, and only 4 find a node; the next finds none (4 nodes: insufficient cpu)' });
    expect(helpOf(gang, { ...answers, together: undefined }, found)[0]).toBe('6 tasks fewer in minMember would let it start.');
  });

  it('is the nodes, where none takes a task', () => {
    const none = { ...answers, together: undefined, placement: { ...placement, placedCount: 0 } };
    expect(verdictOf(gang, none, research).code).toBe('no node');
  });

  it('is its turn, where nodes take it', () => {
    expect(verdictOf(gang, { ...answers, together: undefined, placement: { placedCount: 10 } }, research).code).toBe('its turn');
  });

  it('is the queue first', () => {
    expect(verdictOf(gang, answers, undefined)).toMatchObject({ code: 'no queue', sentence: 'there is no queue research' });
    expect(verdictOf(gang, answers, { queue: { name: 'research', state: 'QUEUE_STATE_CLOSED' } }).code).toBe('queue closed');
  });

  it('shows what the server cannot evaluate', () => {
    const broken = { ...answers, classes: [{ tasks: gang.waiting, admission: { problem: { message: 'not a quantity' } }, filter: undefined }] };
    expect(verdictOf(gang, broken, research)).toMatchObject({ code: 'request invalid', sentence: 'the server cannot evaluate it: not a quantity' });
  });
});

it('reads the amounts of a quota', () => {
  expect(quotaOf(together.reasons?.[0] ?? {})).toEqual({ resource: 'cpu', unit: 'cores', requested: 10, held: 2, left: 6, ceiling: 8, bound: 8, isDeserved: true });
  expect(quotaOf({ measurements: [] })).toBeUndefined();
});

it('sorts rejected nodes by what they lack', () => {
  const sample = (name: string, idle: number) => ({ node: name, measurements: [{ name: 'requested', value: 4, unit: 'cores' }, { name: 'future idle', value: idle, unit: 'cores' }] });
  const near = nearestNodes([{ reason: { resource: 'cpu' }, samples: [sample('far', 0), sample('near', 3)] }], 1);
  expect(near).toEqual([{ node: 'near', resource: 'cpu', unit: 'cores', requested: 4, idle: 3, allocatable: 0 }]);
});
