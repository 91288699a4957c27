import { expect, test } from 'vitest';
import { ago, bytes, count, dur, percent, shape, shorten, storedText } from './format';

test.each([
  [0, '0'], [12, '12 ns'], [999, '999 ns'], [1000, '1.00 µs'], [12_345, '12.3 µs'], [999_499, '999 µs'], [999_600, '1.00 ms'],
  [1_500_000, '1.50 ms'], [2e9, '2.00 s'], [180e9, '3.00 min'], [-1500, '−1.50 µs'],
])('dur(%d)', (ns, want) => expect(dur(ns)).toBe(want));

test.each([[0, '0 B'], [999, '999 B'], [1000, '1.00 kB'], [67_108_864, '67.1 MB'], [5e12, '5.00 TB']])('bytes(%d)', (n, want) => expect(bytes(n)).toBe(want));
test.each([[0, '0'], [0.001, '<0.01'], [3, '3'], [2.5, '2.50'], [1234, '1.23k'], [2.5e6, '2.50M']])('count(%d)', (n, want) => expect(count(n)).toBe(want));
test.each([[5e6, '5 s'], [125e6, '2 min'], [7300e6, '2 h 1 min'], [90000e6, '1 d 1 h']])('ago(%d)', (us, want) => expect(ago(us)).toBe(want));

test('percent, shape, shorten', () => {
  expect(percent(0.1234)).toBe('12.3 %');
  expect(percent(0.0001)).toBe('<0.1 %');
  expect(shape([-1, 3, 4])).toBe('*×3×4');
  expect(shape(null)).toBe('scalar');
  expect(shorten('abcdefghij', 6)).toHaveLength(6);
  expect(shorten('abc', 6)).toBe('abc');
});

test('of how many requests of a batch the traces are stored', () => {
  expect(storedText(1, 1)).toBe('The trace of its only request is stored.');
  expect(storedText(0, 1)).toBe('The trace of its only request is not stored.');
  expect(storedText(8, 8)).toBe('The traces of all 8 requests are stored.');
  expect(storedText(3, 8)).toBe('The traces of 3 of 8 requests are stored.');
  expect(storedText(0, 8)).toBe('None of the traces of its 8 requests is stored.');
});
