/** The turn of a job: the place of its queue among all queues, its place in its queue, and the keys that order it. */

import { numberText, toNumber } from '../amounts';
import type { OrderResult, Rank } from '../protocol';
import type { WaitingJob } from './jobs';

export interface Turn {
  /** Place of the queue among all queues, from 1. 0: it has none. */
  queue: number;
  queues: number;
  /** Queues before it in which jobs wait. */
  queuesAhead: string[];
  /** Place of the job among those that wait in its queue, from 1. 0: it has none. */
  job: number;
  /** Jobs that wait in the queue, in their order. */
  jobs: Rank[];
}

/** Turn of a job, counted as `pumice explain` counts: among all queues, also those in which no job waits. */
export function turnOf(job: WaitingJob, waiting: WaitingJob[], order: OrderResult): Turn {
  const queueOf = new Map(waiting.map((one) => [one.name, one.queue]));
  const withJobs = new Set(queueOf.values());
  const queues = (order.queues ?? []).map(({ name }) => name);
  const queue = queues.indexOf(job.queue) + 1;
  const jobs = (order.jobs ?? []).filter(({ name }) => queueOf.get(name) === job.queue);
  const queuesAhead = queues.slice(0, Math.max(0, queue - 1)).filter((name) => withJobs.has(name));
  return { queue, queues: queues.length, queuesAhead, job: jobs.findIndex(({ name }) => name === job.name) + 1, jobs };
}

/** `Queue a is 4th of 5 queues; before it with waiting jobs: b.` */
export function queueTurnText({ queue, queues, queuesAhead }: Turn, name: string): string {
  const ahead = queuesAhead.length > 0 ? `before it with waiting jobs: ${queuesAhead.join(', ')}` : 'none before it has waiting jobs';
  return `Queue ${name} is ${ordinalText(queue)} of ${queues}; ${ahead}.`;
}

/** `1st`, `2nd`, `11th`. */
export function ordinalText(number: number): string {
  const ending = { one: 'st', two: 'nd', few: 'rd' }[new Intl.PluralRules('en', { type: 'ordinal' }).select(number) as 'one' | 'two' | 'few'] ?? 'th';
  return `${number.toLocaleString('en-US')}${ending}`;
}

/** Meaning of the values of order keys of jobs, by plugin: the comment of OrderKey in the protocol states them. */
const MEANINGS: Record<string, { name: string; isNegated?: boolean; isFlag?: boolean }> = {
  priority: { name: 'priority', isNegated: true },
  gang: { name: 'ready', isFlag: true },
  drf: { name: 'share' },
  tdm: { name: 'preemptable', isFlag: true },
};

/** Order keys of a job: `priority 10, gang: not ready, drf: share 0`. */
export function orderKeysText({ keys = [] }: Rank): string {
  return keys
    .map(({ plugin, values = [] }) => {
      const meaning = MEANINGS[plugin];
      const [first = 0, ...others] = values.map(toNumber);
      const flag = meaning?.isFlag ? `${first === 0 ? 'not ' : ''}${meaning.name}` : undefined;
      const named = flag ?? `${meaning ? `${meaning.name} ` : ''}${numberText(meaning?.isNegated ? 0 - first : first)}`;
      const text = [named, ...others.map(numberText)].join(', ');
      return text.startsWith(plugin) ? text : `${plugin}: ${text}`;
    })
    .join(', ');
}
