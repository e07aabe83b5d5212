/** What the server answers about a job that waits. Every decision is the server's: the console only arranges the answers. */

import type { AdmitItem, FilterItem, NotEvaluated, OrderResult, PlaceResult, Task } from '../protocol';
import { call } from '../rpc';
import { type WaitingJob, groupEqualTasks, sumOfRequests } from './jobs';

/** Answers about one class of equal tasks. */
export interface ClassAnswers {
  /** Tasks of the class, of which the first was asked about. */
  tasks: Task[];
  admission: AdmitItem | undefined;
  filter: FilterItem | undefined;
}

/** Answers about one job. */
export interface JobAnswers {
  /** Admission of the job by its queue. Undefined: it is enqueued already, or has no queue. */
  admission: AdmitItem | undefined;
  /** Admission of the tasks that start together, as if they were one task. Undefined: not asked. */
  together: AdmitItem | undefined;
  classes: ClassAnswers[];
  /** Placement of the waiting tasks without effect. Undefined: none waits. */
  placement: PlaceResult | undefined;
}

/** Classes of tasks that are asked about, and names that one group of Place carries. */
const CLASSES = 8;
const NAMES = 1000;
/** Rejected nodes that are read with their measurements, to find the nearest. */
const SAMPLES = 1000;

/** Asks about admission and placement. `nodes`: also why nodes reject the tasks. */
export async function askAbout(job: WaitingJob, nodes: boolean): Promise<JobAnswers> {
  const hasQueue = job.job !== undefined && job.queue !== '';
  const groups = groupEqualTasks(job.waiting);
  const [admission, placement, classes] = await Promise.all([
    hasQueue && job.isPending ? admit({ job: { name: job.name } }) : undefined,
    groups.length > 0 ? place(job, groups) : undefined,
    Promise.all(groups.slice(0, CLASSES).map((tasks) => askAboutClass(tasks, hasQueue, nodes))),
  ]);
  const admits = classes.reduce((sum, own) => sum + admittedTasks(own), 0);
  const short = hasQueue && job.needed > 1 && groups.length <= CLASSES && admits < job.needed && classes.every((own) => own.admission?.permitted);
  return { admission, together: short ? await admitTogether(job) : undefined, classes, placement };
}

/** Number of tasks of a class that the queue admits now. */
export function admittedTasks({ tasks, admission }: ClassAnswers): number {
  if (!admission) return tasks.length;
  if (!admission.permitted) return 0;
  return admission.headroom === undefined ? tasks.length : Math.min(tasks.length, Number(admission.headroom));
}

async function askAboutClass(tasks: Task[], hasQueue: boolean, nodes: boolean): Promise<ClassAnswers> {
  const task = { name: tasks[0]?.name };
  const [admission, filter] = await Promise.all([
    hasQueue ? admit({ task }) : undefined,
    nodes ? call<{ result?: { items?: FilterItem[] } }>('DecisionService/Filter', { tasks: [task], detail: 'FILTER_DETAIL_SAMPLES', samples: SAMPLES }) : undefined,
  ]);
  return { tasks, admission, filter: filter?.result?.items?.[0] };
}

async function admit(subject: object): Promise<AdmitItem | undefined> {
  const response = await call<{ result?: { items?: AdmitItem[] } }>('DecisionService/Admit', { items: [subject] });
  return response.result?.items?.[0];
}

function admitTogether(job: WaitingJob): Promise<AdmitItem | undefined> {
  const tasks = job.waiting.slice(0, job.needed);
  return admit({ task: { job: job.name, requests: sumOfRequests(tasks), annotations: tasks[0]?.annotations } });
}

async function place(job: WaitingJob, groups: Task[][]): Promise<PlaceResult | undefined> {
  const named = groups.map((tasks) => ({ names: tasks.slice(0, NAMES).map((task) => task.name) }));
  const subject = job.job ? { job: { name: job.name } } : {};
  const request = { ...subject, groups: named, minAvailable: 0, effect: 'PLACE_EFFECT_PREVIEW' };
  return (await call<{ result?: PlaceResult }>('DecisionService/Place', request)).result;
}

/** The order of queues and of jobs that wait. */
export async function askOrder(jobs: WaitingJob[]): Promise<OrderResult> {
  const names = jobs.filter((job) => job.job && job.queue).map((job) => job.name);
  if (names.length === 0) return {};
  const queues = [...new Set(jobs.map((job) => job.queue).filter((queue) => queue !== ''))];
  const request = { queues: { names: queues }, jobs: { names } };
  return (await call<{ result?: OrderResult }>('DecisionService/Order', request)).result ?? {};
}

/** Constraints that the answers ignore, each once. */
export function unevaluated(answers: JobAnswers): NotEvaluated[] {
  const found = answers.classes.flatMap((own) => own.filter?.notEvaluated ?? []);
  return [...new Map(found.map((one) => [`${one.subject} ${one.name}`, one])).values()];
}
