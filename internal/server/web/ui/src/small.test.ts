import { expect, test } from 'vitest';
import { query, type GraphView, type ModelView, type NodeView } from './api';
import { Feed } from './events';
import { carriedRate, carriedText, copiesText, gpuNote, refusals } from './figures';
import { answer, curve, labelSize, layout, request } from './layout';
import { link, parse } from './route';

test('refusals are those of the ensemble and of each model of its steps, once', () => {
  const model = (name: string, refused?: Record<string, number>) => ({ name, version: '1', refused }) as unknown as ModelView;
  const node = (name: string, live: ModelView) => ({ model: name, version: 1, live }) as unknown as NodeView;
  const full = model('full', { queue_full: 5 });
  expect(refusals(model('e', { deadline_predicted: 2 }), [node('full', full), node('full', full), node('idle', model('idle'))])).toEqual([
    { at: 'full', reason: 'queue_full', rate: 5 }, { at: 'on arrival', reason: 'deadline_predicted', rate: 2 },
  ]);
});

test('an address is read as it was written', () => {
  const r = parse(link('traces', 'a/b c', { model: 'x&y', empty: '', n: 3 }));
  expect(r).toEqual({ page: 'traces', arg: 'a/b c', query: { model: 'x&y', n: '3' } });
  expect(parse('')).toEqual({ page: '', arg: '', query: {} });
  expect(parse('#/x/%')).toEqual({ page: 'x', arg: '%', query: {} });
  expect(query({ a: 1, b: '', c: 0, d: undefined })).toBe('?a=1');
});

test('events come whole however they are cut', () => {
  const text = 'event: server\ndata: {"a":1}\n\nevent: trace\ndata: 2\n\n';
  for (const size of [1, 3, 7, 100]) {
    const got: string[] = [];
    const f = new Feed((name, data) => got.push(`${name} ${data}`));
    for (let i = 0; i < text.length; i += size) f.push(text.slice(i, i + size));
    expect(got).toEqual(['server {"a":1}', 'trace 2']);
  }
});

const node = (n: number): NodeView => ({ node: n, name: `n${n}`, model: `n${n}`, version: 1, platform: '', places: [], lost: [], site: 'host', ensembles: [], stream: 0, max_inflight: 0, max_batch: 1, instances: 1, in_flight: 0, live: null });
const edge = (from: number, to: number) => ({ from, to, tensor: 't', input: 't', datatype: 'FP32', shape: [1], at: 'host', why: 'the request brings it', copied_bytes: 0, copies: 0, made: [], carried: [] });

test('a plan is laid out without nodes on each other, its tensors bundled', () => {
  const n = 200;
  const g: GraphView = { model: 'big', version: 1, nodes: Array.from({ length: n }, (_, i) => node(i)), edges: [] };
  for (let i = 0; i < n; i++) g.edges.push(edge(i < 10 ? -1 : i - 10, i), edge(i < 10 ? -1 : i - 10, i));
  for (let i = n - 10; i < n; i++) g.edges.push(edge(i, -1));
  const l = layout(g, false);
  expect(l.nodes).toHaveLength(n + 2);
  expect(l.edges).toHaveLength(n + 10);
  expect(l.edges[0]!.edges).toHaveLength(2);
  expect(l.nodes.filter((x) => x.id === request || x.id === answer)).toHaveLength(2);
  const on = l.nodes.flatMap((a) => l.nodes.filter((b) => a.id < b.id && Math.abs(a.x - b.x) * 2 < a.width + b.width && Math.abs(a.y - b.y) * 2 < a.height + b.height).map((b) => [a.id, b.id]));
  expect(on).toEqual([]);
});

test('the label of an edge has room between the nodes, whichever way the plan goes', () => {
  const g: GraphView = { model: 'm', version: 1, nodes: [node(0), node(1), node(2)], edges: [
    { ...edge(-1, 0), tensor: 'A_VERY_LONG_NAME_OF_A_TENSOR' }, edge(0, 1), { ...edge(0, 2), tensor: 'EMBEDDED' }, edge(1, 2), { ...edge(0, -1), tensor: 'JOINED' }, edge(2, -1),
  ] };
  for (const down of [false, true]) {
    const l = layout(g, down);
    expect(l.edges).toHaveLength(6);
    const boxes = l.edges.map((e) => ({ ...e.label, ...labelSize(e.name) }));
    for (const [i, a] of boxes.entries()) for (const b of [...l.nodes, ...boxes.slice(i + 1)]) {
      expect(Math.abs(a.x - b.x) * 2 >= a.width + b.width || Math.abs(a.y - b.y) * 2 >= a.height + b.height).toBe(true);
    }
    for (const e of l.edges) {
      const from = l.nodes.find((n) => n.id === e.from)!, to = l.nodes.find((n) => n.id === e.to)!;
      if (down) expect([e.points[0]!.y, e.points.at(-1)!.y]).toEqual([from.y + from.height / 2, to.y - to.height / 2]);
      else expect([e.points[0]!.x, e.points.at(-1)!.x]).toEqual([from.x + from.width / 2, to.x - to.width / 2]);
    }
  }
});

test('a curve goes from the first point to the last', () => {
  expect(curve([], false)).toBe('');
  expect(curve([{ x: 0, y: 0 }, { x: 4, y: 6 }], false)).toBe('M0.0 0.0C2.0 0.0 2.0 6.0 4.0 6.0');
  expect(curve([{ x: 0, y: 0 }, { x: 4, y: 6 }], true)).toBe('M0.0 0.0C0.0 3.0 4.0 3.0 4.0 6.0');
  expect(curve([{ x: 0, y: 0 }, { x: 5, y: 5 }, { x: 9, y: 9 }], false)).toMatch(/^M0\.0 0\.0C.* 5\.0 5\.0C.* 9\.0 9\.0$/);
});

test('an edge says what passes it by place', () => {
  const e = { ...edge(0, 1), carried: [{ place: 'host', bytes: 5000, rate: 1000 }, { place: 'device', bytes: 5000, rate: 2000 }] };
  expect(carriedRate(e, 7)).toBe(3000);
  expect(carriedText(e)).toBe(', 1.00 kB/s in host memory, 2.00 kB/s at the device');
  expect(carriedRate(edge(0, 1), 7)).toBe(7);
  expect(copiesText({ ...e, made: [{ direction: 'host_to_device', copies: 2, bytes: 2000 }, { direction: 'peer', copies: 1, bytes: 500 }] })).toBe('host to device 2 × 1.00 kB, peer 1 × 500 B');
});

test('a GPU that does not tell all is still shown', () => {
  expect(gpuNote({ uuid: 'u', utilization: null, memory_total_bytes: 80e9, memory_used_bytes: 2e9, power_watts: null })).toBe('2.00 GB of 80.0 GB');
  expect(gpuNote({ uuid: 'u', utilization: 1, memory_total_bytes: null, memory_used_bytes: null, power_watts: 70.4 })).toBe('70 W');
});
