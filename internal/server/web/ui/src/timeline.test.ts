import { expect, test } from 'vitest';
import type { RunView } from './api';
import { bars, covers, cut, endOf, lanesOf, moved, shortest, step, zoomed } from './timeline';

const run = (id: number, lane: number, start: number, ns: number): RunView => ({ id, lane, start_ns: start, input_ns: 0, infer_ns: ns, output_ns: 0, rows: 1, members: 1 });

test('runs of an instance that overlap are in rows below each other', () => {
  const lanes = lanesOf([run(1, 2, 0, 10), run(2, 2, 5, 10), run(3, 0, 6, 1), run(4, 2, 10, 1), run(5, 2, 11, 9)], 4);
  expect(lanes.map((l) => [l.at, l.rows.map((r) => r.map((x) => x.id))])).toEqual([[0, [[3]]], [2, [[1, 4, 5], [2]]]]);
});

test('bars are where runs were, and those too small to see are one', () => {
  expect(bars([run(1, 0, 100, 100), run(2, 0, 300, 50)], 0, 1000, 100).map((b) => [b.x, b.width, b.runs.length])).toEqual([[10, 10, 1], [30, 5, 1]]);
  const many = Array.from({ length: 5000 }, (_, i) => run(i, 0, i * 100, 90));
  const list = bars(many, 0, 500_000, 1000);
  expect(list.length).toBeLessThan(1000);
  expect(list.reduce((n, b) => n + b.runs.length, 0)).toBe(5000);
  for (const [i, b] of list.entries()) expect(b.x).toBeGreaterThanOrEqual(i ? list[i - 1]!.x + list[i - 1]!.width - 1e-6 : 0);
  expect(bars([run(1, 0, -500, 200), run(2, 0, 2000, 10)], 0, 1000, 100)).toEqual([]);
  expect(bars([run(1, 0, -500, 700)], 0, 1000, 100).map((b) => [b.x, b.width])).toEqual([[0, 20]]);
});

test('arrow keys go from run to run and from instance to instance', () => {
  const lanes = lanesOf([run(1, 0, 0, 5), run(2, 1, 10, 5), run(3, 0, 20, 5), run(4, 1, 22, 5)], 2);
  const first = step(lanes, null, 'right')!;
  expect(first.id).toBe(1);
  expect(step(lanes, first, 'right')!.id).toBe(3);
  expect(step(lanes, step(lanes, first, 'right'), 'right')!.id).toBe(3);
  expect(step(lanes, run(3, 0, 20, 5), 'down')!.id).toBe(4);
  expect(step(lanes, run(4, 1, 22, 5), 'left')!.id).toBe(2);
  expect(step(lanes, first, 'up')!.id).toBe(1);
  expect([step(lanes, first, 'last')!.id, step(lanes, run(4, 1, 22, 5), 'first')!.id]).toEqual([3, 2]);
  expect(step([], null, 'down')).toBeNull();
  expect(endOf(run(1, 0, 3, 4))).toBe(7);
});

test('an interval is scaled around a moment and moved', () => {
  expect(zoomed({ from: 1000, to: 2000 }, 0.5, 1000)).toEqual({ from: 1000, to: 1500 });
  expect(zoomed({ from: 1000, to: 2000 }, 2)).toEqual({ from: 500, to: 2500 });
  expect(zoomed({ from: 0, to: 1000 }, 1e-9)).toEqual({ from: 500 - shortest / 2, to: 500 + shortest / 2 });
  expect(moved({ from: 1000, to: 2000 }, 0.5)).toEqual({ from: 1500, to: 2500 });
  expect(moved({ from: 10, to: 20 }, -5)).toEqual({ from: 0, to: 10 });
});

test('a part of a view has its runs at their times', () => {
  const v = { from_us: 100, to_us: 200, now_us: 0, oldest_us: 0, lanes: [], more: 0, share: null, runs: [run(1, 0, 0, 5000), run(2, 0, 9000, 2000), run(3, 0, 50_000, 10)] };
  expect(covers(v, { from: 100, to: 150 })).toBe(true);
  expect(covers(v, { from: 99, to: 150 })).toBe(false);
  const part = cut(v, { from: 110, to: 140 });
  expect([part.from_us, part.to_us, part.runs.map((r) => [r.id, r.start_ns])]).toEqual([110, 140, [[2, -1000]]]);
});
