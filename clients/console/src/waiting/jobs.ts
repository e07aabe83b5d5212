/** Jobs that wait, and their tasks. */

import { parseQuantity } from '../amounts';
import { groupBy } from '../lists';
import type { Job, JobStatus, Problem, ResourceList, StoredTask, Task } from '../protocol';

/** A job, or a single task without a job, that waits for nodes. */
export interface WaitingJob {
  name: string;
  queue: string;
  job: JobStatus | undefined;
  /** Job that the task names and that the server does not have. Empty: none. */
  unknownJob: string;
  /** Tasks that a scheduler tries now, by name. */
  waiting: Task[];
  /** Tasks with a scheduling gate that somebody has to remove. */
  gated: Task[];
  /** Tasks that have a node, wait for one that is being freed, or succeeded. */
  started: Task[];
  tasks: number;
  /** Number of tasks that still have to start together. */
  needed: number;
  /** Time of creation in milliseconds. Undefined: unknown. */
  since: number | undefined;
  /** True: the scheduler has not enqueued the job yet, so the queue has to admit it first. */
  isPending: boolean;
  /** First problem of its newest record, or of a record of its tasks. */
  invalid: { record: string; problem: Problem } | undefined;
}

const STARTED = new Set(['PIPELINED', 'ALLOCATED', 'BINDING', 'BOUND', 'RUNNING', 'SUCCEEDED']);

/** Gate that Volcano's scheduler removes by itself when the queue admits the task. */
const QUEUE_GATE = 'scheduling.volcano.sh/queue-allocation-gate';

const statusOf = (task: Task) => (task.status ?? 'TASK_STATUS_PENDING').replace('TASK_STATUS_', '');
const phaseOf = (job: Job) => (job.phase ?? 'JOB_PHASE_PENDING').replace('JOB_PHASE_', '');

/** True: the task waits for a node, with or without a gate. */
export const isWaiting = (task: Task): boolean => ['PENDING', 'UNSPECIFIED'].includes(statusOf(task)) && !task.node;

/** True: the queue has not admitted the job yet. */
export const isPending = (job: Job): boolean => ['PENDING', 'UNSPECIFIED'].includes(phaseOf(job));

/** True: a scheduler tries the task, because it has no gate of others. */
const isOpen = (task: Task): boolean => !task.gated || (task.schedulingGates?.length === 1 && task.schedulingGates[0] === QUEUE_GATE);

/** Jobs and single tasks that wait, the oldest first. */
export function waitingJobs(jobs: JobStatus[], tasks: StoredTask[]): WaitingJob[] {
  const byJob = new Map<string, StoredTask[]>(jobs.map((status) => [status.job.name, []]));
  const single: StoredTask[] = [];
  for (const stored of tasks) (byJob.get(stored.task.job ?? '') ?? single).push(stored);
  const found = jobs.flatMap((status) => waitingJob(status, byJob.get(status.job.name) ?? []));
  for (const stored of single) if (isWaiting(stored.task)) found.push(singleTask(stored));
  return found.sort((one, other) => (one.since ?? 0) - (other.since ?? 0) || one.name.localeCompare(other.name));
}

/** The job, if it waits: a task of it has no node, or its tasks are not there yet. What has completed does not wait. */
function waitingJob(status: JobStatus, stored: StoredTask[]): WaitingJob[] {
  const { job } = status;
  const tasks = stored.map(({ task }) => task);
  const pending = tasks.filter(isWaiting);
  const hasToCome = tasks.length === 0 && (isPending(job) || phaseOf(job) === 'INQUEUE');
  if (phaseOf(job) === 'COMPLETED' || (pending.length === 0 && !hasToCome)) return [];
  const started = tasks.filter((task) => STARTED.has(statusOf(task)));
  const own = partsOf(pending);
  const needed = Math.max(1, (job.minMember ?? 0) - started.length);
  const invalid = invalidOf(`job ${job.name}`, status.invalid) ?? firstInvalid(stored);
  return [{ name: job.name, queue: job.queue ?? '', job: status, unknownJob: '', ...own, started, tasks: tasks.length, needed, since: timeOf(job.creationTime), isPending: isPending(job), invalid }];
}

function singleTask(stored: StoredTask): WaitingJob {
  const { task } = stored;
  return { name: task.name ?? '', queue: '', job: undefined, unknownJob: task.job ?? '', ...partsOf([task]), started: [], tasks: 1, needed: 1, since: timeOf(task.creationTime), isPending: false, invalid: firstInvalid([stored]) };
}

const partsOf = (pending: Task[]) => ({ waiting: pending.filter(isOpen), gated: pending.filter((task) => !isOpen(task)) });
const timeOf = (text: string | undefined) => (text ? Date.parse(text) : undefined);

function firstInvalid(stored: StoredTask[]): WaitingJob['invalid'] {
  const own = stored.find((one) => one.invalid?.length);
  return own && invalidOf(`task ${own.task.name ?? ''}`, own.invalid);
}

function invalidOf(record: string, problems: Problem[] | undefined): WaitingJob['invalid'] {
  return problems?.[0] && { record, problem: problems[0] };
}

/** Tasks that differ in name, age and priority only, as Place takes them in one group. */
export function groupEqualTasks(tasks: Task[]): Task[][] {
  const alike = (task: Task) => JSON.stringify({ ...task, name: '', uid: '', creationTime: '', priority: 0 });
  return [...groupBy(tasks, alike).values()];
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
