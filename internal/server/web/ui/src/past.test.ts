import { expect, test } from 'vitest';
import type { HistoryView, ModelView } from './api';
import { linesOf } from './config';
import { Live } from './live';
import { sorted } from './parts/models';
import { available, nothing, rangeOf, ranges, times } from './past';

const view = { from_us: 60e6, step_us: 20e6, steps: 3, stored: false } as HistoryView;

test('an address names a range, and what no server has is not offered', () => {
  expect(rangeOf('6h').seconds).toBe(21600);
  expect(rangeOf(undefined).key).toBe('15m');
  expect(rangeOf('<b>').key).toBe('15m');
  expect(ranges.filter((r) => available(r, view)).map((r) => r.key)).toEqual(['live', '15m', '1h']);
  expect(ranges.every((r) => available(r, { ...view, stored: true }))).toBe(true);
  expect(times(view)).toEqual([60, 80, 100]);
  expect([nothing([null, 0]), nothing([null, 2])]).toEqual([true, false]);
});

test('lines of a configuration that were not written are marked', () => {
  const lines = linesOf(
    { name: 'm', backend: 'x', max_batch_size: 8, input: [{ name: 'A', dims: ['2'] }], instance_group: [{ count: 1 }], platform: '' },
    { name: 'm', backend: 'x', max_batch_size: 4, input: [{ name: 'A', dims: ['2'] }], instance_group: [] },
  );
  expect(lines.filter((l) => l.filled).map((l) => l.text.trim())).toEqual(['"max_batch_size": 8,', '"instance_group": [', '{', '"count": 1', '}', ']']);
  expect(JSON.parse(lines.map((l) => l.text).join('\n'))).toEqual({ name: 'm', backend: 'x', max_batch_size: 8, input: [{ name: 'A', dims: ['2'] }], instance_group: [{ count: 1 }] });
  expect(linesOf({ name: '<b>' }, null)).toEqual([{ text: '{', filled: false }, { text: '  "name": "<b>"', filled: false }, { text: '}', filled: false }]);
});

test('models that changed take their places, and new ones theirs', () => {
  globalThis.requestAnimationFrame = () => 0;
  const l = new Live() as unknown as { take: (name: string, v: unknown) => void; models: ModelView[] };
  const m = (name: string, rate: number) => ({ name, version: '1', rate }) as ModelView;
  l.take('models', [m('a', 1), m('c', 3)]);
  const before = l.models;
  l.take('changed', [m('c', 4)]);
  expect(l.models).toEqual([m('a', 1), m('c', 4)]);
  expect(l.models).not.toBe(before);
  l.take('changed', [m('b', 2)]);
  l.take('changed', [m('c', 5)]);
  expect(l.models).toEqual([m('a', 1), m('b', 2), m('c', 5)]);
  l.take('models', [m('c', 5)]);
  l.take('changed', [m('c', 6)]);
  expect(l.models).toEqual([m('c', 6)]);
});

test('models are ordered by a column, and by name where that is equal', () => {
  const list = ['b', 'a', 'c'].map((name, i) => ({ name, version: '1', rate: i === 2 ? 9 : 1 }) as ModelView);
  expect(sorted(list, 'rate', false).map((m) => m.name)).toEqual(['c', 'a', 'b']);
  expect(sorted(list, 'name', false).map((m) => m.name)).toEqual(['c', 'b', 'a']);
});
