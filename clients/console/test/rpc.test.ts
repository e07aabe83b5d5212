import { expect, it } from 'vitest';
import { errorOf } from '../src/rpc';

it('reads the findings of a rejected document', () => {
  const finding = { severity: 'SEVERITY_ERROR', code: 'ACTION_UNKNOWN', message: 'unknown action `backfil`', line: 2, column: 10, path: 'actions' };
  const body = {
    code: 'invalid_argument',
    message: 'policy `default` rejected: 1 error',
    details: [
      { type: 'google.rpc.ErrorInfo', value: '', debug: { reason: 'POLICY_REJECTED', domain: 'pumice' } },
      { type: 'pumice.v1.PolicyReport', value: '', debug: { diagnostics: [finding] } },
    ],
  };
  const error = errorOf(400, JSON.stringify(body));
  expect(error.code).toBe('invalid_argument');
  expect(error.reason).toBe('POLICY_REJECTED');
  expect(error.report?.diagnostics).toEqual([finding]);
});

it('keeps the text of an answer that is not JSON', () => {
  expect(errorOf(502, 'bad gateway').message).toBe('bad gateway');
  expect(errorOf(404, '').message).toBe('HTTP status 404');
});
