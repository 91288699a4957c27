// Where the nodes and edges of a plan are drawn.
import dagre from '@dagrejs/dagre';
import type { EdgeView, GraphView, NodeView } from './api';
import { framed, sizeOf } from './flow';
import { shorten } from './format';
import { textWidth } from './measure';

export const endWidth = 84;
export const endHeight = 40;

export interface Point { x: number; y: number }
export interface PlacedNode { id: number; x: number; y: number; width: number; height: number }
/** PlacedEdge is all tensors that go from one node to another, with the middle of its label. */
export interface PlacedEdge { from: number; to: number; edges: EdgeView[]; points: Point[]; name: string; label: Point }
/** PlacedFrame is drawn around the steps inside of a fan-out, which node begin divides. */
export interface PlacedFrame { begin: number; depth: number; x: number; y: number; width: number; height: number }
export interface Layout { width: number; height: number; nodes: PlacedNode[]; edges: PlacedEdge[]; frames: PlacedFrame[] }

/** The nodes that stand for the request and the answer; an edge's -1 is either. */
export const request = -1;
export const answer = -2;

/** ends returns the nodes of an edge. */
export const ends = (e: EdgeView): [number, number] => [e.from < 0 ? request : e.from, e.to < 0 ? answer : e.to];

/** What a label takes: its name above what passes per second. */
const fontSize = 11, labelHeight = 30, labelRoom = 8;
const longestName = 13, longestRate = '9.99 MB/s';

/** labelName is the name on an edge: its tensor's, or how many there are. */
export const labelName = (list: EdgeView[]): string => (list.length > 1 ? `${list.length} tensors` : shorten(list[0]?.tensor ?? '', longestName));

/** labelSize is the room that a label takes, whatever its figures become. */
export const labelSize = (name: string): { width: number; height: number } =>
  ({ width: Math.ceil(Math.max(textWidth(name, fontSize), textWidth(longestRate, fontSize))) + labelRoom, height: labelHeight });

/** layout places a plan from left to right, or from top to bottom. */
export function layout(g: GraphView, down: boolean): Layout {
  const frames = framed(g.nodes), d = new dagre.graphlib.Graph({ multigraph: false, compound: frames.length > 0 });
  d.setGraph({ rankdir: down ? 'TB' : 'LR', nodesep: down ? 24 : 28, ranksep: down ? 40 : 36, edgesep: 14, marginx: 16, marginy: 16 });
  d.setDefaultEdgeLabel(() => ({}));
  for (const f of frames) d.setNode(frameKey(f.begin), {});
  for (const f of frames) if (f.around !== undefined) d.setParent(frameKey(f.begin), frameKey(f.around));
  for (const n of g.nodes) {
    d.setNode(String(n.node), sizeOf(n));
    const inner = n.within?.at(-1);
    if (inner !== undefined) d.setParent(String(n.node), frameKey(inner));
  }
  const groups = new Map<string, EdgeView[]>();
  for (const e of g.edges) {
    const [from, to] = ends(e);
    for (const id of [from, to]) if (id < 0 && !d.hasNode(String(id))) d.setNode(String(id), { width: endWidth, height: endHeight });
    const key = `${from} ${to}`;
    const list = groups.get(key);
    if (list) list.push(e);
    else groups.set(key, [e]);
  }
  for (const [key, list] of groups) {
    const [from, to] = key.split(' ') as [string, string];
    d.setEdge(from, to, { ...labelSize(labelName(list)), labelpos: 'c' });
  }
  dagre.layout(d);
  const nodes = d.nodes().filter((id: string) => !isFrame(id)).map((id: string) => {
    const n = d.node(id) as PlacedNode;
    return { id: Number(id), x: n.x, y: n.y, width: n.width, height: n.height };
  });
  const edges = [...groups].map(([key, list]) => {
    const [from, to] = key.split(' ').map(Number) as [number, number];
    const { points, x, y } = d.edge(String(from), String(to)) as { points: Point[] } & Point;
    const name = labelName(list);
    return { from, to, edges: list, points: straight(points, { x, y }, labelSize(name), down), name, label: { x, y } };
  });
  attach(nodes, edges, down);
  const size = d.graph() as { width?: number; height?: number };
  return { width: Math.max(size.width ?? 0, 1), height: Math.max(size.height ?? 0, 1), nodes, edges, frames: around(g.nodes, nodes, frames, edges) };
}

const frameKey = (begin: number): string => `frame ${begin}`;
const isFrame = (id: string): boolean => id.startsWith('frame ');

/** around measures frames by what is inside, the outermost first. */
function around(views: NodeView[], nodes: PlacedNode[], frames: { begin: number; depth: number }[], edges: PlacedEdge[]): PlacedFrame[] {
  const within = new Map(views.map((n) => [n.node, n.within ?? []]));
  const deepest = Math.max(0, ...frames.map((f) => f.depth));
  return frames.map(({ begin, depth }) => {
    const inside = (id: number) => within.get(id)?.includes(begin) ?? false;
    const boxes = [
      ...nodes.filter((n) => inside(n.id)),
      ...edges.filter((e) => inside(e.from) && inside(e.to)).map((e) => ({ ...e.label, ...labelSize(e.name) })),
    ];
    const pad = frameSide + (deepest - depth) * 8;
    const left = Math.min(...boxes.map((b) => b.x - b.width / 2)) - pad, right = Math.max(...boxes.map((b) => b.x + b.width / 2)) + pad;
    const top = Math.min(...boxes.map((b) => b.y - b.height / 2)) - pad - frameText, bottom = Math.max(...boxes.map((b) => b.y + b.height / 2)) + pad;
    return { begin, depth, x: left, y: top, width: right - left, height: bottom - top };
  });
}

/** The room in a frame beside what is inside, and for its text. */
const frameSide = 10, frameText = 14;

/** straight has a line pass its label in the direction of the plan, so that it bends beside the text. */
function straight(p: Point[], label: Point, size: { width: number; height: number }, down: boolean): Point[] {
  const near = p.findIndex((x) => Math.abs(x.x - label.x) < 1 && Math.abs(x.y - label.y) < 1);
  if (near <= 0 || near === p.length - 1) return p;
  const dx = down ? 0 : size.width / 2, dy = down ? size.height / 2 : 0;
  return [...p.slice(0, near), { x: label.x - dx, y: label.y - dy }, { x: label.x + dx, y: label.y + dy }, ...p.slice(near + 1)];
}

/** attach has edges leave nodes at the side where the plan goes on and come in at the other one, beside each other in the order of their labels. */
function attach(nodes: PlacedNode[], edges: PlacedEdge[], down: boolean): void {
  const rank = (n: PlacedNode) => Math.round(down ? n.y : n.x), extent = (n: PlacedNode) => (down ? n.height : n.width) / 2;
  const farthest = new Map<number, number>();
  for (const n of nodes) farthest.set(rank(n), Math.max(farthest.get(rank(n)) ?? 0, extent(n)));
  const reach = (n: PlacedNode) => farthest.get(rank(n)) ?? extent(n);
  const across = (e: PlacedEdge) => (down ? e.label.x : e.label.y);
  for (const n of nodes) {
    for (const out of [true, false]) {
      const own = edges.filter((e) => (out ? e.from : e.to) === n.id).sort((a, b) => across(a) - across(b));
      own.forEach((e, i) => {
        const off = ((i + 1) / (own.length + 1) - 0.5) * 0.7, side = out ? 0.5 : -0.5;
        const p = down ? { x: n.x + off * n.width, y: n.y + side * n.height } : { x: n.x + side * n.width, y: n.y + off * n.height };
        e.points[out ? 0 : e.points.length - 1] = p;
        // Past the larger nodes of its rank an edge is straight: it would bend below them.
        const clear = down ? { x: p.x, y: n.y + 2 * side * reach(n) } : { x: n.x + 2 * side * reach(n), y: p.y };
        if (clear.x !== p.x || clear.y !== p.y) e.points.splice(out ? 1 : -1, 0, clear);
      });
    }
  }
}

/** curve draws a smooth line through points, which passes each of them in the direction of the plan. */
export function curve(p: Point[], down: boolean): string {
  const first = p[0];
  if (!first) return '';
  let s = `M${at(first)}`;
  for (let i = 1; i < p.length; i++) {
    const a = p[i - 1]!, b = p[i]!, x = (a.x + b.x) / 2, y = (a.y + b.y) / 2;
    s += down ? `C${at({ x: a.x, y })} ${at({ x: b.x, y })} ${at(b)}` : `C${at({ x, y: a.y })} ${at({ x, y: b.y })} ${at(b)}`;
  }
  return s;
}

const at = (p: Point): string => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
