/** What another policy would decide differently about the jobs and tasks that wait. The server decides under both documents. */

import { toNumber } from '../amounts';
import { decide } from '../decide';
import type { AdmitItem, EvaluationRef, Job, JobStatus, NodeStatus, OrderResult, QueueStatus, Reservation, ScoreItem, StoredTask, Task } from '../protocol';
import { list } from '../rpc';
import { groupEqualTasks, isPending, isWaiting } from '../waiting/jobs';

/** Records of the server, as an inline cluster has them. */
export interface ClusterRecords {
  nodes: object[];
  queues: object[];
  jobs: Job[];
  tasks: Task[];
  namespaces: object[];
}

/** Rows of the lists of the server. */
export interface ListedRecords {
  nodes: NodeStatus[];
  queues: QueueStatus[];
  jobs: JobStatus[];
  tasks: StoredTask[];
  namespaces: { namespace: object }[];
  reservations: Reservation[];
}

export async function readCluster(): Promise<ClusterRecords> {
  const [nodes, queues, jobs, tasks, namespaces, reservations] = await Promise.all([
    list<NodeStatus>('StateService/ListNodes', 'nodes'),
    list<QueueStatus>('StateService/ListQueues', 'queues'),
    list<JobStatus>('StateService/ListJobs', 'jobs'),
    list<StoredTask>('StateService/ListTasks', 'tasks'),
    list<{ namespace: object }>('StateService/ListNamespaces', 'namespaces'),
    list<Reservation>('StateService/ListReservations', 'reservations'),
  ]);
  return clusterOf({ nodes, queues, jobs, tasks, namespaces, reservations });
}

/**
 * Records that a copy of the state is made of, as `pumice policy diff --state` makes it. A node or queue whose newest record was
 * rejected accepts nothing new, so it is copied as cordoned or closed. A waiting job with a reservation is copied as admitted.
 */
export function clusterOf({ nodes, queues, jobs, tasks, namespaces, reservations }: ListedRecords): ClusterRecords {
  const reserved = new Set(reservations.map((own) => own.job));
  return {
    nodes: nodes.map(({ node, invalid }) => (invalid?.length ? { ...node, unschedulable: true } : node)),
    // The server makes a queue `root` by itself.
    queues: queues.filter(({ source }) => source).map(({ queue, invalid }) => (invalid?.length ? { ...queue, state: 'QUEUE_STATE_CLOSED' } : queue)),
    jobs: jobs.map(({ job }) => (isPending(job) && reserved.has(job.name) ? { ...job, phase: 'JOB_PHASE_INQUEUE' } : job)),
    tasks: tasks.map((stored) => stored.task),
    namespaces: namespaces.map((status) => status.namespace),
  };
}

/** Decision of one policy about a job that waits. */
export interface JobDecision {
  enqueued: boolean;
  /** Codes of the reasons against that. */
  reasons: string[];
  /** Tasks like its first that its queue admits. Undefined: any number. */
  admitted: number | undefined;
  /** Turn among the jobs that wait, from 1. */
  turn: number;
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
  changedJobs: Changed<JobDecision>[];
  changedTasks: Changed<TaskDecision>[];
}

/** Decides about everything that waits under both documents at the same time, and returns what differs. */
export async function impactOf(cluster: ClusterRecords, now: string, before: string, after: string): Promise<PolicyImpact> {
  const tasks = cluster.tasks.filter(isWaiting);
  const first = new Map<string, Task>();
  for (const task of tasks) if (task.job && !first.has(task.job)) first.set(task.job, task);
  const jobs = cluster.jobs.filter((job) => first.has(job.name));
  const classes = groupEqualTasks(tasks);
  const decideUnder = async (policyDocument: string) => {
    const against = { now, inline: { cluster, policyDocument } };
    const ofJobs = jobs.length > 0 ? await decideJobs(against, jobs, first) : [];
    return { ofJobs, ofTasks: classes.length > 0 ? await decideTasks(against, classes) : [] };
  };
  // One after the other: each question carries the whole cluster.
  const [old, fresh] = [await decideUnder(before), await decideUnder(after)];
  return {
    jobs: jobs.length,
    tasks: tasks.length,
    changedJobs: changes(jobs.map((job) => ({ name: job.name, queue: job.queue ?? '', count: 1, isEnqueued: !isPending(job) })), old.ofJobs, fresh.ofJobs),
    changedTasks: changes(classes.map((own) => ({ name: own[0]?.name ?? '', queue: '', count: own.length, isEnqueued: true })), old.ofTasks, fresh.ofTasks),
  };
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
