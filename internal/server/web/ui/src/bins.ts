// Heat map and histogram of durations.
import type { TraceSummary } from './api';

/** perDecade is how many classes of duration are between 1 and 10. */
const perDecade = 4;

/** lane returns the class of a duration, low its lower bound. */
export const lane = (ns: number): number => Math.floor(Math.log10(Math.max(ns, 1)) * perDecade + 1e-9);
export const low = (l: number): number => 10 ** (l / perDecade);

export interface Heat {
  from: number; to: number; width: number; columns: number;
  lowest: number; lanes: number; most: number;
  cells: { column: number; lane: number; count: number; failed: number }[];
}

/** heat counts traces by when they began and how long they took. */
export function heat(list: TraceSummary[], columns: number): Heat | null {
  if (!list.length) return null;
  let from = Infinity, to = -Infinity, lowest = Infinity, highest = -Infinity;
  for (const t of list) {
    from = Math.min(from, t.start_us); to = Math.max(to, t.start_us);
    const l = lane(t.duration_ns);
    lowest = Math.min(lowest, l); highest = Math.max(highest, l);
  }
  const width = Math.max(1, Math.ceil((to - from + 1) / columns));
  const cells = new Map<number, { column: number; lane: number; count: number; failed: number }>();
  let most = 0;
  for (const t of list) {
    const column = Math.floor((t.start_us - from) / width), l = lane(t.duration_ns);
    const key = column * 1000 + l;
    const c = cells.get(key) ?? { column, lane: l, count: 0, failed: 0 };
    cells.set(key, c);
    c.count++;
    if (t.status !== 'ok') c.failed++;
    most = Math.max(most, c.count);
  }
  return { from, to: from + width * columns, width, columns, lowest, lanes: highest - lowest + 1, most, cells: [...cells.values()] };
}

export interface Bin { lane: number; count: number; failed: number }

/** histogram counts traces by how long they took, gaps included. */
export function histogram(list: TraceSummary[]): Bin[] {
  if (!list.length) return [];
  const bins = new Map<number, Bin>();
  for (const t of list) {
    const l = lane(t.duration_ns);
    const b = bins.get(l) ?? { lane: l, count: 0, failed: 0 };
    bins.set(l, b);
    b.count++;
    if (t.status !== 'ok') b.failed++;
  }
  const all = [...bins.keys()], first = Math.min(...all), last = Math.max(...all);
  return Array.from({ length: last - first + 1 }, (_, i) => bins.get(first + i) ?? { lane: first + i, count: 0, failed: 0 });
}

/** quantile returns the duration that a share of the traces does not exceed. */
export function quantile(sorted: number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))] ?? 0;
}
