/** Whether evictions make room for a job, by the actions of the policy. The server selects the victims. */

import { countText, toNumber } from '../amounts';
import { decide } from '../decide';
import { groupBy } from '../lists';
import type { EvaluationRef, JobStatus, QueueStatus, Reason, Rejection, StoredTask, Task } from '../protocol';
import type { ClassAnswers } from './explain';
import type { WaitingJob } from './jobs';

/** Actions that evict, with the kind of their victims. */
const EVICTING = [['preempt', 'VICTIM_KIND_PREEMPT'], ['reclaim', 'VICTIM_KIND_RECLAIM']] as const;
/** Most nodes that are asked about for one class of tasks. */
const NODES = 1000;
/** Annotation or label of a task that says whether it may be evicted. */
const PREEMPTABLE = 'volcano.sh/preemptable';

/** Evictions of one action that make room for one task. */
export interface Eviction {
  action: string;
  /** Nodes on which they make room. The tasks are those of the first. */
  nodes: string[];
  tasks: string[];
}

/** Records that decide which tasks may be evicted. */
export interface RunningRecords {
  jobs: JobStatus[];
  tasks: StoredTask[];
  queues: QueueStatus[];
}

/** Actions of an effective document. Undefined: it has none, as a policy of kube-scheduler. */
export function actionsOf(effectiveDocument: string): string[] | undefined {
  const line = /^actions:[ \t]*(.*)$/m.exec(effectiveDocument)?.[1];
  return line?.replace(/["']/g, '').split(',').map((action) => action.trim()).filter((action) => action !== '');
}

/** True: the policy has an action that evicts. A policy without actions preempts by its own rules. */
export function evicts(actions: string[] | undefined): boolean {
  return actions === undefined || EVICTING.some(([action]) => actions.includes(action));
}

/** True: evictions may resolve the reason. A request beyond the whole quota fits after no eviction. */
export function isPassing({ resolution, measurements }: Reason): boolean {
  const value = (name: string) => measurements?.find((one) => one.name === name)?.value;
  const [requested, capability] = [value('requested'), value('capability')];
  const isBeyond = requested !== undefined && capability !== undefined && toNumber(requested) > toNumber(capability);
  return resolution === 'RESOLUTION_UNSCHEDULABLE' && !isBeyond;
}

/** True: evictions may help on one of the nodes of a rejection. `evictions`: those that the server found; undefined: the policy has its own rules. */
export function mayPreempt({ reason, samples }: Rejection, evictions: Eviction[] | undefined): boolean {
  if (!reason || !isPassing(reason)) return false;
  return evictions === undefined || (samples ?? []).some(({ node }) => evictions.some(({ nodes }) => nodes.includes(node)));
}

/** `reclaim evicts 4 tasks on node-1 (x/a, x/b, x/c and 1 more)`. */
export function evictionText({ action, nodes, tasks }: Eviction): string {
  const named = `${tasks.slice(0, 3).join(', ')}${tasks.length > 3 ? ` and ${tasks.length - 3} more` : ''}`;
  return `Preemption may help on ${countText(nodes.length, 'node')}: ${action} evicts ${countText(tasks.length, 'task')} on ${nodes[0] ?? ''} (${named}) for one of its tasks.`;
}

/** Evictions by the actions of a policy that make room for a task of each class. Undefined: the policy has no actions. */
export async function askEvictions(job: WaitingJob, classes: ClassAnswers[], actions: string[] | undefined, records: RunningRecords, against: EvaluationRef): Promise<Eviction[] | undefined> {
  if (!actions) return undefined;
  const found: Eviction[] = [];
  for (const own of classes) {
    const nodes = (own.filter?.rejections ?? []).filter(({ reason }) => reason && isPassing(reason)).flatMap(({ samples }) => (samples ?? []).map(({ node }) => node));
    for (const [action, kind] of EVICTING) {
      if (!job.job || !actions.includes(action)) continue;
      const eviction = await askVictims(own.tasks[0], kind, candidatesOn([...new Set(nodes)].sort().slice(0, NODES), victimsOf(job, kind, records)), against);
      if (eviction) found.push({ action, ...eviction });
    }
  }
  return found;
}

/** Tasks of others that an action may evict, by node: of the queue, or of other queues that give back. */
export function victimsOf(job: WaitingJob, kind: (typeof EVICTING)[number][1], { jobs, tasks, queues }: RunningRecords): Map<string, Task[]> {
  const queueOf = new Map(jobs.map((status) => [status.job.name, status.job.queue ?? '']));
  const keeps = new Set(queues.filter((status) => status.queue.reclaimable === false).map((status) => status.queue.name));
  const known = new Set(queues.map((status) => status.queue.name));
  const mayGo = (task: Task): boolean => {
    const queue = queueOf.get(task.job ?? '');
    if (queue === undefined || task.job === job.name || !task.node || !isPreemptable(task)) return false;
    if (kind === 'VICTIM_KIND_PREEMPT') return queue === job.queue && ['TASK_STATUS_RUNNING', 'TASK_STATUS_BOUND'].includes(task.status ?? '');
    return queue !== job.queue && known.has(queue) && !keeps.has(queue) && task.status === 'TASK_STATUS_RUNNING';
  };
  return groupBy(tasks.map(({ task }) => task).filter(mayGo), (task) => task.node ?? '');
}

const isPreemptable = ({ annotations, labels }: Task): boolean => ['1', 't', 'T', 'TRUE', 'true', 'True'].includes(annotations?.[PREEMPTABLE] ?? labels?.[PREEMPTABLE] ?? 'true');

const candidatesOn = (nodes: string[], victims: Map<string, Task[]>) => nodes.flatMap((node) => (victims.has(node) ? [{ node, names: (victims.get(node) ?? []).map(({ name = '' }) => name) }] : []));

interface VictimItem {
  victims?: number[];
  fitsAfter?: number;
  queueMayReclaim?: boolean;
}

async function askVictims(task: Task | undefined, kind: string, candidates: { node: string; names: string[] }[], against: EvaluationRef): Promise<Omit<Eviction, 'action'> | undefined> {
  if (!task || candidates.length === 0) return undefined;
  const groups = candidates.map(({ node, names }) => ({ preemptor: { name: task.name }, node, candidates: names.map((name) => ({ name })) }));
  const items = (await decide<{ items?: VictimItem[] }>('SelectVictims', against, { kind, groups })).result?.items ?? [];
  const helped = candidates.flatMap(({ node, names }, at) => {
    const { victims = [], fitsAfter = 0, queueMayReclaim } = items[at] ?? {};
    return fitsAfter > 0 && queueMayReclaim !== false ? [{ node, tasks: victims.slice(0, fitsAfter).map((victim) => names[victim] ?? '') }] : [];
  });
  return helped[0] && { nodes: helped.map(({ node }) => node), tasks: helped[0].tasks };
}
