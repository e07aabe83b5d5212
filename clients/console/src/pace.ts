/** How often a page asks the server. The loads of all viewers together take at most 2.5 % of a core, and 100 viewers with their polls less than 5 %. */

/** Time between two polls of the server, in milliseconds. */
export const POLL = 2000;

/** All viewers together rest this many times as long as their loads take. */
const REST = 40;

/** Longest rest after a load, in milliseconds: a load may have taken long because the server or the network was busy. */
const LONGEST_REST = 300_000;

/** Longest wait before a failed load is tried again, in milliseconds. */
const LONGEST_RETRY = 60_000;

/** Time to rest after a load in milliseconds. `viewers`: number of pages that ask the same server. */
export function restAfter(duration: number, viewers: number): number {
  return Math.min(LONGEST_REST, REST * Math.max(1, viewers) * duration);
}

/** Time before a failed load is tried again, in milliseconds. `failures`: number of loads that failed since the last success. */
export function retryAfter(failures: number): number {
  return Math.min(LONGEST_RETRY, POLL * 2 ** Math.max(0, failures - 1));
}
