/** Calls of the server by Connect's unary JSON, on the address that the page came from. */

import type { PolicyReport } from './protocol';

/** A service and a method, such as `StateService/ListNodes`. */
export type Method = `${'DecisionService' | 'StateService' | 'PolicyService'}/${string}`;

/** Failed call: `code` is Connect's code, such as `aborted`; `reason` is Pumice's stable code, such as `EPOCH_CHANGED`. */
export class CallError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly reason = '',
    /** Findings of a rejected policy document. */
    readonly report?: PolicyReport,
  ) {
    super(message);
  }
}

/** Bearer token that calls send. It is in memory only. */
let token = '';

/** Sets the bearer token of later calls. Empty: none. */
export function setToken(value: string): void {
  token = value.trim();
}

/** Number of pages that ask the same server, by its newest response. */
let otherViewers = 1;
export const viewers = (): number => otherViewers;

/** Makes one call. Fails with a `CallError`; a server that cannot be reached has the code `unavailable`. */
export async function call<Response>(method: Method, request: object = {}, signal?: AbortSignal): Promise<Response> {
  const headers = { 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', ...authorization() };
  const init: RequestInit = { method: 'POST', headers, body: JSON.stringify(request) };
  const response = await reach(`/pumice.v1.${method}`, signal ? { ...init, signal } : init);
  otherViewers = Number(response.headers.get('Pumice-Viewers') ?? otherViewers);
  const text = await response.text();
  if (response.ok) return JSON.parse(text) as Response;
  throw errorOf(response.status, text);
}

/** The text of a page such as `/metrics`. */
export async function page(path: string): Promise<string> {
  const response = await reach(path, { headers: authorization() });
  const text = await response.text();
  if (!response.ok) throw errorOf(response.status, text);
  return text;
}

/** Number of entries of one page of a list: small enough to be read between two frames. */
const PAGE = 1000;

/** How a method takes the page that is wanted: the lists of StateService in a message, the others in two fields. */
const pageFields = (method: Method, token: string): object =>
  method.startsWith('StateService/') ? { page: { size: PAGE, token } } : { pageSize: PAGE, pageToken: token };

/** Every entry of a list, page by page. `field` holds the entries in the response. */
export async function list<Entry>(method: Method, field: string, request: object = {}): Promise<Entry[]> {
  const entries: Entry[] = [];
  let next = '';
  do {
    const response: Record<string, unknown> = await call(method, { ...request, ...pageFields(method, next) });
    for (const entry of (response[field] as Entry[] | undefined) ?? []) entries.push(entry);
    next = (response['nextPageToken'] as string | undefined) ?? '';
  } while (next);
  return entries;
}

function authorization(): Record<string, string> {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, { ...init, credentials: 'same-origin', cache: 'no-store' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new CallError('unavailable', 'the server cannot be reached');
  }
}

interface ErrorBody {
  code?: string;
  message?: string;
  details?: { type?: string; debug?: { reason?: string } & PolicyReport }[];
}

/** Error of a response that is not a success. */
export function errorOf(status: number, text: string): CallError {
  let body: ErrorBody;
  try {
    body = JSON.parse(text) as ErrorBody;
  } catch {
    return new CallError('unknown', text.trim() || `HTTP status ${status}`);
  }
  const detail = (type: string) => body.details?.find((one) => one.type === type)?.debug;
  const message = body.message || `HTTP status ${status}`;
  return new CallError(body.code ?? 'unknown', message, detail('google.rpc.ErrorInfo')?.reason, detail('pumice.v1.PolicyReport'));
}

/** Sentence about a failure of any kind. */
export function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
