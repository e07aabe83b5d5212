/** Places of the cells on the canvas. */

import type { CellGroup, NodeCell } from './nodes';

export interface PlacedGroup {
  title: string;
  /** Top of the title. */
  top: number;
  /** Top of the first row of cells. */
  cellTop: number;
  cells: NodeCell[];
}

export interface MapLayout {
  width: number;
  height: number;
  /** Distance between two cells, in pixels; a cell leaves one pixel of it free. */
  step: number;
  columns: number;
  groups: PlacedGroup[];
}

export const TITLE_HEIGHT = 22;
const GAP = 10;
const LARGEST = 44;
const SMALLEST = 4;

/** Lays out groups below each other with the largest cells that fit into the height. Very many cells grow the height. */
export function layOut(groups: CellGroup[], width: number, height: number): MapLayout {
  let step = LARGEST;
  while (step > SMALLEST && heightOf(groups, width, step) > height) step -= 1;
  const columns = Math.max(1, Math.floor(width / step));
  let top = 0;
  const placed = groups.map(({ title, cells }) => {
    const group = { title, top, cellTop: top + TITLE_HEIGHT, cells };
    top = group.cellTop + Math.ceil(cells.length / columns) * step + GAP;
    return group;
  });
  return { width, height: Math.max(top, 1), step, columns, groups: placed };
}

function heightOf(groups: CellGroup[], width: number, step: number): number {
  const columns = Math.max(1, Math.floor(width / step));
  return groups.reduce((sum, { cells }) => sum + TITLE_HEIGHT + Math.ceil(cells.length / columns) * step + GAP, 0);
}

/** The cell at a point. Undefined: there is none. */
export function cellAt(layout: MapLayout, x: number, y: number): NodeCell | undefined {
  const group = layout.groups.findLast((one) => one.cellTop <= y);
  const column = Math.floor(x / layout.step);
  if (!group || column < 0 || column >= layout.columns) return undefined;
  return group.cells[Math.floor((y - group.cellTop) / layout.step) * layout.columns + column];
}

/** Left upper corner of a cell. Undefined: the map does not have it. */
export function placeOf(layout: MapLayout, name: string): { x: number; y: number } | undefined {
  for (const group of layout.groups) {
    const at = group.cells.findIndex((cell) => cell.name === name);
    if (at >= 0) {
      const { step, columns } = layout;
      return { x: (at % columns) * step, y: group.cellTop + Math.floor(at / columns) * step };
    }
  }
  return undefined;
}

const MOVES: Record<string, (columns: number) => number> = {
  ArrowLeft: () => -1,
  ArrowRight: () => 1,
  ArrowUp: (columns) => -columns,
  ArrowDown: (columns) => columns,
  Home: () => -Infinity,
  End: () => Infinity,
};

/** The cell that a key leads to. Undefined: the key does not move. */
export function cellAfterKey(layout: MapLayout, name: string, key: string): NodeCell | undefined {
  const move = MOVES[key];
  if (!move) return undefined;
  const cells = layout.groups.flatMap((group) => group.cells);
  const from = cells.findIndex((cell) => cell.name === name);
  const to = from < 0 ? 0 : from + move(layout.columns);
  return cells[Math.min(cells.length - 1, Math.max(0, to))];
}
