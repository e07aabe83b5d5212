/** Whether evictions may make room, by the actions of the policy. */

import { toNumber } from '../amounts';
import type { Reason } from '../protocol';

/** Actions that evict tasks, by the first part of their names: `gangpreempt` and `gangreclaim` evict as well. */
const EVICTING = /preempt|reclaim/;

/** Actions of an effective document. Undefined: it has none, as a policy of kube-scheduler. */
export function actionsOf(effectiveDocument: string): string[] | undefined {
  const line = /^actions:[ \t]*(.*)$/m.exec(effectiveDocument)?.[1];
  return line?.replace(/["']/g, '').split(',').map((action) => action.trim()).filter((action) => action !== '');
}

/** True: the policy has an action that evicts. A policy without actions preempts by its own rules. */
export function evicts(actions: string[] | undefined): boolean {
  return actions === undefined || actions.some((action) => EVICTING.test(action));
}

/** True: evictions may resolve the reason. A request beyond the whole quota fits after no eviction. */
export function mayPreempt({ resolution, measurements }: Reason, actions: string[] | undefined): boolean {
  const value = (name: string) => measurements?.find((one) => one.name === name)?.value;
  const [requested, capability] = [value('requested'), value('capability')];
  const isBeyond = requested !== undefined && capability !== undefined && toNumber(requested) > toNumber(capability);
  return resolution === 'RESOLUTION_UNSCHEDULABLE' && !isBeyond && evicts(actions);
}
