import { expect, test } from 'vitest';
import type { GraphView, NodeView, StepView, TraceView } from './api';
import { decided, eventNames, gap, kinds, rows, stepSegments, ticks, totals } from './waterfall';

const step = (v: Partial<StepView>): StepView => ({
  span_id: '', node: 0, after: -1, sub_run: 0, model: 'm', version: 1, critical: false, cached: false, native: false, status: 'ok',
  ready_ns: 0, enqueued_ns: 0, start_ns: 0, input_end_ns: 0, infer_end_ns: 0, end_ns: 0, done_ns: 0, batch: 0, rows: 0,
  batch_rows: 0, members: 0, elements: 0, padding: 0, instance: 0, place: 'host', before: 0, ...v,
});

const trace = (v: Partial<TraceView>): TraceView => ({
  id: 'a', model: 'e', version: 1, ensemble: true, start_us: 0, duration_ns: 100, status: 'ok', retained: 'slow', steps: 0,
  span_id: '', params: [], moments: [], spans: [], events: [], split: [], batches: [], ...v,
});

test('the segments of a step follow each other without a gap', () => {
  const s = step({ ready_ns: 5, enqueued_ns: 10, start_ns: 20, input_end_ns: 25, infer_end_ns: 65, end_ns: 70, done_ns: 72, batch: 3, before: 2, elements: 40, padding: 10 });
  const list = stepSegments(s);
  expect(list.map((x) => [x.kind, x.from, x.to])).toEqual([
    ['scheduler', 5, 10], ['queue', 10, 20], ['copies', 20, 25], ['compute', 25, 55], ['padding', 55, 65], ['copies', 65, 70], ['scheduler', 70, 72],
  ]);
});

test('a step that did not run shows that it waited, one from the cache shows the lookup', () => {
  expect(stepSegments(step({ ready_ns: 5, done_ns: 9 })).map((x) => x.kind)).toEqual(['queue']);
  expect(stepSegments(step({ ready_ns: 5, done_ns: 9, cached: true })).map((x) => x.kind)).toEqual(['cache']);
  expect(stepSegments(step({}))).toEqual([]);
});

test('rows begin with the request and are in the order of time', () => {
  const t = trace({
    moments: [{ name: 'HTTP_RECV_START', ns: 0 }, { name: 'HTTP_RECV_END', ns: 4 }],
    spans: [step({ model: 'late', ready_ns: 50, done_ns: 60 }), step({ model: 'early', node: 1, ready_ns: 10, done_ns: 20 })],
    events: [{ kind: 'copy', ns: 12, node: 1 }, { kind: 'cancelled', ns: 90, node: -1 }],
  });
  const list = rows(t);
  expect(list.map((r) => r.label)).toEqual(['e', 'early', 'late']);
  expect(list.map((r) => r.events.length)).toEqual([1, 1, 0]);
  expect(list[0]!.segments.map((s) => s.kind)).toEqual(['scheduler', 'receive']);
});

test('a step on the critical path is made of its parts', () => {
  const s = step({ critical: true, ready_ns: 5, done_ns: 20, batch: 1 });
  const part = (node: number, start_ns: number, ns: number) => ({ kind: 'queue', node, model: 'm', start_ns, ns, text: 'why' });
  const list = rows(trace({ spans: [s], split: [part(-1, 0, 5), part(0, 5, 10), part(0, 15, 0), part(1, 15, 5)] }));
  expect(list[1]!.segments).toEqual([{ kind: 'queue', from: 5, to: 15, title: 'why' }]);
});

test('totals add up kinds, largest first', () => {
  expect(totals([{ kind: 'a', ns: 1 }, { kind: 'b', ns: 5 }, { kind: 'a', ns: 2 }, { kind: 'c', ns: 0 }])).toEqual([{ kind: 'b', ns: 5 }, { kind: 'a', ns: 3 }]);
});

test('a step has the mark of its prediction, and one that was refused has a row', () => {
  const due = { deadline_ns: 40, predicted_ns: 90, end_ns: 100, steps: [{ node: 0, step: 'first', predicted_ns: 30, end_ns: 20 }, { node: 1, step: 'last', predicted_ns: 90 }] };
  const list = rows(trace({ due, spans: [step({ node: 0, ready_ns: 5, done_ns: 20 })], events: [{ kind: 'deadline', ns: 21, node: 1 }] }));
  expect(list.map((r) => [r.label, r.predicted, r.role])).toEqual([['e', 90, ''], ['m', 30, ''], ['last', 90, 'did not run']]);
  expect(list[2]!.events.length).toBe(1);
  expect(gap(30, 20)).toBe('10 ns earlier');
  expect(gap(30, 1030)).toBe('1.00 µs later');
});

test('ticks are round', () => {
  expect(ticks(100, 5)).toEqual([0, 20, 40, 60, 80, 100]);
  expect(ticks(0, 5)).toEqual([0]);
  expect(ticks(NaN, 5)).toEqual([0]);
});

test('a step at a device has the times of the device', () => {
  const s = step({ place: 'device:0', ready_ns: 5, enqueued_ns: 10, start_ns: 20, input_end_ns: 22, infer_end_ns: 24, end_ns: 26, device_start_ns: 30, device_end_ns: 70, done_ns: 71, batch: 3, elements: 40, padding: 10 });
  expect(stepSegments(s).map((x) => [x.kind, x.from, x.to])).toEqual([
    ['scheduler', 5, 10], ['scheduler', 10, 20], ['scheduler', 20, 26], ['queue', 26, 30], ['compute', 30, 60], ['padding', 60, 70], ['scheduler', 70, 71],
  ]);
  expect(stepSegments({ ...s, device_start_ns: 23 })[2]).toEqual({ kind: 'scheduler', from: 20, to: 23, title: 'putting it into the stream of device:0' });
  expect(stepSegments({ ...s, native: true, padding: 0 }).find((x) => x.from === 30)).toEqual({ kind: 'native', from: 30, to: 70, title: 'executing on device:0' });
});

test('a step shows that its model was loaded again', () => {
  const load = { kind: 'model_load', ns: 6, node: 0, duration_ns: 50 };
  const s = step({ ready_ns: 5, enqueued_ns: 60, start_ns: 61, input_end_ns: 61, infer_end_ns: 65, end_ns: 65, done_ns: 65, batch: 1 });
  expect(stepSegments(s, [load]).map((x) => [x.kind, x.from, x.to]).slice(0, 3)).toEqual([['scheduler', 5, 6], ['model_load', 6, 56], ['scheduler', 56, 60]]);
  expect(stepSegments(step({ ready_ns: 5, done_ns: 80 }), [load]).map((x) => x.kind)).toEqual(['scheduler', 'model_load', 'queue']);
  expect(stepSegments({ ...s, ready_ns: 58 }, [load]).map((x) => x.kind)).not.toContain('model_load');
  for (const kind of ['model_load', 'spill']) expect(eventNames[kind]).toBeTruthy();
  expect(kinds['model_load']).toBeTruthy();
});

const node = (v: Partial<NodeView>): NodeView => ({
  node: 0, name: 'n', model: 'm', version: 1, platform: '', places: [], lost: [], site: 'host', ensembles: [], stream: 0, max_inflight: 0, max_batch: 1, instances: 1, in_flight: 0, live: null, ...v,
});
const graph = (...nodes: NodeView[]): GraphView => ({ model: 'e', version: 1, nodes, edges: [] });

test('the steps inside of a fan-out are grouped below it, with their items, also in a fan-out of a fan-out', () => {
  const g = graph(
    node({ node: 0, name: 'find' }), node({ node: 1, name: 'each item of crop', kind: 'fan-out' }), node({ node: 2, name: 'read', within: [1] }),
    node({ node: 3, name: 'each item of word', kind: 'fan-out', within: [1] }), node({ node: 4, name: 'spell', within: [1, 3] }), node({ node: 5, name: 'last' }),
  );
  const t = trace({
    spans: [
      step({ model: 'find', node: 0, ready_ns: 1, done_ns: 9 }),
      step({ model: 'read', node: 2, ready_ns: 10, done_ns: 20, rows: 2, sub_run: 1 }), step({ model: 'read', node: 2, ready_ns: 12, done_ns: 30, rows: 3, sub_run: 2 }),
      step({ model: 'spell', node: 4, ready_ns: 40, done_ns: 50, rows: 4, sub_run: 3 }), step({ model: 'last', node: 5, ready_ns: 60, done_ns: 70 }),
    ],
    events: [
      { kind: 'fan_out', ns: 10, node: 1, reason: "'find.demux' divided 1 rows into 5 items, in 2 groups of equal shape" },
      { kind: 'fan_out', ns: 31, node: 3, reason: "'read.demux' divided 2 rows into 1 items, in 1 groups of equal shape" },
      { kind: 'fan_out', ns: 32, node: 3, reason: "'read.demux' divided 3 rows into 3 items, in 1 groups of equal shape" },
    ],
  });
  const list = rows(t, g);
  expect(list.map((r) => [r.label, r.role, r.depth])).toEqual([
    ['e', '', 0], ['find', '', 0], ['each item of crop', '5 items in 2 groups', 0], ['read', '5 items in 2 groups', 1],
    ['each item of word', '4 items in 2 groups', 1], ['spell', '4 items', 2], ['last', '', 0],
  ]);
  expect(list[3]!.runs).toHaveLength(2);
  expect([list[3]!.from, list[3]!.to, list[2]!.from, list[2]!.to]).toEqual([10, 30, 10, 50]);
  expect(rows(t).map((r) => r.label)).toEqual(['e', 'find', 'read', 'read', 'spell', 'last']);
});

test('skipped steps have the reason, and the steps that ran instead of others are named', () => {
  const g = graph(node({ node: 1, fallback_of: 'exact' }), node({ node: 2, share: { step: 'price', kind: 'canary', alternative: 'b', share: 0.1, succeeded: 1, failed: 0, mean_ns: 1 } }));
  const t = trace({
    spans: [step({ model: 'rough', node: 1, ready_ns: 5, done_ns: 6 }), step({ model: 'b', node: 2, ready_ns: 7, done_ns: 8 })],
    events: [
      { kind: 'step_skipped', ns: 9, node: 3, reason: "'look' did not run: a[0] < 0.9 holds for no row" }, { kind: 'step_skipped', ns: 9, node: 2, reason: "'b' did not run: x holds for no row" },
      { kind: 'step_fault', ns: 4, node: 0, reason: "an attempt of 'exact' failed" }, { kind: 'step_fault', ns: 5, node: 0, reason: "'exact' failed, its fallback 'rough' runs: it hangs" },
      { kind: 'step_routed', ns: 7, node: 4, reason: "'price' was executed by 'b', which has 10% of the requests" },
    ],
  });
  const list = rows(t, g);
  expect(list.map((r) => [r.label, r.role, r.skipped])).toEqual([
    ['e', '', undefined], ['rough', 'fallback of exact', undefined], ['b', 'canary of price', undefined], ['look', 'skipped', 'a[0] < 0.9 holds for no row'],
  ]);
  expect(decided(t)).toEqual(["'exact' failed, its fallback 'rough' runs: it hangs", "'price' was executed by 'b', which has 10% of the requests"]);
});
