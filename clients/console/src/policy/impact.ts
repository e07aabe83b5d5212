/** What another policy would decide differently about the jobs and tasks that wait. The server decides under both documents. */

import { countText, toNumber } from '../amounts';
import type { ClusterRecords } from '../copy';
import { decide } from '../decide';
import type { AdmitItem, EvaluationRef, Job, OrderResult, PlaceResult, ScoreItem, Task } from '../protocol';
import { placeRequest } from '../waiting/explain';
import { type WaitingJob, groupEqualTasks, isPending, isWaiting, waitingJobs } from '../waiting/jobs';

/** Decision of one policy about a job that waits. */
export interface JobDecision {
  enqueued: boolean;
  /** Codes of the reasons against that. */
  reasons: string[];
  /** Tasks like its first that its queue admits. Undefined: any number. */
  admitted: number | undefined;
  /** Turn among the jobs that wait, from 1. */
  turn: number;
  /** Start of the job alone, on the nodes as they are. Undefined: not tried. */
  start?: JobStart;
}

export interface JobStart {
  starts: boolean;
  /** Waiting tasks that find a node, and all of them. */
  placed: number;
  tasks: number;
}

/** Decision of one policy about equal tasks. */
export interface TaskDecision {
  fit: number;
  best: string;
}

export interface Changed<Decision> {
  name: string;
  queue: string;
  /** Number of equal tasks; 1 for a job. */
  count: number;
  isEnqueued: boolean;
  before: Decision;
  after: Decision;
}

export interface PolicyImpact {
  jobs: number;
  tasks: number;
  starts: StartImpact;
  changedJobs: Changed<JobDecision>[];
  changedTasks: Changed<TaskDecision>[];
}

/** Jobs that were placed under both policies, and those that start under each. */
export interface StartImpact {
  tried: number;
  before: string[];
  after: string[];
}

/** Most jobs that are placed, each alone. Each costs two calls with the whole cluster. */
const JOBS_PLACED = 50;

/** Decides about everything that waits under both documents at the same time, and returns what differs. */
export async function impactOf(cluster: ClusterRecords, now: string, before: string, after: string): Promise<PolicyImpact> {
  const tasks = cluster.tasks.filter(isWaiting);
  const first = new Map<string, Task>();
  for (const task of tasks) if (task.job && !first.has(task.job)) first.set(task.job, task);
  const jobs = cluster.jobs.filter((job) => first.has(job.name));
  const classes = groupEqualTasks(tasks);
  const decideUnder = async (policyDocument: string): Promise<Decided> => {
    const against = { now, inline: { cluster, policyDocument } };
    const ofJobs = jobs.length > 0 ? await decideJobs(against, jobs, first) : [];
    return { against, ofJobs, ofTasks: classes.length > 0 ? await decideTasks(against, classes) : [] };
  };
  // One after the other: each question carries the whole cluster.
  const [old, fresh] = [await decideUnder(before), await decideUnder(after)];
  const starts = await decideStarts(cluster, jobs, old, fresh);
  return {
    jobs: jobs.length,
    tasks: tasks.length,
    starts,
    changedJobs: changes(jobs.map((job) => ({ name: job.name, queue: job.queue ?? '', count: 1, isEnqueued: !isPending(job) })), old.ofJobs, fresh.ofJobs),
    changedTasks: changes(classes.map((own) => ({ name: own[0]?.name ?? '', queue: '', count: own.length, isEnqueued: true })), old.ofTasks, fresh.ofTasks),
  };
}

/** Decisions of one policy. */
interface Decided {
  against: EvaluationRef;
  ofJobs: JobDecision[];
  ofTasks: TaskDecision[];
}

/** Places jobs under both policies, each alone, and adds the results to their decisions. Jobs that are decided differently come first. */
async function decideStarts(cluster: ClusterRecords, jobs: Job[], old: Decided, fresh: Decided): Promise<StartImpact> {
  const waiting = new Map(waitingJobs(cluster.jobs.map((job) => ({ job })), cluster.tasks.map((task) => ({ task }))).map((own) => [own.name, own]));
  const subjects = jobs.flatMap(({ name }, at) => {
    const [job, before, after] = [waiting.get(name), old.ofJobs[at], fresh.ofJobs[at]];
    return job && before && after && job.waiting.length > 0 ? [{ job, before, after, differs: JSON.stringify(before) !== JSON.stringify(after) }] : [];
  });
  const tried = subjects.sort((one, other) => Number(other.differs) - Number(one.differs)).slice(0, JOBS_PLACED);
  for (const { job, before, after } of tried) {
    before.start = await startOf(job, before, old.against);
    after.start = await startOf(job, after, fresh.against);
  }
  const started = (side: 'before' | 'after') => tried.filter((own) => own[side].start?.starts).map(({ job }) => job.name);
  return { tried: tried.length, before: started('before'), after: started('after') };
}

async function startOf(job: WaitingJob, { enqueued }: JobDecision, against: EvaluationRef): Promise<JobStart> {
  const placement = (await decide<PlaceResult>('Place', against, placeRequest(job, groupEqualTasks(job.waiting)))).result;
  const placed = placement?.placedCount ?? 0;
  return { starts: enqueued && Boolean(placement?.placed) && placed > 0, placed, tasks: job.waiting.length };
}

function changes<Decision>(subjects: Omit<Changed<Decision>, 'before' | 'after'>[], before: Decision[], after: Decision[]): Changed<Decision>[] {
  return subjects.flatMap((subject, at) => {
    const [old, fresh] = [before[at], after[at]];
    const differs = old !== undefined && fresh !== undefined && JSON.stringify(old) !== JSON.stringify(fresh);
    return differs ? [{ ...subject, before: old, after: fresh }] : [];
  });
}

async function decideJobs(against: EvaluationRef, jobs: Job[], first: Map<string, Task>): Promise<JobDecision[]> {
  const items = jobs.flatMap((job) => [{ job: { name: job.name } }, { task: { name: first.get(job.name)?.name } }]);
  const admitted = await decide<{ items?: AdmitItem[] }>('Admit', against, { items });
  const queues = [...new Set(jobs.map((job) => job.queue ?? ''))];
  const order = await decide<OrderResult>('Order', against, { queues: { names: queues }, jobs: { names: jobs.map((job) => job.name) } });
  const turns = turnsOf(jobs, order.result ?? {});
  return jobs.map((job, at) => jobDecision(job, admitted.result?.items?.slice(2 * at, 2 * at + 2) ?? [], turns.get(job.name) ?? 0));
}

function jobDecision(job: Job, [ofJob, ofTask]: AdmitItem[], turn: number): JobDecision {
  const reasons = !isPending(job) ? [] : (ofJob?.reasons ?? []).map((reason) => reason.code ?? '');
  const headroom = ofTask?.headroom === undefined ? undefined : Number(ofTask.headroom);
  return { enqueued: !isPending(job) || Boolean(ofJob?.permitted), reasons: [...new Set(reasons)].sort(), admitted: ofTask?.permitted ? headroom : 0, turn };
}

/** Turns of jobs, from 1: by the order of their queues, then by the order of jobs. */
export function turnsOf(jobs: Job[], order: OrderResult): Map<string, number> {
  const place = (ranks: { name: string }[] | undefined) => new Map((ranks ?? []).map((rank, at) => [rank.name, at]));
  const [queues, ranks] = [place(order.queues), place(order.jobs)];
  const at = (job: Job) => [queues.get(job.queue ?? '') ?? Infinity, ranks.get(job.name) ?? Infinity] as const;
  const sorted = [...jobs].sort((one, other) => {
    const [[queue, rank], [otherQueue, otherRank]] = [at(one), at(other)];
    return queue === otherQueue ? rank - otherRank : queue - otherQueue;
  });
  return new Map(sorted.map((job, index) => [job.name, index + 1]));
}

async function decideTasks(against: EvaluationRef, classes: Task[][]): Promise<TaskDecision[]> {
  const tasks = classes.map((own) => ({ name: own[0]?.name }));
  const request = { tasks, withFilter: true, limit: 1, filterDetail: 'FILTER_DETAIL_COUNTS' };
  const response = await decide<{ items?: ScoreItem[] }>('Score', against, request);
  return (response.result?.items ?? []).map((item) => ({
    fit: item.filter?.fitCount ?? 0,
    best: item.problem?.message ?? (item.nodes?.names?.[0] ? `${item.nodes.names[0]} (${Math.round(toNumber(item.totals?.[0]))})` : 'no node'),
  }));
}

/** `6 → no limit`, or one text if both are equal. */
export function changeText(before: string, after: string): string {
  return before === after ? before : `${before} → ${after}`;
}

/** `yes`, or how many tasks of a job find a node. */
export function startText({ start }: JobDecision): string {
  if (!start) return 'not tried';
  return start.starts ? 'yes' : `no: ${start.placed} of ${countText(start.tasks, 'task')} ${start.placed === 1 ? 'finds' : 'find'} a node`;
}

/** Sentences on the jobs that would start. */
export function startsText({ jobs, starts: { tried, before, after } }: PolicyImpact): string {
  const [more, fewer] = [after.filter((name) => !before.includes(name)), before.filter((name) => !after.includes(name))];
  const who = tried < jobs ? `Of the ${countText(tried, 'job')} that were tried, ` : '';
  const named = (names: string[]) => `${names.slice(0, 5).join(', ')}${names.length > 5 ? ` and ${names.length - 5} more` : ''}`;
  const same = after.length === 0 ? 'no waiting job would start under either policy' : `the same ${countText(after.length, 'job')} would start under both policies (${named(after)})`;
  const changes = [...(more.length > 0 ? [`${named(more)} would start`] : []), ...(fewer.length > 0 ? [`${named(fewer)} would no longer start`] : [])];
  const text = `${who}${changes.length > 0 ? changes.join('; ') : same}.`;
  // The name of a job keeps its case.
  return who || changes.length > 0 ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
