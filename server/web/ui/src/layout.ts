// Where the nodes and edges of a plan are drawn.
import dagre from '@dagrejs/dagre';
import type { EdgeView, GraphView } from './api';

export const nodeWidth = 200;
export const nodeHeight = 96;
export const endWidth = 84;
export const endHeight = 40;

export interface Point { x: number; y: number }
export interface PlacedNode { id: number; x: number; y: number; width: number; height: number }
/** PlacedEdge is all tensors that go from one node to another. */
export interface PlacedEdge { from: number; to: number; edges: EdgeView[]; points: Point[]; label: Point }
export interface Layout { width: number; height: number; nodes: PlacedNode[]; edges: PlacedEdge[] }

/** The nodes that stand for the request and the answer; an edge's -1 is either. */
export const request = -1;
export const answer = -2;

/** ends returns the nodes of an edge. */
export const ends = (e: EdgeView): [number, number] => [e.from < 0 ? request : e.from, e.to < 0 ? answer : e.to];

/** layout places a plan from left to right, or from top to bottom. */
export function layout(g: GraphView, down: boolean): Layout {
  const d = new dagre.graphlib.Graph({ multigraph: false });
  d.setGraph({ rankdir: down ? 'TB' : 'LR', nodesep: down ? 24 : 28, ranksep: down ? 56 : 68, marginx: 16, marginy: 16 });
  d.setDefaultEdgeLabel(() => ({}));
  for (const n of g.nodes) d.setNode(String(n.node), { width: nodeWidth, height: nodeHeight });
  const groups = new Map<string, EdgeView[]>();
  for (const e of g.edges) {
    const [from, to] = ends(e);
    for (const id of [from, to]) if (id < 0 && !d.hasNode(String(id))) d.setNode(String(id), { width: endWidth, height: endHeight });
    const key = `${from} ${to}`;
    const list = groups.get(key);
    if (list) list.push(e);
    else {
      groups.set(key, [e]);
      d.setEdge(String(from), String(to));
    }
  }
  dagre.layout(d);
  const nodes = d.nodes().map((id: string) => {
    const n = d.node(id) as PlacedNode;
    return { id: Number(id), x: n.x, y: n.y, width: n.width, height: n.height };
  });
  const edges = [...groups].map(([key, list]) => {
    const [from, to] = key.split(' ').map(Number) as [number, number];
    const points = (d.edge(String(from), String(to)) as { points: Point[] }).points;
    return { from, to, edges: list, points, label: points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 } };
  });
  const size = d.graph() as { width?: number; height?: number };
  return { width: Math.max(size.width ?? 0, 1), height: Math.max(size.height ?? 0, 1), nodes, edges };
}

/** curve draws a smooth line through points. */
export function curve(p: Point[]): string {
  const first = p[0];
  if (!first) return '';
  let s = `M${at(first)}`;
  for (let i = 1; i < p.length - 1; i++) {
    const a = p[i]!, b = p[i + 1]!;
    const end = i === p.length - 2 ? b : { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    s += `Q${at(a)} ${at(end)}`;
  }
  if (p.length === 2) s += `L${at(p[1]!)}`;
  return s;
}

const at = (p: Point): string => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
