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
    const segments = (s.critical && partSegments(t, s)) || stepSegments(s);
    const [from, to] = bounds(s, segments);
    list.push({ key: `${i}`, label: s.model, step: s, segments, events: t.events.filter((e) => e.node === s.node), from, to });
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

/** stepSegments splits a step; what took no time is left out. */
export function stepSegments(s: StepView): Segment[] {
  const list: Segment[] = [];
  const add = (kind: string, from: number, to: number, title: string) => {
    if (to > from && from >= 0) list.push({ kind, from, to, title });
  };
  const ready = s.ready_ns || s.enqueued_ns;
  if (s.cached) add('cache', ready, s.done_ns, 'response from the cache');
  else if (s.batch === 0) add('queue', ready, s.done_ns, 'waiting');
  else {
    add('scheduler', ready, s.enqueued_ns, 'dispatch');
    const waits = s.before > 0 || s.members > 1;
    add(waits ? 'queue' : 'scheduler', Math.max(s.enqueued_ns, ready), s.start_ns, waits ? 'queue and batch formation' : 'waiting for its turn');
    add('copies', s.start_ns, s.input_end_ns, 'input');
    const kind = s.native ? 'native' : 'compute';
    const padded = s.elements > 0 ? s.padding / s.elements : 0;
    const cut = s.infer_end_ns - Math.round((s.infer_end_ns - s.input_end_ns) * padded);
    add(kind, s.input_end_ns, cut, s.native ? 'native step' : 'compute');
    add('padding', cut, s.infer_end_ns, 'computing the padding');
    add('copies', s.infer_end_ns, s.end_ns, 'output');
    add('scheduler', s.end_ns, s.done_ns, 'pass on');
  }
  return list;
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
