/** Checks of a document that is not active, without any effect. */

import { decide, latestAt } from '../decide';
import type { Diagnostic, ReloadPolicyResponse } from '../protocol';
import { CallError, call } from '../rpc';

export interface DocumentCheck {
  accepted: boolean;
  findings: Diagnostic[];
  /** Unified diff of the effective documents. Empty: none, or the caller may not push. */
  difference: string;
}

/** Checks a document. A dry run of a push needs the role `admin`; others have the errors of an evaluation, without warnings. */
export async function checkDocument(name: string, document: string, mayPush: boolean, signal: AbortSignal): Promise<DocumentCheck> {
  try {
    if (mayPush) {
      const response = await call<ReloadPolicyResponse>('PolicyService/ReloadPolicy', { name, document, dryRun: true }, signal);
      return { accepted: true, findings: response.report?.diagnostics ?? [], difference: response.difference ?? '' };
    }
    await decide('Order', { ...latestAt(Date.now()), inline: { cluster: {}, policyDocument: document } }, { queues: {} }, signal);
    return { accepted: true, findings: [], difference: '' };
  } catch (error) {
    if (error instanceof CallError && error.report) {
      return { accepted: false, findings: error.report.diagnostics ?? [], difference: '' };
    }
    throw error;
  }
}
