import { describe, expect, it } from 'vitest';
import { ageText, amountText, amountsOf, durationText, measurementText, parseQuantity, quantitiesOf } from '../src/amounts';

describe('parseQuantity', () => {
  it.each([['500m', 0.5], ['2', 2], ['16Gi', 16 * 2 ** 30], ['1e3', 1000], ['1E', 1e18], ['1.5k', 1500], ['nonsense', 0], ['', 0]])('reads %s', (text, value) => {
    expect(parseQuantity(text)).toBeCloseTo(value);
  });
});

describe('amounts of responses', () => {
  it('turns thousandths into whole units, but not memory and pods', () => {
    const amounts = amountsOf([{ resource: 'cpu', value: 26_000 }, { resource: 'memory', value: 2 ** 30 }, { resource: 'pods', value: 26 }, { resource: 'nvidia.com/gpu', value: 4000 }]);
    expect([...amounts.values()]).toEqual([26, 2 ** 30, 26, 4]);
  });

  it('reads an amount without a value as 0', () => {
    expect(amountsOf([{ resource: 'cpu' }]).get('cpu')).toBe(0);
  });

  it('adds what a node oversubscribes', () => {
    expect(quantitiesOf({ items: { cpu: '8' } }, { items: { cpu: '500m' } }).get('cpu')).toBe(8.5);
  });
});

describe('texts', () => {
  it('names the unit', () => {
    expect(amountText('cpu', 1)).toBe('1 core');
    expect(amountText('memory', 27 * 2 ** 30)).toBe('27Gi');
    expect(amountText('NVIDIA-A100', 4)).toBe('4');
    expect(measurementText(10, 'cores')).toBe('10 cores');
    expect(measurementText(Infinity, 'cards')).toBe('no limit');
  });

  it('rounds times to two units', () => {
    expect(ageText(12_000)).toBe('3 h 20 min');
    expect(durationText(0.0016)).toBe('1.6 ms');
    expect(durationText(0.00005)).toBe('50 µs');
  });
});
