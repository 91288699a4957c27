// Many graphs at a glance: small pictures of plans, and which step takes longest.
import dagre from '@dagrejs/dagre';
import type { GraphView, ModelView, NodeView } from './api';
import { answer, curve, ends, request } from './layout';

export interface MiniNode { id: number; x: number; y: number; width: number; height: number }
export interface MiniEdge { from: number; to: number; path: string }
export interface Mini { width: number; height: number; nodes: MiniNode[]; edges: MiniEdge[] }

const nodeWidth = 34, nodeHeight = 18, dot = 8;

/** mini places a plan from left to right without any text. */
export function mini(g: GraphView): Mini {
  const d = new dagre.graphlib.Graph();
  d.setGraph({ rankdir: 'LR', nodesep: 8, ranksep: 20, edgesep: 4, marginx: 3, marginy: 3 });
  d.setDefaultEdgeLabel(() => ({}));
  for (const n of g.nodes) d.setNode(String(n.node), n.kind ? { width: nodeHeight, height: nodeHeight } : { width: nodeWidth, height: nodeHeight });
  for (const e of g.edges) {
    const [from, to] = ends(e);
    for (const id of [from, to]) if (id < 0 && !d.hasNode(String(id))) d.setNode(String(id), { width: dot, height: dot });
    d.setEdge(String(from), String(to));
  }
  dagre.layout(d);
  const size = d.graph() as { width?: number; height?: number };
  return {
    width: Math.max(size.width ?? 0, 1), height: Math.max(size.height ?? 0, 1),
    nodes: d.nodes().map((id: string) => ({ ...(d.node(id) as MiniNode), id: Number(id) })),
    edges: d.edges().map((e: { v: string; w: string }) => ({
      from: Number(e.v), to: Number(e.w), path: curve((d.edge(e) as { points: { x: number; y: number }[] }).points, false),
    })),
  };
}

/** isEnd tells the request and the response from the steps. */
export const isEnd = (id: number): boolean => id === request || id === answer;

/** Slowest is the step of a plan that takes longest, in its queue and executing, with its share of the time of all steps. */
export interface Slowest { node: number; name: string; ns: number; share: number }

/** slowest returns the bottleneck of a plan that serves requests now, null where nothing is known. */
export function slowest(nodes: NodeView[]): Slowest | null {
  let all = 0, most: Slowest | null = null;
  for (const n of nodes) {
    const ns = n.live && n.live.rate > 0 ? n.live.queue_ns + n.live.compute_ns : 0;
    all += ns;
    if (ns > (most?.ns ?? 0)) most = { node: n.node, name: n.name, ns, share: 0 };
  }
  return most && { ...most, share: most.ns / all };
}

/** withLive puts the latest figures of the models into the nodes. */
export function withLive(g: GraphView, by: Map<string, ModelView>): NodeView[] {
  return g.nodes.map((n) => ({ ...n, live: by.get(`${n.model} ${n.version}`) ?? n.live }));
}

/** byVersion finds the figures of a model by its name and version. */
export const byVersion = (models: ModelView[] | null): Map<string, ModelView> => new Map((models ?? []).map((m) => [`${m.name} ${m.version}`, m]));

export type Order = 'name' | 'rate' | 'errors' | 'p99';

/** ensembles lists the ensembles whose names fit, one entry for each name: its newest version that is ready, or its newest. */
export function ensembles(models: ModelView[], typed: string, order: Order): ModelView[] {
  const by = new Map<string, ModelView>(), wanted = typed.trim().toLowerCase();
  for (const m of models) {
    if (!m.ensemble || !m.name.toLowerCase().includes(wanted)) continue;
    const was = by.get(m.name);
    const better = !was || (m.state === 'READY') > (was.state === 'READY') || ((m.state === 'READY') === (was.state === 'READY') && Number(m.version) > Number(was.version));
    if (better) by.set(m.name, m);
  }
  const figure = { name: () => 0, rate: (m: ModelView) => m.rate, errors: (m: ModelView) => m.error_rate, p99: (m: ModelView) => m.p99_ns }[order];
  return [...by.values()].sort((a, b) => figure(b) - figure(a) || a.name.localeCompare(b.name));
}
