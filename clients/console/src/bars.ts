/** Geometry of bars with stacked parts and marks. */

/** What a part of a bar or a mark on it stands for. Each has its form in the style sheet. */
export type BarPartKind = 'held' | 'reserved' | 'asked' | 'beyond' | 'idle';
export type BarMarkKind = 'guarantee' | 'deserved' | 'limit' | 'may-hold';

export interface BarPart {
  kind: BarPartKind;
  value: number;
  text: string;
}

export interface BarMark {
  kind: BarMarkKind;
  value: number;
}

export interface PlacedPart extends BarPart {
  x: number;
  width: number;
}

/** Places parts side by side on a bar on which `most` is the right end. What is beyond the end is cut. */
export function placeParts(parts: BarPart[], most: number, width: number): PlacedPart[] {
  let from = 0;
  const placed: PlacedPart[] = [];
  for (const part of parts) {
    const to = from + Math.max(0, part.value);
    const [x, end] = [scale(from, most, width), scale(to, most, width)];
    if (end > x) placed.push({ ...part, x, width: end - x });
    from = to;
  }
  return placed;
}

/** Position of a value on a bar. */
export function scale(value: number, most: number, width: number): number {
  return most > 0 ? Math.min(1, Math.max(0, value / most)) * width : 0;
}
