/** What the server is and what revision it is at, polled while the page is visible, and loads that follow it. */

import type { Identity, ServerInfo } from './protocol';
import { CallError, call, sentenceOf } from './rpc';

/** Time between two polls of the server, in milliseconds. */
const POLL = 2000;

/** A load waits this many times its own duration before the next one: a viewer then takes at most 5 % of a core. */
const REST = 20;

class Live {
  info = $state.raw<ServerInfo>();
  identity = $state.raw<Identity>();
  /** Sentence about the last poll, if it failed. */
  problem = $state('');
  /** True: the server wants a bearer token. */
  needsToken = $state(false);

  /** Changes with every change of the state or of a policy, and with a restart of the server. */
  get revision(): string {
    const { epoch = '', number = '' } = this.info?.revision ?? {};
    return this.info ? `${epoch}.${number}` : '';
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
    let timer: ReturnType<typeof setTimeout> | undefined;
    let stopped = false;
    const next = async () => {
      if (document.visibilityState === 'visible') await this.poll();
      if (!stopped) timer = setTimeout(next, POLL);
    };
    void next();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }

  async poll(): Promise<void> {
    try {
      this.identity ??= await call<Identity>('StateService/WhoAmI');
      this.info = await call<ServerInfo>('StateService/GetServerInfo');
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

/** A value that is loaded again when the revision changes: one load at a time, with a rest after each. */
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
    this.#notBefore = 0;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#schedule();
  }

  stop(): void {
    this.#wanted = '';
    clearTimeout(this.#timer);
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
    } catch (error) {
      this.problem = sentenceOf(error);
    }
    const end = performance.now();
    this.#loaded = this.#outdated ? '' : revision;
    this.#notBefore = this.#outdated ? 0 : end + REST * (end - start);
    this.#outdated = false;
    this.#running = false;
    this.#schedule();
  }
}
