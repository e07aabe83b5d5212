/** Reads `/metrics`, and what happened between two readings. */

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Samples of a page in the text format of Prometheus. Lines that are not samples are left out. */
export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split('\n')) {
    const parts = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    const value = Number((parts?.[3] ?? '').replace('Inf', 'Infinity'));
    if (!parts || Number.isNaN(value)) continue;
    const labels: Record<string, string> = {};
    for (const [, label = '', quoted = ''] of (parts[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[label] = quoted.replace(/\\(.)/g, (_, letter: string) => (letter === 'n' ? '\n' : letter));
    }
    samples.push({ name: parts[1] ?? '', labels, value });
  }
  return samples;
}

/** Buckets of one method: calls that took at most `le` seconds, ascending. */
type Buckets = { le: number; count: number }[];

/** Counters of one reading. */
export interface Reading {
  /** Seconds since the server started. */
  uptime: number;
  /** Calls by method and code. */
  calls: Map<string, Map<string, number>>;
  buckets: Map<string, Buckets>;
  /** Calls that a limit rejected, by limit. */
  limits: Map<string, number>;
}

export function readingOf(samples: Sample[]): Reading {
  const reading: Reading = { uptime: 0, calls: new Map(), buckets: new Map(), limits: new Map() };
  for (const { name, labels, value } of samples) {
    const rpc = labels['rpc'] ?? '';
    if (name === 'process_uptime_seconds') reading.uptime = value;
    if (name === 'pumice_calls_total') reading.calls.set(rpc, (reading.calls.get(rpc) ?? new Map<string, number>()).set(labels['code'] ?? '', value));
    if (name === 'pumice_limit_rejections_total') reading.limits.set(labels['limit'] ?? '', value);
    if (name === 'pumice_call_duration_seconds_bucket') {
      const own = reading.buckets.get(rpc) ?? [];
      own.push({ le: labels['le'] === '+Inf' ? Infinity : Number(labels['le']), count: value });
      reading.buckets.set(rpc, own);
    }
  }
  return reading;
}

/** What one method did in a time. */
export interface MethodLine {
  rpc: string;
  /** Calls per second. */
  rate: number;
  /** Seconds within which half of the calls ended, and 99 of 100. Undefined: no call ended. */
  p50: number | undefined;
  p99: number | undefined;
  /** Failed calls, by code. */
  failed: Map<string, number>;
}

/** Lines of the methods that were called between two readings, or since the start. The busiest come first. */
export function linesBetween(now: Reading, before: Reading | undefined): MethodLine[] {
  // A server that started again counts from zero.
  const since = before && before.uptime < now.uptime ? before : undefined;
  const seconds = now.uptime - (since?.uptime ?? 0);
  const lines = [...now.calls].map(([rpc, codes]): MethodLine => {
    const deltas = new Map([...codes].map(([code, count]) => [code, count - (since?.calls.get(rpc)?.get(code) ?? 0)]));
    const calls = [...deltas.values()].reduce((sum, count) => sum + count, 0);
    const buckets = bucketsBetween(now.buckets.get(rpc) ?? [], since?.buckets.get(rpc) ?? []);
    const failed = new Map([...deltas].filter(([code, count]) => code !== 'OK' && count > 0));
    return { rpc, rate: seconds > 0 ? calls / seconds : 0, p50: quantile(buckets, 0.5), p99: quantile(buckets, 0.99), failed };
  });
  return lines.filter((line) => line.rate > 0).sort((one, other) => other.rate - one.rate || one.rpc.localeCompare(other.rpc));
}

function bucketsBetween(now: Buckets, before: Buckets): Buckets {
  const old = new Map(before.map(({ le, count }) => [le, count]));
  return now.map(({ le, count }) => ({ le, count: count - (old.get(le) ?? 0) }));
}

/** Upper end of the bucket that holds the quantile. */
export function quantile(buckets: Buckets, part: number): number | undefined {
  const total = buckets.at(-1)?.count ?? 0;
  if (total <= 0) return undefined;
  const found = buckets.find(({ count }) => count >= part * total);
  return Number.isFinite(found?.le) ? found?.le : buckets.at(-2)?.le;
}

/** Codes of failed calls over all methods, the most frequent first. */
export function failuresOf(lines: MethodLine[]): [string, number][] {
  const sums = new Map<string, number>();
  for (const line of lines) for (const [code, count] of line.failed) sums.set(code, (sums.get(code) ?? 0) + count);
  return [...sums].sort(([, one], [, other]) => other - one);
}
