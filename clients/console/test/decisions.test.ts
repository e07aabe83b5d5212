import { describe, expect, it } from 'vitest';
import { failuresOf, linesBetween, parseMetrics, quantile, readingOf } from '../src/decisions/metrics';

const page = (uptime: number, ok: number, failed: number, fast: number) => `# HELP pumice_calls_total Calls
process_uptime_seconds ${uptime}
pumice_calls_total{rpc="Score",code="OK"} ${ok}
pumice_calls_total{rpc="Score",code="NOT_FOUND"} ${failed}
pumice_calls_total{rpc="Place",code="OK"} 0
pumice_limit_rejections_total{limit="calls"} 3
pumice_call_duration_seconds_bucket{le="0.0001",rpc="Score"} ${fast}
pumice_call_duration_seconds_bucket{le="0.0002",rpc="Score"} ${ok + failed}
pumice_call_duration_seconds_bucket{le="+Inf",rpc="Score"} ${ok + failed}
`;
const reading = (...values: Parameters<typeof page>) => readingOf(parseMetrics(page(...values)));

describe('metrics', () => {
  it('has rates, latencies and failures since the start', () => {
    const [line, ...others] = linesBetween(reading(10, 90, 10, 60), undefined);
    expect(others).toEqual([]);
    expect(line).toEqual({ rpc: 'Score', rate: 10, p50: 0.0001, p99: 0.0002, failed: new Map([['NOT_FOUND', 10]]) });
  });

  it('has the difference of two readings', () => {
    const lines = linesBetween(reading(12, 130, 10, 100), reading(10, 90, 10, 60));
    expect(lines[0]).toMatchObject({ rate: 20, p50: 0.0001, failed: new Map() });
    expect(failuresOf(lines)).toEqual([]);
  });

  it('starts again after a restart of the server', () => {
    expect(linesBetween(reading(1, 5, 0, 5), reading(10, 90, 10, 60))[0]?.rate).toBe(5);
  });

  it('reads quoted labels', () => {
    expect(parseMetrics('x{a="1\\"2",b="{}"} 4\nbroken line here\n')).toEqual([{ name: 'x', labels: { a: '1"2', b: '{}' }, value: 4 }]);
  });

  it('has the largest bound for calls beyond it', () => {
    expect(quantile([{ le: 1, count: 0 }, { le: Infinity, count: 2 }], 0.5)).toBe(1);
    expect(quantile([], 0.5)).toBeUndefined();
  });
});
