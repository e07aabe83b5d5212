import { expect, it } from 'vitest';
import { formatRoute, parseRoute } from '../src/route';

it('reads what it writes', () => {
  const address = formatRoute('waiting', { job: 'x/gang', queue: '' });
  expect(address).toBe('#/waiting?job=x%2Fgang');
  expect(parseRoute(address)).toEqual({ view: 'waiting', parameters: { job: 'x/gang' } });
});

it('shows the cluster for an unknown address', () => {
  expect(parseRoute('#/nonsense').view).toBe('cluster');
  expect(parseRoute('').view).toBe('cluster');
});
