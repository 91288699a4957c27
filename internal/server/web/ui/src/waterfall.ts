// What a trace's waterfall is made of.
import type { EventView, StepView, TraceView } from './api';

/** Segment is a part of a row; kind names its colour. */
export interface Segment { kind: string; from: number; to: number; title: string }
export interface Row { key: string; label: string; step: StepView | null; segments: Segment[]; events: EventView[]; from: number; to: number }

const phases: [string, string, string][] = [
  ['receive', 'HTTP_RECV_START', 'HTTP_RECV_END'],
  ['receive', 'GRPC_WAITREAD_START', 'GRPC_WAITREAD_END'],
  ['encode', 'HTTP_SEND_START', 'HTTP_SEND_END'],
  ['encode', 'GRPC_SEND_START', 'GRPC_SEND_END'],
];

/** rows makes the request's own row and one for each step, in the order in which they began. */
export function rows(t: TraceView): Row[] {
  const own: Segment[] = [{ kind: 'scheduler', from: 0, to: t.duration_ns, title: 'request' }];
  const at = new Map(t.moments.map((m) => [m.name, m.ns]));
  for (const [kind, a, b] of phases) {
    const from = at.get(a), to = at.get(b);
    if (from !== undefined && to !== undefined) own.push({ kind, from, to, title: kind === 'receive' ? 'receive and decode' : 'encode and send' });
  }
  const list: Row[] = [{
    key: 'request', label: t.model, step: null, segments: own, events: t.events.filter((e) => e.node < 0), from: 0, to: t.duration_ns,
  }];
  for (const [i, s] of t.spans.entries()) {
    const events = t.events.filter((e) => e.node === s.node);
    const segments = (s.critical && partSegments(t, s)) || stepSegments(s, events);
    const [from, to] = bounds(s, segments);
    list.push({ key: `${i}`, label: s.model, step: s, segments, events, from, to });
  }
  return [list[0]!, ...list.slice(1).sort((a, b) => a.from - b.from || a.to - b.to)];
}

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
  deadline: 'deadline passed', wave: 'sub-run', report: 'reported by the model', spill: 'spill to slower memory', model_load: 'evicted model loaded again',
  rows_chosen: 'condition', step_skipped: 'step skipped', fan_out: 'fan-out', step_fault: 'fault', step_routed: 'route', step_shadow: 'shadow',
};
