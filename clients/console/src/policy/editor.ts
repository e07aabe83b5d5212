/** The editor of a policy document: YAML, findings at their lines, and the difference from another version. */

import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic as EditorDiagnostic, lintGutter, lintKeymap, setDiagnostics } from '@codemirror/lint';
import { unifiedMergeView } from '@codemirror/merge';
import { Compartment, EditorState, type Text } from '@codemirror/state';
import { EditorView, drawSelection, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import type { Diagnostic } from '../protocol';

/** Colours come from the style sheet, so that the editor follows light and dark with the page. */
const theme = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'var(--panel)', fontSize: '13px', border: '1px solid var(--line)', borderRadius: '6px' },
  '&.cm-focused': { outline: '2px solid var(--focus)' },
  '.cm-scroller': { fontFamily: 'var(--mono)', maxHeight: '60vh', minHeight: '12rem' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--soft)', color: 'var(--muted)', borderRight: '1px solid var(--line)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--selection)' },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', color: 'var(--text)', border: '1px solid var(--line)' },
  '.cm-changedLine, .cm-inlineChangedLine, .cm-insertedLine': { backgroundColor: 'var(--added) !important' },
  '.cm-deletedChunk, .cm-deletedLine': { backgroundColor: 'var(--removed) !important' },
  '.cm-changedText, .cm-deletedText, .cm-insertedText': { background: 'none !important', fontWeight: '700' },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--syntax-key)' },
  { tag: tags.string, color: 'var(--syntax-text)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
]);

export interface PolicyEditor {
  view: EditorView;
  /** Replaces the document, for example by another version. */
  show(document: string): void;
  /** Shows findings at their lines. */
  mark(findings: Diagnostic[]): void;
  /** Shows the difference from another document. Undefined: no difference. */
  compare(original: string | undefined): void;
  /** Moves the cursor to a finding. */
  goTo(finding: Diagnostic): void;
}

/** Puts an editor into an element. Its styles are in a shadow root, as the content security policy forbids `<style>`. */
export function openEditor(host: HTMLElement, document: string, onchange: (document: string) => void): PolicyEditor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const comparison = new Compartment();
  const state = EditorState.create({
    doc: document,
    extensions: [
      lineNumbers(), history(), drawSelection(), yaml(), lintGutter(), theme, syntaxHighlighting(colours), comparison.of([]),
      keymap.of([...defaultKeymap, ...historyKeymap, ...lintKeymap]),
      EditorView.contentAttributes.of({ 'aria-label': 'Policy document' }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) onchange(update.state.doc.toString());
      }),
    ],
  });
  const view = new EditorView({ state, parent: root, root });
  return {
    view,
    show: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    mark: (findings) => view.dispatch(setDiagnostics(view.state, findings.map((finding) => placeFinding(view.state.doc, finding)))),
    compare: (original) =>
      view.dispatch({ effects: comparison.reconfigure(original === undefined ? [] : unifiedMergeView({ original, mergeControls: false })) }),
    goTo: (finding) => {
      const { from } = placeFinding(view.state.doc, finding);
      view.dispatch({ selection: { anchor: from }, scrollIntoView: true });
      view.focus();
    },
  };
}

/** A finding from its column to the end of its line. Line 0 is the whole document and is shown at its first line. */
export function placeFinding(document: Text, finding: Diagnostic): EditorDiagnostic {
  const line = document.line(Math.min(Math.max(1, finding.line ?? 1), document.lines));
  const from = Math.min(line.to, line.from + Math.max(0, (finding.column ?? 1) - 1));
  return { from, to: Math.max(from, line.to), severity: isError(finding) ? 'error' : 'warning', message: finding.message ?? finding.code ?? '' };
}

export function isError(finding: Diagnostic): boolean {
  return finding.severity === 'SEVERITY_ERROR';
}
