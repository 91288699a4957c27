import { expect, test } from 'vitest';
import type { EdgeView, GraphView, NodeView } from './api';
import { dashed, figures, framed, nameOf, outline, roleOf, sizeOf } from './flow';
import { layout } from './layout';

const node = (v: Partial<NodeView>): NodeView => ({
  node: 0, name: 'n', model: 'm', version: 1, platform: '', places: [], lost: [], site: 'host', ensembles: [], stream: 0, max_inflight: 0, max_batch: 1, instances: 1, in_flight: 0, live: null, ...v,
});
const edge = (from: number, to: number): EdgeView => ({ from, to, tensor: 't', input: 't', datatype: 'FP32', shape: [1], at: 'host', why: '', copied_bytes: 0, copies: 0, made: [], carried: [] });

test('frames are around the steps inside of fan-outs and around nothing else', () => {
  const nodes = [
    node({ node: 0 }), node({ node: 1, kind: 'fan-out' }), node({ node: 2, within: [1] }), node({ node: 3, kind: 'fan-out', within: [1] }), node({ node: 4, within: [1, 3] }),
    node({ node: 5, kind: 'gather', within: [1] }), node({ node: 6, kind: 'gather' }), node({ node: 7 }), node({ node: 8 }),
  ];
  const g: GraphView = { model: 'e', version: 1, nodes, edges: [[-1, 0], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [0, 7], [7, 8], [8, -1], [6, -1]].map(([a, b]) => edge(a!, b!)) };
  expect(framed(nodes)).toEqual([{ begin: 1, depth: 0 }, { begin: 3, depth: 1, around: 1 }]);
  for (const down of [false, true]) {
    const l = layout(g, down);
    expect(l.nodes).toHaveLength(nodes.length + 2);
    const on = (f: { x: number; y: number; width: number; height: number }) => l.nodes
      .filter((n) => Math.abs(n.x - f.x - f.width / 2) * 2 < n.width + f.width && Math.abs(n.y - f.y - f.height / 2) * 2 < n.height + f.height).map((n) => n.id).sort();
    expect(l.frames.map((f) => on(f))).toEqual([[2, 3, 4, 5], [4]]);
    const [outer, inner] = l.frames;
    expect(inner!.x > outer!.x && inner!.y > outer!.y && inner!.x + inner!.width < outer!.x + outer!.width && inner!.y + inner!.height < outer!.y + outer!.height).toBe(true);
  }
  expect(layout({ ...g, nodes: nodes.map((n) => ({ ...n, within: [] })) }, false).frames).toEqual([]);
});

test('nodes that decide have their counts', () => {
  const rows = node({ kind: 'condition', rows: { step: 'look', held: 30, failed: 70 } });
  expect(figures(rows)).toMatchObject({ left: '30', unit: ' rows ran', right: '70 did not', sub: 'condition of look', bar: [{ kind: 'took', share: 0.3 }, { kind: 'passed', share: 0.7 }] });
  expect(figures(node({ kind: 'condition', rows: { step: 'look', held: 0, failed: 0 } }))).toMatchObject({ bar: [], note: 'no rows yet' });
  expect(figures(node({ kind: 'fan-out', items: { divided: 4, items: 10, groups: 6 } }))).toMatchObject({ left: '2.50', unit: ' items a request', note: 'in 1.50 groups, of 4 requests' });
  expect(figures(node({ kind: 'fan-out', within: [1], items: { divided: 4, items: 10, groups: 6 } }))).toMatchObject({ unit: ' items a group' });
  const share = { step: 'price', kind: 'canary', alternative: 'new', share: 0.25, succeeded: 9, failed: 1, mean_ns: 5 };
  expect(figures(node({ kind: 'route', share }))).toMatchObject({ left: '25.0 %', right: '10 requests', bad: true, sub: 'canary of price', note: '1 failed' });
  expect([nameOf(node({ kind: 'route', share })), roleOf(node({ share })), roleOf(node({ fallback_of: 'exact' })), roleOf(node({}))]).toEqual(['new', 'canary of price', 'fallback of exact', '']);
  expect(figures(node({ kind: 'shadow', shadow: { step: 'price', model: 'new', share: 1, equal: 6, different: 2, failed: 0, dropped: 3 } })))
    .toMatchObject({ left: '2', right: '8 copies', bad: true, sub: 'shadow of price', note: '3 dropped' });
  expect([figures(node({})), figures(node({ kind: 'join' }))]).toEqual([null, null]);
});

test('what runs beside the usual way is dashed, and kinds have shapes of their own', () => {
  const by = new Map([node({ node: 0 }), node({ node: 1, fallback_of: 'n' }), node({ node: 2, kind: 'shadow' }), node({ node: 3 })].map((n) => [n.node, n]));
  expect([edge(0, 1), edge(1, 3), edge(0, 2), edge(0, 3), edge(-1, 0)].map((e) => dashed(e, (id) => by.get(id)))).toEqual([true, true, true, false, false]);
  const shapes = ['condition', 'fan-out', 'gather', 'window', 'stream join'].map((k) => outline(k, 200, 80));
  expect(new Set(shapes).size).toBe(5);
  expect([outline(undefined, 200, 96), outline('join', 150, 50)]).toEqual([null, null]);
  expect([sizeOf(node({})), sizeOf(node({ kind: 'condition' })), sizeOf(node({ kind: 'window' }))].map((s) => s.height)).toEqual([96, 82, 50]);
});
