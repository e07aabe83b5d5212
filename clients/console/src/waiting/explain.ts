/** What the server answers about a job that waits. Every decision is the server's: the console only arranges the answers. */

import { type Decision, decide } from '../decide';
import type { AdmitItem, EvaluationRef, FilterItem, Job, NotEvaluated, OrderResult, PlaceResult, Task } from '../protocol';
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
  /** Groups of equal tasks that Place was asked about. */
  groups: Task[][];
  /** Placement of the groups without effect, in their order. Undefined: no task waits. */
  placement: PlaceResult | undefined;
  /** Constraints that the answers ignore, each once. */
  notEvaluated: NotEvaluated[];
}

/** Classes of tasks that are asked about, and names that one group of Place carries. */
const CLASSES = 8;
const NAMES = 1000;
/** Rejected nodes that are read with their measurements, to find the nearest. */
const SAMPLES = 1000;

/** Asks about admission and placement. `nodes`: also why nodes reject the tasks. */
export async function askAbout(job: WaitingJob, against: EvaluationRef, nodes: boolean): Promise<JobAnswers> {
  const notEvaluated: NotEvaluated[] = [];
  const ask = async <Result>(request: Promise<Decision<Result>>): Promise<Result | undefined> => {
    const { result, metadata } = await request;
    notEvaluated.push(...(metadata?.notEvaluated ?? []));
    return result;
  };
  const admit = async (subject: object) => (await ask(decide<{ items?: AdmitItem[] }>('Admit', against, { items: [subject] })))?.items?.[0];
  const hasQueue = job.job !== undefined && job.queue !== '';
  const askAboutClass = async (tasks: Task[]): Promise<ClassAnswers> => {
    const task = { name: tasks[0]?.name };
    const [admission, filter] = await Promise.all([
      hasQueue ? admit({ task }) : undefined,
      nodes ? ask(decide<{ items?: FilterItem[] }>('Filter', against, { tasks: [task], detail: 'FILTER_DETAIL_SAMPLES', samples: SAMPLES })) : undefined,
    ]);
    const item = filter?.items?.[0];
    notEvaluated.push(...(item?.notEvaluated ?? []));
    return { tasks, admission, filter: item };
  };
  const groups = groupEqualTasks(job.waiting);
  const [admission, placement, classes] = await Promise.all([
    hasQueue && job.isPending ? admit({ job: { name: job.name } }) : undefined,
    groups.length > 0 ? ask(decide<PlaceResult>('Place', against, placeRequest(job, groups))) : undefined,
    Promise.all(groups.slice(0, CLASSES).map(askAboutClass)),
  ]);
  const admits = classes.reduce((sum, own) => sum + admittedTasks(own), 0);
  const short = hasQueue && job.needed > 1 && groups.length <= CLASSES && admits < job.needed && classes.every((own) => own.admission?.permitted);
  const together = short ? await admit({ task: gangAsTask(job) }) : undefined;
  const once = new Map(notEvaluated.map((one) => [`${one.subject} ${one.name}`, one]));
  return { admission, together, classes, groups, placement, notEvaluated: [...once.values()] };
}

/** Number of tasks of a class that the queue admits now. */
export function admittedTasks({ tasks, admission }: ClassAnswers): number {
  if (!admission) return tasks.length;
  if (!admission.permitted) return 0;
  return admission.headroom === undefined ? tasks.length : Math.min(tasks.length, Number(admission.headroom));
}

/** The tasks that must start together, as if they were one task. */
function gangAsTask(job: WaitingJob): Task {
  const tasks = job.waiting.slice(0, job.needed);
  const annotations = tasks[0]?.annotations;
  return { job: job.name, requests: sumOfRequests(tasks), ...(annotations ? { annotations } : {}) };
}

/** Request of Place, as far as the console states it. */
export interface PlaceRequest {
  job?: Partial<Job>;
  groups: object[];
  minAvailable?: number;
  effect: 'PLACE_EFFECT_PREVIEW';
}

/** Request to place waiting tasks without effect. The minimums of the job, its roles and its groups apply; without them one task starts it. */
export function placeRequest(job: WaitingJob, groups: Task[][]): PlaceRequest {
  const hasMinimum = (job.job?.job.minMember ?? 0) > 0;
  return {
    ...(job.job ? { job: { name: job.name } } : {}),
    groups: groups.map(placedGroup),
    ...(hasMinimum ? {} : { minAvailable: 1 }),
    effect: 'PLACE_EFFECT_PREVIEW',
  };
}

/** Place takes stored tasks by name only without a gate. The gate of the queue is gone when the tasks are placed. */
function placedGroup(tasks: Task[]): object {
  const [first] = tasks;
  if (first?.gated) return { task: { ...first, gated: false, schedulingGates: [] }, count: tasks.length };
  return { names: tasks.slice(0, NAMES).map((task) => task.name) };
}

/** The order of all queues, and of the jobs that wait. */
export async function askOrder(jobs: WaitingJob[], against: EvaluationRef): Promise<OrderResult> {
  const names = jobs.filter((job) => job.job && job.queue).map((job) => job.name);
  if (names.length === 0) return {};
  return (await decide<OrderResult>('Order', against, { queues: {}, jobs: { names } })).result ?? {};
}
