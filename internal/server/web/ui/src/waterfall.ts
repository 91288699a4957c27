// What a trace's waterfall is made of.
import type { EventView, GraphView, NodeView, StepView, TraceView } from './api';
import { roleOf } from './flow';
import { dur, plural } from './format';

/** Segment is a part of a row; kind names its colour. */
export interface Segment { kind: string; from: number; to: number; title: string }
export interface Row {
  key: string; label: string; step: StepView | null; segments: Segment[]; events: EventView[]; from: number; to: number;
  /** Why the step ran or did not: "fallback of exact", "5 items in 2 groups", "skipped". */
  role: string;
  /** The fan-outs around it. */
  depth: number;
  /** The executions of a step inside of a fan-out, one for each group of items. */
  runs: StepView[];
  /** The reason for which the step was skipped. */
  skipped?: string;
  /** When the step, or the response, was expected as the request arrived. */
  predicted?: number;
}

const phases: [string, string, string][] = [
  ['receive', 'HTTP_RECV_START', 'HTTP_RECV_END'],
  ['receive', 'GRPC_WAITREAD_START', 'GRPC_WAITREAD_END'],
  ['encode', 'HTTP_SEND_START', 'HTTP_SEND_END'],
  ['encode', 'GRPC_SEND_START', 'GRPC_SEND_END'],
];

/** rows makes the request's own row and one for each step, in the order in which they began. The steps inside of a fan-out follow its row. */
export function rows(t: TraceView, g: GraphView | null = null): Row[] {
  const own: Segment[] = [{ kind: 'scheduler', from: 0, to: t.duration_ns, title: 'request' }];
  const at = new Map(t.moments.map((m) => [m.name, m.ns]));
  for (const [kind, a, b] of phases) {
    const from = at.get(a), to = at.get(b);
    if (from !== undefined && to !== undefined) own.push({ kind, from, to, title: kind === 'receive' ? 'receive and decode' : 'encode and send' });
  }
  const first: Row = {
    key: 'request', label: t.model, step: null, segments: own, events: t.events.filter((e) => e.node < 0), from: 0, to: t.duration_ns, role: '', depth: 0, runs: [],
    ...(t.due?.predicted_ns ? { predicted: t.due.predicted_ns } : {}),
  };
  const nodes = new Map((g?.nodes ?? []).map((n) => [n.node, n]));
  const list = [...steps(t, nodes), ...skips(t, nodes)];
  list.push(...forecasts(t, list));
  return [first, ...nest(list, fans(t, nodes, list), nodes)];
}

/** steps makes the rows of executions: one for each, inside of fan-outs one for all groups of items. */
function steps(t: TraceView, nodes: Map<number, NodeView>): Row[] {
  const list: Row[] = [], inside = new Map<number, Row>();
  for (const [i, s] of t.spans.entries()) {
    const n = nodes.get(s.node), depth = n?.within?.length ?? 0;
    const events = t.events.filter((e) => e.node === s.node);
    const segments = (s.critical && partSegments(t, s)) || stepSegments(s, events);
    const [from, to] = bounds(s, segments), before = depth > 0 ? inside.get(s.node) : undefined;
    if (before) {
      before.segments.push(...segments);
      before.runs.push(s);
      before.from = Math.min(before.from, from);
      before.to = Math.max(before.to, to);
      if (s.critical && !before.step?.critical) before.step = s;
      continue;
    }
    const row: Row = { key: `${i}`, label: s.model, step: s, segments, events, from, to, role: n ? roleOf(n) : '', depth, runs: depth > 0 ? [s] : [] };
    if (depth > 0) inside.set(s.node, row);
    list.push(row);
  }
  for (const r of inside.values()) r.role = [r.role, itemsText(r.runs)].filter(Boolean).join(' · ');
  return list;
}

/** itemsText says for how many items a step ran, and in how many groups. */
const itemsText = (runs: StepView[]): string => `${plural(runs.reduce((n, s) => n + s.rows, 0), 'item')}${runs.length > 1 ? ` in ${runs.length} groups` : ''}`;

/** The events of conditions and fan-outs, as the server writes them. */
const skipText = /^'(.+?)' did not run: (.*)$/s, fanText = /divided (\d+) rows into (\d+) items, in (\d+) groups/;

/** skips makes a row for each step that did not run at all. */
function skips(t: TraceView, nodes: Map<number, NodeView>): Row[] {
  const ran = new Set(t.spans.map((s) => s.node)), list = new Map<number, Row>();
  for (const e of t.events) {
    if (e.kind !== 'step_skipped' || ran.has(e.node) || list.has(e.node)) continue;
    const [, name, why] = skipText.exec(e.reason ?? '') ?? [];
    list.set(e.node, {
      key: `skipped ${e.node}`, label: name ?? nodes.get(e.node)?.name ?? `step ${e.node}`, step: null, segments: [], events: [e], from: e.ns, to: e.ns,
      role: 'skipped', depth: nodes.get(e.node)?.within?.length ?? 0, runs: [], skipped: why ?? e.reason ?? '',
    });
  }
  return [...list.values()];
}

/** forecasts puts the predictions into the rows of the steps, and makes a row for each step that was predicted and did not run. */
function forecasts(t: TraceView, list: Row[]): Row[] {
  const made: Row[] = [];
  for (const f of t.due?.steps ?? []) {
    const row = list.find((r) => (r.step?.node ?? r.events[0]?.node) === f.node);
    if (row) { row.predicted = f.predicted_ns; continue; }
    const events = t.events.filter((e) => e.node === f.node);
    made.push({ key: `predicted ${f.node}`, label: f.step, step: null, segments: [], events, from: f.predicted_ns, to: f.predicted_ns, role: 'did not run', depth: 0, runs: [], predicted: f.predicted_ns });
  }
  return made;
}

/** gap says how far an end is from its prediction. */
export const gap = (predicted: number, end: number): string => (end > predicted ? `${dur(end - predicted)} later` : `${dur(predicted - end)} earlier`);

/** fans makes a row for each fan-out, over the time of the steps inside. */
function fans(t: TraceView, nodes: Map<number, NodeView>, list: Row[]): Map<number, Row> {
  const made = new Map<number, Row>();
  for (const e of t.events) {
    const n = e.kind === 'fan_out' ? nodes.get(e.node) : undefined;
    if (!n) continue;
    const inside = list.filter((r) => r.step && nodes.get(r.step.node)?.within?.includes(n.node));
    const row = made.get(n.node) ?? {
      key: `fan-out ${n.node}`, label: n.name, step: null, segments: [], events: [], from: Math.min(e.ns, ...inside.map((r) => r.from)), to: Math.max(e.ns, ...inside.map((r) => r.to)),
      role: '', depth: n.within?.length ?? 0, runs: [],
    };
    row.events.push(e);
    made.set(n.node, row);
  }
  for (const r of made.values()) {
    let items = 0, groups = 0;
    for (const e of r.events) {
      const [, , i, n] = fanText.exec(e.reason ?? '') ?? [];
      items += Number(i ?? 0);
      groups += Number(n ?? 0);
    }
    r.role = `${plural(items, 'item')} in ${plural(groups, 'group')}`;
    r.segments = [{ kind: 'fan', from: r.from, to: r.to, title: r.role }];
  }
  return made;
}

/** nest puts the rows inside of each fan-out behind its own, in the order in which they began. */
function nest(list: Row[], made: Map<number, Row>, nodes: Map<number, NodeView>): Row[] {
  const nodeOf = (r: Row): number => r.step?.node ?? r.events[0]?.node ?? -1;
  const around = (r: Row): number | undefined => nodes.get(nodeOf(r))?.within?.findLast((at) => made.has(at));
  const under = (begin: number | undefined): Row[] => [...list, ...made.values()].filter((r) => around(r) === begin)
    .sort((a, b) => a.from - b.from || a.to - b.to)
    .flatMap((r) => (r.key.startsWith('fan-out') ? [r, ...under(nodeOf(r))] : [r]));
  return under(undefined);
}

/** decided are the events that say which way a request took, each text once. Of failures it is what took the place of the step. */
export const decided = (t: TraceView): string[] => [...new Set(t.events
  .filter((e) => ['rows_chosen', 'fan_out', 'step_routed'].includes(e.kind) || (e.kind === 'step_fault' && /^'.+' failed, its /s.test(e.reason ?? '')))
  .map((e) => e.reason ?? ''))].filter(Boolean);

/** partSegments are the parts of the request's time that a step on the critical path took, null when they are unknown. */
export function partSegments(t: TraceView, s: StepView): Segment[] | null {
  const list = t.split.filter((p) => p.ns > 0 && p.node === s.node && p.model === s.model && p.start_ns >= s.ready_ns && p.start_ns + p.ns <= s.done_ns);
  return list.length ? list.map((p) => ({ kind: p.kind, from: p.start_ns, to: p.start_ns + p.ns, title: p.text })) : null;
}

/** bounds are when a step began and ended, from what it reached. */
function bounds(s: StepView, segments: Segment[]): [number, number] {
  const from = segments[0]?.from ?? s.ready_ns;
  return [from, Math.max(from, segments.at(-1)?.to ?? 0, s.done_ns)];
}

/** stepSegments splits a step; what took no time is left out. The times of a step at a device are the device's where they are known. */
export function stepSegments(s: StepView, events: EventView[] = []): Segment[] {
  const list: Segment[] = [];
  const add = (kind: string, from: number, to: number, title: string) => {
    if (to > from && from >= 0) list.push({ kind, from, to, title });
  };
  const ready = s.ready_ns || s.enqueued_ns;
  const load = events.find((e) => e.kind === 'model_load' && e.ns >= ready && e.ns <= (s.batch > 0 ? s.enqueued_ns : s.done_ns));
  const loaded = load ? load.ns + (load.duration_ns ?? 0) : ready;
  if (load) {
    add('scheduler', ready, load.ns, 'dispatch');
    add('model_load', load.ns, loaded, eventNames['model_load']!);
  }
  if (s.cached) add('cache', loaded, s.done_ns, 'response from the cache');
  else if (s.batch === 0) add('queue', loaded, s.done_ns, 'waiting');
  else {
    add('scheduler', loaded, s.enqueued_ns, 'dispatch');
    const waits = s.before > 0 || s.members > 1;
    add(waits ? 'queue' : 'scheduler', Math.max(s.enqueued_ns, ready), s.start_ns, waits ? 'queue and batch formation' : 'waiting for its turn');
    if (s.device_end_ns) atDevice(s, s.device_start_ns ?? 0, s.device_end_ns, add);
    else atHost(s, add);
  }
  return list;
}

type Add = (kind: string, from: number, to: number, title: string) => void;

/** compute adds the time of the model, with its padding apart. */
function compute(s: StepView, from: number, to: number, title: string, add: Add): void {
  const padded = s.elements > 0 ? s.padding / s.elements : 0;
  const cut = to - Math.round((to - from) * padded);
  add(s.native ? 'native' : 'compute', from, cut, title);
  add('padding', cut, to, 'computing the padding');
}

function atHost(s: StepView, add: Add): void {
  add('copies', s.start_ns, s.input_end_ns, 'input');
  compute(s, s.input_end_ns, s.infer_end_ns, s.native ? 'native step' : 'compute', add);
  add('copies', s.infer_end_ns, s.end_ns, 'output');
  add('scheduler', s.end_ns, s.done_ns, 'pass on');
}

/** atDevice splits a step that the host only put into the stream of a device, which executed it from start to end. */
function atDevice(s: StepView, start: number, end: number, add: Add): void {
  const put = Math.min(s.end_ns, start);
  add('scheduler', s.start_ns, put, `putting it into the stream of ${s.place}`);
  add('queue', put, start, `waiting in the stream of ${s.place}`);
  compute(s, start, end, `executing on ${s.place}`, add);
  add('scheduler', end, s.done_ns, 'pass on');
}

/** totals adds up the parts of each kind, the largest first. */
export function totals(parts: { kind: string; ns: number }[]): { kind: string; ns: number }[] {
  const sums = new Map<string, number>();
  for (const p of parts) sums.set(p.kind, (sums.get(p.kind) ?? 0) + p.ns);
  return [...sums].map(([kind, ns]) => ({ kind, ns })).filter((p) => p.ns > 0).sort((a, b) => b.ns - a.ns);
}

/** ticks are round values from 0 to max, about n of them. */
export function ticks(max: number, n: number): number[] {
  if (!(max > 0) || n < 1) return [0];
  const raw = max / n, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= raw) ?? 10);
  return Array.from({ length: Math.floor(max / step) + 1 }, (_, i) => i * step);
}

/** kinds are the parts of a request's time with what they are, in the order of its way. */
export const kinds: Record<string, string> = {
  receive: 'Receive and decode',
  limit: 'In-flight limit',
  model_load: 'Loading the model again',
  queue: 'Queue',
  mates: 'Waiting for the batch',
  copies: 'Copies',
  padding: 'Padding',
  compute: 'Compute',
  native: 'Native steps',
  cache: 'Cache',
  scheduler: 'Scheduler',
  encode: 'Encode and send',
};

/** eventNames are the events of a request as the pages write them. */
export const eventNames: Record<string, string> = {
  copy: 'copy', cache_hit: 'found in the cache', cache_miss: 'not in the cache', refused: 'refused', cancelled: 'client disconnected',
  deadline: 'deadline passed or out of reach', wave: 'sub-run', report: 'reported by the model', spill: 'spill to slower memory', model_load: 'evicted model loaded again',
  rows_chosen: 'condition', step_skipped: 'step skipped', fan_out: 'fan-out', step_fault: 'fault', step_routed: 'route', step_shadow: 'shadow',
};
