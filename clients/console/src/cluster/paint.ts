/** Paints the heat map. */

import { TITLE_HEIGHT, type MapLayout, placeOf } from './layout';
import type { Measure, NodeCell, NodeState } from './nodes';

/** Number of shades from unused to full. */
export const SHADES = 9;

export interface Palette {
  shades: string[];
  none: string;
  text: string;
  stranded: string;
  selected: string;
  states: Record<Exclude<NodeState, 'ready'>, string>;
}

/** The colours of the style sheet, for the scheme in force. */
export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return {
    shades: Array.from({ length: SHADES }, (_, at) => colour(`--shade-${at}`)),
    none: colour('--shade-none'),
    text: colour('--text'),
    stranded: colour('--stranded'),
    selected: colour('--focus'),
    states: {
      cordoned: colour('--cordoned'),
      'not ready': colour('--bad'),
      invalid: colour('--invalid'),
      stale: colour('--stale'),
    },
  };
}

/** Number of the shade of a used part. */
export function shadeOf(part: number): number {
  return Math.min(SHADES - 1, Math.max(0, Math.floor(part * (SHADES - 1) + 1e-9)));
}

/** Paints the whole map; a change of 10,000 nodes is painted the same way. */
export function paint(canvas: HTMLCanvasElement, layout: MapLayout, measure: Measure, palette: Palette, selected: string): void {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(layout.width * ratio), Math.round(layout.height * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
    canvas.style.width = `${layout.width}px`;
    canvas.style.height = `${layout.height}px`;
  }
  const context = canvas.getContext('2d');
  if (!context) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, layout.width, layout.height);
  context.font = '600 13px system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (const group of layout.groups) {
    context.fillStyle = palette.text;
    context.fillText(`${group.title} (${group.cells.length.toLocaleString('en-US')})`, 0, group.top + TITLE_HEIGHT / 2);
    group.cells.forEach((cell, at) => {
      const x = (at % layout.columns) * layout.step;
      const y = group.cellTop + Math.floor(at / layout.columns) * layout.step;
      paintCell(context, cell, x, y, layout.step - 1, measure, palette);
    });
  }
  const place = placeOf(layout, selected);
  if (place) {
    context.strokeStyle = palette.selected;
    context.lineWidth = 2;
    context.strokeRect(place.x - 1, place.y - 1, layout.step + 1, layout.step + 1);
  }
}

function paintCell(context: CanvasRenderingContext2D, cell: NodeCell, x: number, y: number, size: number, measure: Measure, palette: Palette): void {
  const part = cell.used[measure];
  context.fillStyle = part === undefined ? palette.none : (palette.shades[shadeOf(part)] ?? palette.none);
  context.fillRect(x, y, size, size);
  // A mark is a form and not only a colour: a bar on the left for the state, a square on the right for stranded cards.
  if (cell.state !== 'ready') {
    context.fillStyle = palette.states[cell.state];
    context.fillRect(x, y, Math.max(2, size / 4), size);
  }
  if (cell.strandedCards > 0) {
    const mark = Math.max(2, size / 2.5);
    context.fillStyle = palette.stranded;
    context.fillRect(x + size - mark, y + size - mark, mark, mark);
  }
}
