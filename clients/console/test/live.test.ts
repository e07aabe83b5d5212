import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Loader } from '../src/live.svelte';
import { restAfter, retryAfter } from '../src/pace';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A loader whose loads take 10 ms and fail as often as `failures` says. */
function loaderOf(failures: number): { loader: Loader<number>; loads: () => number } {
  let loads = 0;
  const loader = new Loader(async () => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    loads += 1;
    if (loads <= failures) throw new Error('the server cannot be reached');
    return loads;
  });
  return { loader, loads: () => loads };
}

it('tries a failed load again, later each time', async () => {
  const { loader, loads } = loaderOf(2);
  loader.want('1');
  await vi.advanceTimersByTimeAsync(10);
  expect([loads(), loader.value, loader.problem]).toEqual([1, undefined, 'the server cannot be reached']);
  await vi.advanceTimersByTimeAsync(1900);
  expect(loads()).toBe(1);
  await vi.advanceTimersByTimeAsync(200);
  expect(loads()).toBe(2);
  await vi.advanceTimersByTimeAsync(4100);
  expect([loads(), loader.value, loader.problem]).toEqual([3, 3, '']);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(loads()).toBe(3);
});

it('tries at once when the user asks for it', async () => {
  const { loader, loads } = loaderOf(1);
  loader.want('1');
  await vi.advanceTimersByTimeAsync(10);
  loader.again();
  await vi.advanceTimersByTimeAsync(10);
  expect([loads(), loader.value]).toEqual([2, 2]);
});

it('stops with its view', async () => {
  const { loader, loads } = loaderOf(9);
  loader.want('1');
  await vi.advanceTimersByTimeAsync(10);
  loader.stop();
  await vi.advanceTimersByTimeAsync(600_000);
  expect(loads()).toBe(1);
});

it('rests after a load, before it follows the next revision', async () => {
  const { loader, loads } = loaderOf(0);
  loader.want('1');
  await vi.advanceTimersByTimeAsync(10);
  loader.want('2');
  await vi.advanceTimersByTimeAsync(restAfter(10, 1) - 10);
  expect(loads()).toBe(1);
  await vi.advanceTimersByTimeAsync(30);
  expect(loads()).toBe(2);
});

it('shares one bound among all pages', () => {
  expect(restAfter(10, 1)).toBe(400);
  expect(restAfter(10, 100)).toBe(40_000);
  expect(restAfter(60_000, 100)).toBe(300_000);
  expect([1, 2, 3, 20].map(retryAfter)).toEqual([2000, 4000, 8000, 60_000]);
});
