import { expect, test } from 'vitest';
import type { EdgeView, GraphView, ModelView, NodeView } from './api';
import { ensembles, isEnd, mini, slowest } from './mini';
import { windowOf } from './parts/virtual';

const model = (name: string, v: Partial<ModelView> = {}): ModelView => ({
  name, version: '1', state: 'READY', platform: 'ensemble', ensemble: true, rate: 0, error_rate: 0, p50_ns: 0, p99_ns: 0, queue: 0, batch_rows: 0,
  queue_ns: 0, compute_ns: 0, requests: 0, failures: 0, copied_bytes: 0, rates: [], ...v,
});
const node = (n: number, live: Partial<ModelView> | null): NodeView => ({
  node: n, name: `n${n}`, model: `n${n}`, version: 1, platform: '', places: [], lost: [], site: 'host', ensembles: [], stream: 0, max_inflight: 0, max_batch: 1, instances: 1, in_flight: 0,
  live: live && model(`n${n}`, live),
});
const edge = (from: number, to: number): EdgeView => ({ from, to, tensor: 't', input: 't', datatype: 'FP32', shape: [1], at: 'host', why: '', copied_bytes: 0, copies: 0, made: [], carried: [] });

test('a small graph has each step once, from left to right', () => {
  const g: GraphView = { model: 'e', version: 1, nodes: [0, 1, 2].map((n) => node(n, null)), edges: [edge(-1, 0), edge(0, 1), edge(0, 1), edge(0, 2), edge(1, -1), edge(2, -1)] };
  const l = mini(g), at = new Map(l.nodes.map((n) => [n.id, n]));
  expect(l.nodes.filter((n) => !isEnd(n.id)).map((n) => n.id).sort()).toEqual([0, 1, 2]);
  expect(l.edges).toHaveLength(5);
  for (const e of l.edges) expect(at.get(e.from)!.x).toBeLessThan(at.get(e.to)!.x);
});

test('the bottleneck is the step that takes longest of those that serve requests', () => {
  expect(slowest([node(0, { rate: 1, queue_ns: 10, compute_ns: 20 }), node(1, { rate: 1, queue_ns: 60, compute_ns: 10 }), node(2, { rate: 0, queue_ns: 900 }), node(3, null)]))
    .toEqual({ node: 1, name: 'n1', ns: 70, share: 0.7 });
  expect(slowest([node(0, null)])).toBeNull();
});

test('ensembles are listed once each, as filtered and ordered', () => {
  const list = [model('b', { rate: 5 }), model('a', { version: '1' }), model('a', { version: '3', state: 'UNAVAILABLE' }), model('a', { version: '2', rate: 1 }), model('plain', { ensemble: false })];
  expect(ensembles(list, '', 'name').map((m) => `${m.name} ${m.version}`)).toEqual(['a 2', 'b 1']);
  expect(ensembles(list, '', 'rate').map((m) => m.name)).toEqual(['b', 'a']);
  expect(ensembles(list, ' B', 'errors').map((m) => m.name)).toEqual(['b']);
});

test('only the rows that are seen exist', () => {
  expect(windowOf(0, 900, 100, 1000, 1)).toEqual([0, 10]);
  expect(windowOf(50_000, 900, 100, 1000, 1)).toEqual([499, 510]);
  expect(windowOf(1e9, 900, 100, 1000, 1)).toEqual([1000, 1000]);
  expect(windowOf(-500, 900, 100, 3, 1)).toEqual([0, 3]);
});
