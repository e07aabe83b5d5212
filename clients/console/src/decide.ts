/** Calls that decide. Each names the time of its decision, so rules with a time apply and a repeated call has the same result. */

import type { EvaluationRef, Metadata } from './protocol';
import { call } from './rpc';

export type DecisionMethod = 'Admit' | 'Filter' | 'Order' | 'Place' | 'Score' | 'SelectVictims';

export interface Decision<Result> {
  result?: Result;
  metadata?: Metadata;
}

/** The latest state at a time in milliseconds, such as the present. */
export function latestAt(milliseconds: number): EvaluationRef {
  return { now: new Date(Math.floor(milliseconds / 1000) * 1000).toISOString() };
}

/** Asks for one decision. */
export function decide<Result>(method: DecisionMethod, against: EvaluationRef, request: object, signal?: AbortSignal): Promise<Decision<Result>> {
  return call(`DecisionService/${method}`, { against, ...request }, signal);
}
