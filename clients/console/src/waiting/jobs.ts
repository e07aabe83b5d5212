/** Jobs that wait, and their tasks. */

import { parseQuantity } from '../amounts';
import type { Job, JobStatus, ResourceList, StoredTask, Task } from '../protocol';

/** A job, or a single task without a job, that waits for nodes. */
export interface WaitingJob {
  name: string;
  queue: string;
  job: JobStatus | undefined;
  /** Tasks that wait for a node, without scheduling gates, by name. */
  waiting: Task[];
  gated: number;
  /** Tasks that have a node, wait for one that is being freed, or succeeded. */
  held: number;
  tasks: number;
  /** Number of tasks that still have to start together. */
  needed: number;
  /** Time of creation in milliseconds. Undefined: unknown. */
  since: number | undefined;
  /** True: the scheduler has not enqueued the job yet, so the queue has to admit it first. */
  isPending: boolean;
}

const HELD = new Set(['PIPELINED', 'ALLOCATED', 'BINDING', 'BOUND', 'RUNNING', 'SUCCEEDED']);

const statusOf = (task: Task) => (task.status ?? 'TASK_STATUS_PENDING').replace('TASK_STATUS_', '');
const phaseOf = (job: Job) => (job.phase ?? 'JOB_PHASE_PENDING').replace('JOB_PHASE_', '');

/** Jobs and single tasks that wait, the oldest first. */
export function waitingJobs(jobs: JobStatus[], tasks: StoredTask[]): WaitingJob[] {
  const byJob = new Map<string, Task[]>();
  const known = new Set(jobs.map((status) => status.job.name));
  const single: Task[] = [];
  for (const { task } of tasks) {
    if (!task.job || !known.has(task.job)) single.push(task);
    else byJob.set(task.job, [...(byJob.get(task.job) ?? []), task]);
  }
  const found = jobs.map((status) => waitingJob(status, byJob.get(status.job.name) ?? [])).filter((job) => job !== undefined);
  for (const task of single) if (isWaiting(task)) found.push(singleTask(task));
  return found.sort((one, other) => (one.since ?? 0) - (other.since ?? 0) || one.name.localeCompare(other.name));
}

const isWaiting = (task: Task) => ['PENDING', 'UNSPECIFIED'].includes(statusOf(task)) && !task.node;

function waitingJob(status: JobStatus, tasks: Task[]): WaitingJob | undefined {
  const { job } = status;
  const isPending = ['PENDING', 'UNSPECIFIED'].includes(phaseOf(job));
  const pending = tasks.filter(isWaiting);
  if (phaseOf(job) === 'COMPLETED' || (pending.length === 0 && !(isPending && tasks.length === 0))) return undefined;
  const waiting = pending.filter((task) => !task.gated);
  const held = tasks.filter((task) => HELD.has(statusOf(task))).length;
  return {
    name: job.name,
    queue: job.queue ?? '',
    job: status,
    waiting,
    gated: pending.length - waiting.length,
    held,
    tasks: tasks.length,
    needed: Math.max(1, (job.minMember ?? 0) - held),
    since: job.creationTime ? Date.parse(job.creationTime) : undefined,
    isPending,
  };
}

function singleTask(task: Task): WaitingJob {
  const gated = task.gated ? 1 : 0;
  const since = task.creationTime ? Date.parse(task.creationTime) : undefined;
  return { name: task.name ?? '', queue: '', job: undefined, waiting: gated ? [] : [task], gated, held: 0, tasks: 1, needed: 1, since, isPending: false };
}

/** Tasks that differ in name, age and priority only, as Place takes them in one group. */
export function groupEqualTasks(tasks: Task[]): Task[][] {
  const groups = new Map<string, Task[]>();
  for (const task of tasks) {
    const like = JSON.stringify({ ...task, name: '', uid: '', creationTime: '', priority: 0 });
    const group = groups.get(like);
    if (group) group.push(task);
    else groups.set(like, [task]);
  }
  return [...groups.values()];
}

/** Sum of requests as quantities, for a question about tasks that start together. */
export function sumOfRequests(tasks: Task[]): ResourceList {
  const sums = new Map<string, number>();
  for (const task of tasks) {
    for (const [resource, text] of Object.entries(task.requests?.items ?? {})) {
      // Thousandths are whole numbers for every quantity that a server accepts.
      sums.set(resource, (sums.get(resource) ?? 0) + Math.round(parseQuantity(text) * 1000));
    }
  }
  return { items: Object.fromEntries([...sums].map(([resource, sum]) => [resource, sum % 1000 === 0 ? `${sum / 1000}` : `${sum}m`])) };
}
