/** Copies of the state, for decisions about a cluster that is not the live one. */

import type { Job, JobStatus, Node, NodeStatus, Queue, QueueStatus, Reservation, ServerInfo, StoredTask, Task } from './protocol';
import { list } from './rpc';
import { isPending } from './waiting/jobs';

/** Records of the server, as an inline cluster has them. */
export interface ClusterRecords {
  nodes: Node[];
  queues: Queue[];
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

/** Most nodes and tasks of a state that is copied to try changes without being asked. */
const COPIED_RECORDS = 20_000;

/** True: the copy is larger than a request may be. `limits`: those of the server. */
export function isBeyondRequest(cluster: ClusterRecords, limits: ServerInfo['limits']): boolean {
  return JSON.stringify(cluster).length > requestBytes(limits);
}

/** True: the copy is too large to be sent for each change that is tried. */
export function isTooLargeToTry(cluster: ClusterRecords, limits: ServerInfo['limits']): boolean {
  return cluster.nodes.length + cluster.tasks.length > COPIED_RECORDS || isBeyondRequest(cluster, limits);
}

/** Bytes that one request may have. */
export const requestBytes = (limits: ServerInfo['limits']): number => Number(limits?.find((one) => one.name === 'request_bytes')?.value ?? Infinity);
