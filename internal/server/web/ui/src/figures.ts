// Figures of edges, refusals and GPUs as people read them.
import type { EdgeView, GPUView, ModelView, NodeView } from './api';
import { bytes } from './format';

/** carriedRate is how many bytes per second pass an edge; where that is not counted, those that are copied. */
export const carriedRate = (e: EdgeView, copied: number): number => (e.carried?.length ? e.carried.reduce((n, c) => n + c.rate, 0) : copied);

/** carriedText says what passes an edge by place. */
export const carriedText = (e: EdgeView): string => (e.carried ?? []).map((c) => `, ${bytes(c.rate)}/s ${c.place === 'device' ? 'at the device' : `in ${c.place} memory`}`).join('');

/** copiesText says how often an edge's tensors were copied, by direction. */
export const copiesText = (e: EdgeView): string => (e.made ?? []).map((c) => `${c.direction.replaceAll('_', ' ')} ${c.copies} × ${bytes(c.copies ? c.bytes / c.copies : 0)}`).join(', ');

/** gpuNote says what else is known of a GPU. */
export const gpuNote = (g: GPUView): string => [
  g.memory_used_bytes !== null && g.memory_total_bytes !== null ? `${bytes(g.memory_used_bytes)} of ${bytes(g.memory_total_bytes)}` : '',
  g.power_watts !== null ? `${Math.round(g.power_watts)} W` : '',
].filter(Boolean).join(', ');

/** refusals lists the refusals of an ensemble and of the models of its steps, the most frequent first. */
export function refusals(m: ModelView, nodes: NodeView[]): { at: string; reason: string; rate: number }[] {
  const list = Object.entries(m.refused ?? {}).map(([reason, rate]) => ({ at: 'on arrival', reason, rate }));
  const seen = new Set([`${m.name} ${m.version}`]);
  for (const n of nodes) {
    const key = `${n.model} ${n.version}`;
    if (!n.live || seen.has(key)) continue;
    seen.add(key);
    list.push(...Object.entries(n.live.refused ?? {}).map(([reason, rate]) => ({ at: n.model, reason, rate })));
  }
  return list.sort((a, b) => b.rate - a.rate || a.at.localeCompare(b.at) || a.reason.localeCompare(b.reason));
}
