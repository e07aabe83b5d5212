/** Changes that would let a job start. The server decides about each, and the console shows a change only if the job starts with it. */

import { amountText, countText, measurementText, parseQuantity, quantitiesOf, toNumber } from '../amounts';
import type { ClusterRecords } from '../copy';
import { decide } from '../decide';
import type { AdmitItem, EvaluationRef, Job, JobStatus, Node, PlaceResult, Queue, QueueStatus, Reason, ResourceList, Task } from '../protocol';
import { type JobAnswers, type PlaceRequest, admittedTasks, placeRequest } from './explain';
import { type WaitingJob, sumOfRequests } from './jobs';
import { type Eviction, evictionText, mayPreempt } from './preemption';
import { seatsOf } from './seats';
import { type QuotaUsage, type Verdict, nearestNodes, neverFits, quotaOf, quotasOf } from './verdict';

/** A change of the job, of its queue or of the cluster. */
export interface Change {
  minMember?: number;
  /** Requests of the tasks of one group of Place. */
  requests?: { group: number; requests: ResourceList };
  queue?: Queue;
  /** True: the other jobs of the queue have ended. */
  isAlone?: boolean;
  /** What an additional node has. */
  room?: ResourceList;
}

/** What the server decides under a change. */
export interface Outcome {
  starts: boolean;
  /** Tasks that find a node. */
  placed: number;
}

/** Asks the server under a change. Undefined: the change cannot be tried. */
export type Trial = (change: Change) => Promise<Outcome | undefined>;

export interface Remedies {
  /** What is so, and cannot be tried. */
  facts: string[];
  /** Changes with which the job starts. */
  changes: string[];
  /** True: changes of the queue and of the nodes were not tried. */
  isPartial: boolean;
}

/** Name of the node that a trial adds. */
const ADDED_NODE = 'pumice-console-added';

/** Amount of a queue that bounds what it may be allocated, by plugin. */
const SHARES: Record<string, 'guarantee' | 'deserved'> = { proportion: 'guarantee', capacity: 'deserved' };

/** Verdicts on what the queue and the nodes have. */
const CAPACITY = ['quota', 'gang', 'no node'];

/** Remedies of a job that waits. `evictions`: those that make room for its tasks; undefined: the policy has no actions, as one of kube-scheduler. */
export async function remediesOf(job: WaitingJob, answers: JobAnswers, found: Verdict, queue: QueueStatus | undefined, evictions: Eviction[] | undefined, trial: Trial): Promise<Remedies> {
  const remedies: Remedies = { facts: factsOf(job, answers, found, evictions), changes: [], isPartial: false };
  if (!CAPACITY.includes(found.code)) return remedies;
  const ask = async (change: Change): Promise<Outcome> => {
    const outcome = await trial(change);
    if (!outcome) remedies.isPartial = true;
    return outcome ?? { starts: false, placed: 0 };
  };
  const add = async (text: string, change: Change) => {
    const { starts } = await ask(change);
    if (starts && !remedies.changes.includes(text)) remedies.changes.push(text);
    return starts;
  };
  const least = smallestMinimum(job, answers);
  if (least !== undefined) await add(`A minMember of at most ${least} would let it start.`, { minMember: least });
  for (const { text, change } of smallerRequests(job, answers, found)) if (await add(text, change)) break;
  const quotas = quotasOf(found);
  if (quotas.some((quota) => quota.held > 0) && !neverFits(found)) {
    await add(`It would start if the other jobs of queue ${job.queue} ended.`, { isAlone: true });
  }
  await addCapacity(job, answers, found, queue, ask, remedies);
  return remedies;
}

/** Adds the least change of the queue and of the nodes with which the job starts. It names everything that is needed. */
async function addCapacity(job: WaitingJob, answers: JobAnswers, found: Verdict, queue: QueueStatus | undefined, ask: (change: Change) => Promise<Outcome>, remedies: Remedies): Promise<void> {
  const ofQueue = queue && found.code === 'quota' ? queueChanges(job, queue.queue, found.reasons) : [];
  const show = (...texts: string[]) => remedies.changes.push(`To let it start, ${listText(texts)}.`);
  let placed = answers.placement?.placedCount ?? 0;
  for (const change of ofQueue) {
    const outcome = await ask({ queue: change.queue });
    if (outcome.starts) return void show(...change.texts);
    placed = Math.max(placed, outcome.placed);
  }
  const more = roomFor(job, answers, job.needed - placed, found.reasons);
  if (!more) return;
  if ((await ask({ room: more.room })).starts) return void show(more.text);
  for (const change of ofQueue) if ((await ask({ queue: change.queue, room: more.room })).starts) return void show(...change.texts, more.text);
}

/** `a`, `a and b`, `a, b and c`. */
function listText(texts: string[]): string {
  return texts.length < 2 ? texts.join('') : `${texts.slice(0, -1).join(', ')} and ${texts.at(-1)}`;
}

function factsOf(job: WaitingJob, answers: JobAnswers, found: Verdict, evictions: Eviction[] | undefined): string[] {
  const facts = quotasOf(found)
    .filter((quota) => quota.requested > quota.bound)
    .map((quota) => `It never fits as it is: queue ${job.queue} may hold at most ${measurementText(quota.bound, quota.unit)} of ${quota.resource}.`);
  if (CAPACITY.includes(found.code) && !neverFits(found)) facts.push(...preemptionTexts(answers, found, evictions));
  if (found.code === 'gated') facts.push('Whoever set spec.schedulingGates has to remove them.');
  if (found.code === 'its turn') facts.push("If its scheduler does not place it in its next cycles, see the scheduler's log.");
  return facts;
}

function preemptionTexts(answers: JobAnswers, found: Verdict, evictions: Eviction[] | undefined): string[] {
  if (evictions) return evictions.slice(0, 2).map(evictionText);
  const helps = answers.classes.flatMap((own) => own.filter?.rejections ?? []).filter((one) => mayPreempt(one, undefined));
  const nodes = helps.reduce((sum, one) => sum + (one.count ?? 0), 0);
  return found.code !== 'quota' && nodes > 0 ? [`Preemption may help on ${countText(nodes, 'node')}.`] : [];
}

/** Smallest change of the minimum that the quota and the nodes allow. Undefined: there is none. */
function smallestMinimum(job: WaitingJob, answers: JobAnswers): number | undefined {
  const own = job.job?.job.minMember ?? 0;
  const admits = answers.classes.reduce((sum, one) => sum + admittedTasks(one), 0);
  const least = job.started.length + Math.min(admits, answers.placement?.placedCount ?? 0);
  return least >= 1 && least < own ? least : undefined;
}

/** Requests that fit on the nearest node, and on as many nodes as there are tasks that start together. */
function smallerRequests(job: WaitingJob, answers: JobAnswers, found: Verdict): { text: string; change: Change }[] {
  if (found.code !== 'no node') return [];
  return answers.classes.flatMap((own, group) => {
    const near = nearestNodes(own.filter?.rejections ?? [], Math.max(1, job.needed));
    const items = own.tasks[0]?.requests?.items ?? {};
    return [near[0], near.at(-1)].flatMap((one) => {
      if (!one || one.idle <= 0 || items[one.resource] === undefined) return [];
      const requests = { items: { ...items, [one.resource]: quantityText(one.idle) } };
      const text = `It would start if each of its tasks asked for at most ${measurementText(one.idle, one.unit)} of ${one.resource}.`;
      return [{ text, change: { requests: { group, requests } } }];
    });
  });
}

/** Changes of a queue that lift its quota, the smallest first: its limit, then also the share that it may be allocated. */
function queueChanges(job: WaitingJob, queue: Queue, reasons: Reason[]): { texts: string[]; queue: Queue }[] {
  const quotas = reasons.flatMap((reason) => {
    const quota = quotaOf(reason);
    const share = SHARES[reason.plugin ?? ''];
    return quota && share ? [{ share, resource: quota.resource, total: totalOf(job, quota) }] : [];
  });
  const share = quotas[0]?.share;
  if (!share) return [];
  const totals = new Map(quotas.map(({ resource, total }) => [resource, total]));
  const limit = raised('capability', queue, totals, true);
  const both = raised(share, limit?.queue ?? queue, totals, false);
  return [...(limit ? [limit] : []), ...(both ? [{ queue: both.queue, texts: [...(limit?.texts ?? []), ...both.texts] }] : [])];
}

/** Amount that the queue holds with all tasks that start together. */
function totalOf(job: WaitingJob, quota: QuotaUsage): number {
  const together = quantitiesOf(...job.waiting.slice(0, job.needed).map((task) => task.requests)).get(quota.resource) ?? 0;
  return quota.held + Math.max(quota.requested, together);
}

/** A queue with larger amounts. `isLimit`: an absent amount is unlimited and stays so. Undefined: nothing has to be larger. */
function raised(field: 'capability' | 'guarantee' | 'deserved', queue: Queue, totals: Map<string, number>, isLimit: boolean): { texts: string[]; queue: Queue } | undefined {
  const items = queue[field]?.items ?? {};
  const changed = [...totals].filter(([resource, total]) => (items[resource] === undefined ? !isLimit : parseQuantity(items[resource]) < total));
  if (changed.length === 0) return undefined;
  const amounts = listText(changed.map(([resource, total]) => `${amountText(resource, total)} of ${resource}`));
  const text = isLimit ? `raise spec.${field} of queue ${queue.name} to at least ${amounts}` : `give queue ${queue.name} a spec.${field} of at least ${amounts}`;
  return { texts: [text], queue: { ...queue, [field]: { items: { ...items, ...Object.fromEntries(changed.map(([resource, total]) => [resource, quantityText(total)])) } } } };
}

/** A node with what nodes lack: room for tasks without a node, and what overcommit misses. Undefined: nodes lack nothing. */
function roomFor(job: WaitingJob, answers: JobAnswers, missing: number, reasons: Reason[]): { text: string; room: ResourceList } | undefined {
  const lacking = seatsOf(answers).filter(({ node }) => !node).map(({ task }) => task).slice(0, Math.max(0, missing));
  const amounts = quantitiesOf(sumOfRequests(lacking));
  for (const [resource, amount] of overcommitted(reasons)) if (amount > 0) amounts.set(resource, Math.max(amounts.get(resource) ?? 0, amount));
  if (amounts.size === 0) return undefined;
  const shown = listText([...amounts].map(([resource, amount]) => `${amountText(resource, amount)} of ${resource}`));
  const isForOthers = overcommitted(reasons).some(([, amount]) => amount > 0);
  const text = isForOthers ? `add nodes with ${shown}, for its tasks and what is reserved for other jobs` : `add nodes with room for ${lacking.length} of its tasks (${shown})`;
  const items = Object.fromEntries([...amounts].map(([resource, amount]) => [resource, quantityText(amount)]));
  return { text, room: { items: { ...items, pods: `${Math.max(1, job.waiting.length)}` } } };
}

/** Amounts by which reservations exceed what the cluster can still promise. */
function overcommitted(reasons: Reason[]): [string, number][] {
  return reasons.flatMap(({ resource, measurements }): [string, number][] => {
    const named = (name: string) => measurements?.find((one) => one.name === name);
    const [reserved, idle] = [named('inqueue'), named('idle')];
    return resource && reserved && idle ? [[resource, toNumber(reserved.value) - toNumber(idle.value)]] : [];
  });
}

/** A quantity that is not smaller. */
function quantityText(value: number): string {
  const thousandths = Math.ceil(value * 1000 - 1e-6);
  return thousandths % 1000 === 0 ? `${thousandths / 1000}` : `${thousandths}m`;
}

/** Trials by Admit and Place. `copy`: reads a copy of the state and the document of the policy; undefined: the state is too large. */
export function serverTrial(job: WaitingJob, answers: JobAnswers, now: string, copy: () => Promise<{ cluster: ClusterRecords; policyDocument: string } | undefined>): Trial {
  return async (change) => {
    const isOfCluster = change.queue !== undefined || change.isAlone || change.room !== undefined;
    const copied = isOfCluster ? await copy() : undefined;
    if (isOfCluster && !copied) return undefined;
    const against: EvaluationRef = copied ? { now, inline: { cluster: changedCluster(copied.cluster, job, answers, change), policyDocument: copied.policyDocument } } : { now };
    const record = changedJob(job.job, change);
    if (job.isPending && job.job) {
      const admitted = await decide<{ items?: AdmitItem[] }>('Admit', against, { items: [{ job: record ?? { name: job.name } }] });
      if (!admitted.result?.items?.[0]?.permitted) return { starts: false, placed: 0 };
    }
    const groups = answers.groups;
    const request = { ...placeRequest(job, groups), ...(record ? { job: record } : {}) };
    const placement = (await decide<PlaceResult>('Place', against, change.requests ? { ...request, groups: changedGroups(groups, change.requests, request) } : request)).result;
    const placed = placement?.placedCount ?? 0;
    return { starts: Boolean(placement?.placed) && placed > 0, placed };
  };
}

function changedJob(status: JobStatus | undefined, { minMember }: Change): Job | undefined {
  return status && minMember !== undefined ? { ...status.job, minMember } : undefined;
}

/** Groups of Place, one of them with other requests. A task with requests is not a stored one, so it has no name. */
function changedGroups(groups: Task[][], { group, requests }: NonNullable<Change['requests']>, request: PlaceRequest): object[] {
  return request.groups.map((own, at) => (at === group ? { task: { ...groups[at]?.[0], requests, gated: false, schedulingGates: [] }, count: groups[at]?.length ?? 0 } : own));
}

/** The copy of a state under a change. An added node is like one that the server looked at, with other amounts. */
export function changedCluster(cluster: ClusterRecords, job: WaitingJob, answers: JobAnswers, { queue, isAlone, room }: Change): ClusterRecords {
  const queues = queue ? cluster.queues.map((own) => (own.name === queue.name ? queue : own)) : cluster.queues;
  const others = new Set(isAlone ? cluster.jobs.filter((own) => own.queue === job.queue && own.name !== job.name).map((own) => own.name) : []);
  const jobs = isAlone ? cluster.jobs.filter((own) => !others.has(own.name)) : cluster.jobs;
  const tasks = isAlone ? cluster.tasks.filter((task) => !others.has(task.job ?? '')) : cluster.tasks;
  return { ...cluster, queues, jobs, tasks, nodes: room ? [...cluster.nodes, addedNode(cluster, answers, room)] : cluster.nodes };
}

function addedNode(cluster: ClusterRecords, answers: JobAnswers, room: ResourceList): Node {
  const names = answers.classes.flatMap(({ filter }) => [...(filter?.fit?.names ?? []), ...nearestNodes(filter?.rejections ?? [], 1).map(({ node }) => node)]);
  const like = cluster.nodes.find((node) => names.includes(node.name));
  return { ...like, name: ADDED_NODE, labels: { ...like?.labels, 'kubernetes.io/hostname': ADDED_NODE }, allocatable: room, ready: true, unschedulable: false };
}
