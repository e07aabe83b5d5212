/** What the server is and what revision it is at, polled while the page is visible, and loads that follow it. */

import { POLL, restAfter, retryAfter } from './pace';
import type { Identity, ServerInfo } from './protocol';
import { CallError, call, sentenceOf, viewers } from './rpc';

/** Runs an action at once and then again and again while the page is visible, until the returned function is called. */
export function whileVisible(action: () => Promise<void>, rest: () => number = () => POLL): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;
  const next = async () => {
    if (document.visibilityState === 'visible') await action();
    if (!stopped) timer = setTimeout(next, rest());
  };
  void next();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

class Live {
  info = $state.raw<ServerInfo>();
  identity = $state.raw<Identity>();
  /** Sentence about the last poll, if it failed. */
  problem = $state('');
  /** True: the server wants a bearer token. */
  needsToken = $state(false);
  /** Time of the last poll in whole minutes since 1970: ages and rules with a time change with it. */
  minute = $state(0);
  /** Number of times that the user asked for a load. */
  refreshes = $state(0);

  /** Changes with every change of the state or of a policy, and with a restart of the server. */
  get revision(): string {
    const { epoch = '', number = '' } = this.info?.revision ?? {};
    return this.info ? `${epoch}.${number}` : '';
  }

  /** Changes with the revision, and each minute: decisions may depend on the time. */
  get moment(): string {
    return this.revision && `${this.revision} ${this.minute}`;
  }

  /** Names of the sources that have been silent for too long. It is the same set until the names change. */
  get staleSources(): ReadonlySet<string> {
    return this.#staleSources;
  }

  readonly #staleNames = $derived(
    (this.info?.sources ?? [])
      .filter((source) => source.stale)
      .map((source) => source.position?.source ?? '')
      .join('\n'),
  );
  readonly #staleSources = $derived(new Set(this.#staleNames ? this.#staleNames.split('\n') : []));

  has(role: string): boolean {
    return this.identity?.roles?.includes(role) ?? false;
  }

  /** Polls until the returned function is called. */
  start(): () => void {
    return whileVisible(() => this.poll());
  }

  /** Polls, and loads what is shown again at once. */
  async refresh(): Promise<void> {
    await this.poll();
    this.refreshes += 1;
  }

  async poll(): Promise<void> {
    try {
      this.identity ??= await call<Identity>('StateService/WhoAmI');
      this.info = await call<ServerInfo>('StateService/GetServerInfo');
      this.minute = Math.floor(Date.now() / 60_000);
      this.problem = '';
      this.needsToken = false;
    } catch (error) {
      this.problem = sentenceOf(error);
      this.needsToken = error instanceof CallError && (error.code === 'unauthenticated' || error.code === 'permission_denied');
      this.identity = undefined;
    }
  }
}

export const live = new Live();

/** A value that is loaded again when the revision changes: one load at a time, with a rest after each. A failed load is tried again. */
export class Loader<Value> {
  value = $state.raw<Value>();
  problem = $state('');
  #wanted = '';
  #loaded = '';
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running = false;
  /** True: the running load began before a change that it may not show. */
  #outdated = false;
  #notBefore = 0;
  /** Number of loads that failed since the last success. */
  #failures = 0;

  readonly #load: () => Promise<Value>;

  constructor(load: () => Promise<Value>) {
    this.#load = load;
  }

  /** Loads unless the value is of this revision already. */
  want(revision: string): void {
    this.#wanted = revision;
    this.#schedule();
  }

  /** Loads again at once, for example after the user changed something. */
  again(): void {
    this.#loaded = '';
    this.#outdated = this.#running;
    this.#failures = 0;
    this.#notBefore = 0;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#schedule();
  }

  stop(): void {
    this.#wanted = '';
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #schedule(): void {
    if (this.#running || this.#timer || !this.#wanted || this.#wanted === this.#loaded) return;
    const wait = Math.max(0, this.#notBefore - performance.now());
    this.#timer = setTimeout(() => void this.#run(), wait);
  }

  async #run(): Promise<void> {
    this.#timer = undefined;
    this.#running = true;
    const revision = this.#wanted;
    const start = performance.now();
    try {
      this.value = await this.#load();
      this.problem = '';
      this.#failures = 0;
      this.#loaded = revision;
    } catch (error) {
      this.problem = sentenceOf(error);
      this.#failures += 1;
      this.#loaded = '';
    }
    const end = performance.now();
    this.#notBefore = end + (this.#failures > 0 ? retryAfter(this.#failures) : restAfter(end - start, viewers()));
    if (this.#outdated) {
      this.#loaded = '';
      this.#notBefore = 0;
      this.#outdated = false;
    }
    this.#running = false;
    this.#schedule();
  }
}

/** A loader for one component: it follows what `moment` returns, loads again at once when the user asks for it or what `subject` returns changes, and ends with the component. */
export function loader<Value>(load: () => Promise<Value>, moment: () => string = () => live.revision, subject: () => unknown[] = () => []): Loader<Value> {
  const own = new Loader(load);
  $effect(() => own.want(moment()));
  $effect(() => {
    void [live.refreshes, ...subject()];
    own.again();
  });
  $effect(() => () => own.stop());
  return own;
}
