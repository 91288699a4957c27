import { expect, test } from 'vitest';
import type { TraceSummary } from './api';
import { heat, histogram, lane, low, quantile } from './bins';

const t = (start_us: number, duration_ns: number, status = 'ok'): TraceSummary =>
  ({ id: `${start_us}`, span_id: '', model: 'm', version: 1, ensemble: false, start_us, duration_ns, status, retained: 'slow', steps: 0 });

test('a lane holds the durations from its lower bound on', () => {
  for (let l = 5; l < 60; l++) expect(lane(low(l) * 1.01)).toBe(l);
  for (const ns of [1, 10, 1e3, 1e6, 1e9]) expect(low(lane(ns))).toBeCloseTo(ns, 3);
  expect(lane(0)).toBe(0);
});

test('a heat map counts every trace once', () => {
  const list = [t(0, 1000), t(10, 1000), t(999, 1e6, 'cancelled'), t(500, 1e6)];
  const h = heat(list, 10)!;
  expect(h.cells.reduce((n, c) => n + c.count, 0)).toBe(list.length);
  expect(h.cells.every((c) => c.column >= 0 && c.column < h.columns && c.lane >= h.lowest && c.lane < h.lowest + h.lanes)).toBe(true);
  expect(h.most).toBe(2);
  expect(heat([], 10)).toBeNull();
  expect(heat([t(5, 5)], 10)!.cells).toHaveLength(1);
});

test('a histogram has no holes', () => {
  const bins = histogram([t(0, 1000), t(0, 1e6, 'internal')]);
  expect(bins).toHaveLength(lane(1e6) - lane(1000) + 1);
  expect([bins[0]!.count, bins.at(-1)!.failed]).toEqual([1, 1]);
  expect(histogram([])).toEqual([]);
});

test('quantiles', () => {
  expect(quantile([1, 2, 3, 4], 0.5)).toBe(2);
  expect(quantile([1, 2, 3, 4], 0.99)).toBe(4);
  expect(quantile([], 0.5)).toBe(0);
});
