/** A document that was typed and is not pushed yet. */

export interface Draft {
  document: string;
  /** Version that was active when the draft began: a push expects it, so it never overwrites what others pushed since. */
  base: string;
}

/** The draft after an edit. An edit that restores the stored document ends it. `active`: version that is active now. */
export function draftAfter(draft: Draft | undefined, document: string, stored: string, active: string): Draft | undefined {
  return document === stored ? undefined : { document, base: draft?.base ?? active };
}

/** Version that a push expects to be active. Without a draft, a stored version is pushed over the active one. */
export function expectedVersion(draft: Draft | undefined, active: string): string {
  return draft?.base ?? active;
}

/** True: another version became active after the draft began. */
export function isOvertaken(draft: Draft | undefined, active: string): boolean {
  return draft !== undefined && draft.base !== active;
}

/** Drafts by policy, in the memory of the page: they outlive the view. */
const drafts = new Map<string, Draft>();

/** Draft of a policy. Undefined: nothing was typed since the last push. */
export function keptDraft(policy: string): Draft | undefined {
  return drafts.get(policy);
}

/** Keeps the draft of a policy. Undefined: it is pushed or discarded. */
export function keepDraft(policy: string, draft: Draft | undefined): void {
  if (draft) drafts.set(policy, draft);
  else drafts.delete(policy);
}
