/** The verdict on a job: the first of the server's answers that keeps it from starting, in the order in which a scheduler meets them. */

import { countText, measurementText, numberText, toNumber } from '../amounts';
import type { AdmitItem, Measurement, QueueStatus, Reason, Rejection } from '../protocol';
import { type JobAnswers, admittedTasks } from './explain';
import type { WaitingJob } from './jobs';
import { minimumsOf, seatsOf } from './seats';

export const VERDICTS = ['record invalid', 'no job', 'no queue', 'queue invalid', 'queue closed', 'too few tasks', 'gated', 'request invalid', 'quota', 'no node', 'gang', 'its turn'] as const;
export type VerdictCode = (typeof VERDICTS)[number];

export interface Verdict {
  code: VerdictCode;
  sentence: string;
  /** Reasons of the answer that decided. */
  reasons: Reason[];
}

/** Verdict on a job. `queue`: its queue, if the server knows it. */
export function verdictOf(job: WaitingJob, answers: JobAnswers, queue: QueueStatus | undefined): Verdict {
  return recordVerdict(job, queue) ?? admissionVerdict(job, answers) ?? placementVerdict(job, answers);
}

const verdict = (code: VerdictCode, sentence: string, reasons: Reason[] = []): Verdict => ({ code, sentence, reasons });

function recordVerdict(job: WaitingJob, queue: QueueStatus | undefined): Verdict | undefined {
  if (job.invalid) return verdict('record invalid', `the newest record of ${job.invalid.record} was rejected: ${job.invalid.problem.message ?? ''}`);
  if (job.unknownJob) return verdict('no job', `there is no job ${job.unknownJob}`);
  if (job.job && !queue) return verdict('no queue', job.queue ? `there is no queue ${job.queue}` : 'it names no queue');
  const invalidQueue = queue?.invalid?.[0];
  if (invalidQueue) return verdict('queue invalid', `the newest record of queue ${job.queue} was rejected, so it admits nothing new: ${invalidQueue.message ?? ''}`);
  const state = queue?.queue.state;
  if (state === 'QUEUE_STATE_CLOSED' || state === 'QUEUE_STATE_CLOSING') return verdict('queue closed', `queue ${job.queue} accepts no new jobs`);
  const least = Math.max(1, job.job?.job.minMember ?? 0);
  // Volcano makes the tasks when the job is enqueued.
  if (job.tasks < least && (job.tasks > 0 || !job.isPending)) return verdict('too few tasks', `it starts with ${countText(least, 'task')}, and ${job.tasks === 0 ? 'none is known' : `only ${job.tasks} ${job.tasks === 1 ? 'is' : 'are'} known`}`);
  if (job.gated.length > 0 && job.waiting.length < job.needed) return verdict('gated', gatedText(job));
  return undefined;
}

/** Tasks with gates, and the names of the gates. */
function gatedText({ gated, waiting, job }: WaitingJob): string {
  const gates = [...new Set(gated.flatMap((task) => task.schedulingGates ?? []))];
  const what = gates.length > 1 ? `the scheduling gates ${gates.join(', ')}` : `${gates[0] ? 'the' : 'a'} scheduling gate${gates[0] ? ` ${gates[0]}` : ''}`;
  const who = job ? `${gated.length} of its ${countText(waiting.length + gated.length, 'waiting task')} ${gated.length === 1 ? 'has' : 'have'}` : 'it has';
  return `${who} ${what}`;
}

function admissionVerdict(job: WaitingJob, answers: JobAnswers): Verdict | undefined {
  const items = [answers.admission, ...answers.classes.flatMap((own) => [own.admission, own.filter]), ...(answers.placement?.groups ?? [])];
  const problem = items.find((item) => item?.problem)?.problem;
  if (problem) return verdict('request invalid', `the server cannot evaluate it: ${problem.message ?? problem.reason ?? ''}`);
  if (rejects(answers.admission)) return quotaVerdict(job, 'it', answers.admission);
  const task = answers.classes.find((own) => rejects(own.admission))?.admission;
  if (task && answers.placement && !starts(answers)) return quotaVerdict(job, 'each of its tasks', task);
  if (rejects(answers.together)) {
    const most = answers.classes.reduce((sum, own) => sum + admittedTasks(own), 0);
    const part = quotaVerdict(job, `the gang of ${countText(job.needed, 'task')}`, answers.together);
    const placed = answers.placement?.placedCount ?? most;
    const room = placed < most ? `, and nodes have room for ${placed} of them` : '';
    return { ...part, sentence: `${part.sentence}; the queue admits ${most} of its tasks now${room}` };
  }
  return undefined;
}

/** True: the server would start the job now. */
const starts = ({ placement }: JobAnswers): boolean => Boolean(placement?.placed) && (placement?.placedCount ?? 0) > 0;

const rejects = (item: AdmitItem | undefined): item is AdmitItem => item !== undefined && !item.problem && !item.permitted;

function quotaVerdict(job: WaitingJob, who: string, item: AdmitItem): Verdict {
  const reasons = item.reasons ?? [];
  const quota = reasons.map(quotaOf).find((one) => one !== undefined);
  const first = reasons[0];
  const sentence = quota
    ? `queue ${job.queue} has ${leftText(quota)} left, and ${who} asks for ${measurementText(quota.requested, quota.unit)}`
    : `queue ${job.queue} does not admit ${who}: ${first?.message ?? first?.code ?? 'without a reason'}`;
  return verdict('quota', sentence, reasons);
}

/** `6 of 8 cores of cpu`. */
function leftText({ left, ceiling, unit, resource }: QuotaUsage): string {
  const number = unit === 'bytes' ? measurementText(left, unit) : numberText(left);
  return `${number} of ${measurementText(ceiling, unit)} of ${resource}`;
}

function placementVerdict(job: WaitingJob, answers: JobAnswers): Verdict {
  const { placement } = answers;
  if (!placement) return verdict('its turn', 'its queue admits it now; its tasks are not there yet');
  const placed = placement.placedCount ?? 0;
  const blockers = placement.blockers ?? placement.groups?.flatMap((group) => group.blockers ?? []) ?? [];
  const reasons = blockers.map((blocker) => blocker.reason ?? {});
  const seats = seatsOf(answers);
  if (starts(answers)) {
    const later = seats.filter(({ isLater }) => isLater).length;
    return verdict('its turn', `nodes take ${placed} of ${countText(job.waiting.length, 'waiting task')} now${later > 0 ? `, ${later} of them once other tasks have ended` : ''}; its scheduler has not placed it yet`);
  }
  const why = blockers.length > 0 ? ` (${rejectionText(blockers)})` : '';
  if (placed === 0) return verdict('no node', `no node takes ${job.needed === 1 ? 'it' : 'one of its tasks'}${why}`, reasons);
  const short = minimumsOf(job, seats).find(({ what, needed, found }) => what !== 'tasks' && found < needed);
  if (placed >= job.needed && short) return verdict('gang', `it starts with ${short.needed} ${short.what}, and only ${short.found} of them ${short.found === 1 ? 'finds' : 'find'} a place, although nodes take ${placed} of its tasks${why}`, reasons);
  return verdict('gang', `${countText(job.needed, 'task')} must start together, and only ${placed} find a node; the next finds none${why}`, reasons);
}

/** `4 nodes: insufficient cpu`, the most nodes first. */
function rejectionText(rejections: Rejection[]): string {
  const sorted = [...rejections].sort((one, other) => (other.count ?? 0) - (one.count ?? 0));
  return sorted.slice(0, 3).map(({ reason, count = 0 }) => `${count > 0 ? `${countText(count, 'node')}: ` : ''}${reason?.message ?? reason?.code ?? ''}`).join('; ');
}

/** Amounts of a rejection by quota, in `unit`. */
export interface QuotaUsage {
  resource: string;
  unit: string | undefined;
  requested: number;
  /** What the queue holds or has reserved without the request. */
  held: number;
  /** What of it is reserved for admitted jobs, which do not hold it yet. */
  reserved: number;
  left: number;
  /** The limit that the request would pass. */
  ceiling: number;
  /** The most that the queue may ever hold. */
  bound: number;
  isDeserved: boolean;
}

/** Amounts that a reason compared. Undefined: it does not compare with a quota. */
export function quotaOf(reason: Reason): QuotaUsage | undefined {
  const named = (name: string): Measurement | undefined => reason.measurements?.find((one) => one.name === name);
  const [requested, total, capability, deserved, allocated] = ['requested', 'total', 'capability', 'deserved', 'allocated'].map(named);
  if (!requested || !total || !capability) return undefined;
  const ceiling = toNumber((deserved ?? capability).value);
  const held = toNumber(total.value) - toNumber(requested.value);
  return {
    resource: reason.resource ?? '',
    unit: requested.unit,
    requested: toNumber(requested.value),
    held,
    reserved: allocated ? Math.max(0, held - toNumber(allocated.value)) : 0,
    left: Math.max(0, ceiling - held),
    ceiling,
    bound: toNumber(capability.value),
    isDeserved: deserved !== undefined,
  };
}

/** Quotas that the verdict compared. The reasons of a gang include what its own first tasks would hold, so they are not quotas of others. */
export function quotasOf(found: Verdict): QuotaUsage[] {
  return found.code === 'gang' ? [] : found.reasons.map(quotaOf).filter((one) => one !== undefined);
}

/** A node that rejects a task because something is short, with the amounts. */
export interface NearestNode {
  node: string;
  resource: string;
  unit: string | undefined;
  requested: number;
  idle: number;
  allocatable: number;
}

/** The rejected nodes that lack least of what they are short of, nearest first. */
export function nearestNodes(rejections: Rejection[], most: number): NearestNode[] {
  const nodes = rejections.flatMap(({ reason, samples }) =>
    (samples ?? []).flatMap(({ node, measurements = [] }) => {
      const named = (name: string) => measurements.find((one) => one.name === name);
      const [requested, idle, allocatable] = [named('requested'), named('future idle') ?? named('idle'), named('allocatable')];
      if (!requested || !idle) return [];
      const amounts = { requested: toNumber(requested.value), idle: toNumber(idle.value), allocatable: toNumber(allocatable?.value) };
      return [{ node, resource: reason?.resource ?? '', unit: requested.unit, ...amounts }];
    }),
  );
  const lack = (own: NearestNode) => (own.requested > 0 ? (own.requested - own.idle) / own.requested : 0);
  return nodes.sort((one, other) => lack(one) - lack(other) || one.node.localeCompare(other.node)).slice(0, most);
}

/** True: the request is larger than all that the queue may hold, so neither an end of other jobs nor an eviction helps. */
export function neverFits(found: Verdict): boolean {
  return quotasOf(found).some((quota) => quota.requested > quota.bound);
}
