/** Amounts of resources: quantities of records, numbers of responses, and their texts. */

import type { Amount, Double, ResourceList } from './protocol';

const SUFFIXES: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** A Kubernetes quantity in whole units, such as cores or bytes. Not a quantity: 0. */
export function parseQuantity(text: string): number {
  const parts = /^([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+))?([A-Za-z]*)$/.exec(text.trim());
  const factor = SUFFIXES[parts?.[3] ?? ''];
  if (!parts || factor === undefined) return 0;
  const value = Number(parts[1]) * 10 ** Number(parts[2] ?? 0) * factor;
  return Number.isFinite(value) ? value : 0;
}

/** A double of a response as a number. */
export function toNumber(value: Double | undefined): number {
  return value === undefined ? 0 : Number(value);
}

/** Amounts of a response in whole units, by resource. */
export function amountsOf(amounts: Amount[] | undefined): Map<string, number> {
  return new Map((amounts ?? []).map((amount) => [amount.resource, wholeUnits(amount.resource, toNumber(amount.value))]));
}

/** Amounts of a record in whole units, by resource. */
export function quantitiesOf(...lists: (ResourceList | undefined)[]): Map<string, number> {
  const sums = new Map<string, number>();
  for (const list of lists) {
    for (const [resource, text] of Object.entries(list?.items ?? {})) {
      sums.set(resource, (sums.get(resource) ?? 0) + parseQuantity(text));
    }
  }
  return sums;
}

/** Responses state memory in bytes and pods as a number, and everything else in thousandths. */
function wholeUnits(resource: string, value: number): number {
  return resource === 'memory' || resource === 'pods' ? value : value / 1000;
}

function isBytes(resource: string): boolean {
  return resource === 'memory' || resource === 'ephemeral-storage' || resource.startsWith('hugepages-');
}

/** An amount with its unit, such as `6 cores`, `27Gi` or `8`. */
export function amountText(resource: string, value: number): string {
  if (isBytes(resource)) return bytesText(value);
  if (resource === 'cpu') return `${numberText(value)} ${value === 1 ? 'core' : 'cores'}`;
  return numberText(value);
}

/** A measurement with its unit, such as `10 cores`. Unit: "cores", "bytes", "cards" or none. */
export function measurementText(value: number, unit: string | undefined): string {
  if (unit === 'bytes') return bytesText(value);
  const text = numberText(value);
  if (!unit || !Number.isFinite(value)) return text;
  return `${text} ${value === 1 ? unit.replace(/s$/, '') : unit}`;
}

/** A number with at most three digits behind the point, and commas between thousands. */
export function numberText(value: number): string {
  return Number.isFinite(value) ? value.toLocaleString('en-US', { maximumFractionDigits: 3 }) : 'no limit';
}

export function bytesText(value: number): string {
  const sizes: [number, string][] = [[2 ** 50, 'Pi'], [2 ** 40, 'Ti'], [2 ** 30, 'Gi'], [2 ** 20, 'Mi'], [2 ** 10, 'Ki']];
  for (const [size, suffix] of sizes) {
    if (Math.abs(value) >= size) return `${(value / size).toLocaleString('en-US', { maximumFractionDigits: 1 })}${suffix}`;
  }
  return numberText(value);
}

/** Part of a whole in percent, such as `81 %`. */
export function percentText(part: number): string {
  return `${Math.round(part * 100)} %`;
}

/** `1 node`, `2 nodes`. */
export function countText(number: number, thing: string): string {
  return `${number.toLocaleString('en-US')} ${thing}${number === 1 ? '' : 's'}`;
}

/** Time that passed, in the two largest units, such as `3 h 20 min`. */
export function ageText(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** A short duration in seconds, such as `1.6 ms`. */
export function durationText(seconds: number): string {
  if (seconds < 1e-3) return `${numberText(Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toLocaleString('en-US', { maximumFractionDigits: 1 })} ms`;
  return `${seconds.toLocaleString('en-US', { maximumFractionDigits: 1 })} s`;
}
