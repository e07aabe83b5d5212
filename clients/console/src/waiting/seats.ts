/** Places that the server finds for the waiting tasks of a job, and the minimums that they have to meet. */

import { groupBy } from '../lists';
import type { Job, Task } from '../protocol';
import type { JobAnswers } from './explain';
import type { WaitingJob } from './jobs';

/** A waiting task, and its place in a preview of its placement. */
export interface Seat {
  task: Task;
  /** Node of the task. Empty: it finds none. */
  node: string;
  /** True: the task would wait for resources that are being released on the node. */
  isLater: boolean;
}

/** Seats in the order of the groups that Place was asked about: the first tasks of each group have its nodes. */
export function seatsOf({ groups, placement }: JobAnswers): Seat[] {
  return groups.flatMap((tasks, at) => {
    const placed = placement?.groups?.[at];
    const now = placed?.allocated?.names ?? [];
    const nodes = [...now, ...(placed?.pipelined?.names ?? [])];
    return tasks.map((task, index) => ({ task, node: nodes[index] ?? '', isLater: index >= now.length && index < nodes.length }));
  });
}

/** Seats of one role or one group of the job. */
export interface SeatGroup {
  /** Such as `role worker`. Empty: the tasks name no role and no group. */
  title: string;
  seats: Seat[];
  /** Number of seats with a node. */
  found: number;
  /** Tasks of it that have started already. */
  started: number;
  /** Tasks that it needs, the started ones included. 0: it has no minimum of its own. */
  needed: number;
}

const titleOf = ({ role, subGroup }: Task): string => [...(role ? [`role ${role}`] : []), ...(subGroup ? [`group ${subGroup}`] : [])].join(', ');

/** Seats by role and by group, in the order of their first tasks. */
export function seatGroups(job: WaitingJob, seats: Seat[]): SeatGroup[] {
  const record = job.job?.job;
  return [...groupBy(seats, ({ task }) => titleOf(task))].map(([title, own]) => {
    const { role = '', subGroup = '' } = own[0]?.task ?? {};
    const policy = record?.subGroupPolicies?.find(({ name }) => name === policyOf(subGroup));
    return {
      title,
      seats: own,
      found: own.filter(({ node }) => node).length,
      started: job.started.filter((task) => titleOf(task) === title).length,
      needed: Math.max(record ? (roleMinimums(record).get(role) ?? 0) : 0, policy ? (policy.size ?? 1) : 0),
    };
  });
}

/** A minimum of the job: of all its tasks, of a role, or of the groups of a policy. */
export interface Minimum {
  /** Such as `tasks`, `tasks of role worker` or `groups of workers`. */
  what: string;
  needed: number;
  /** Tasks or complete groups that have started or find a node. */
  found: number;
}

/** Minimums of the job and of its roles and groups, with what they find. */
export function minimumsOf(job: WaitingJob, seats: Seat[]): Minimum[] {
  const record = job.job?.job;
  if (!record) return [];
  const members = [...job.started, ...seats.filter(({ node }) => node).map(({ task }) => task)];
  const roles = [...roleMinimums(record)].map(([role, needed]) => ({ what: `tasks of role ${role}`, needed, found: members.filter((task) => task.role === role).length }));
  const groups = groupBy(members.filter((task) => task.subGroup), (task) => task.subGroup ?? '');
  const policies = (record.subGroupPolicies ?? []).map(({ name, size = 1, minGroups = 0 }) => {
    const complete = [...groups].filter(([group, own]) => policyOf(group) === name && own.length >= size);
    return { what: `groups of ${name}`, needed: minGroups, found: complete.length };
  });
  const own = { what: 'tasks', needed: record.minMember ?? 0, found: members.length };
  return [own, ...roles, ...policies].filter(({ needed }) => needed > 0);
}

/** Minimums of roles, which apply if their sum is at most the minimum of the job. */
function roleMinimums(job: Job): Map<string, number> {
  const minimums = Object.entries(job.minTaskMember ?? {});
  const sum = minimums.reduce((total, [, number]) => total + number, 0);
  return new Map(sum <= (job.minMember ?? 0) ? minimums : []);
}

/** Name of the policy that a group belongs to. */
const policyOf = (subGroup: string): string => subGroup.slice(0, Math.max(0, subGroup.lastIndexOf('/')));
