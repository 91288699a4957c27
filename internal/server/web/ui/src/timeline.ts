// What ran on each instance when: where batches are drawn, and how one goes from one to the next.
import type { RunView, TimelineView } from './api';

/** endOf is when a run ended, in nanoseconds since the begin of the view. */
export const endOf = (r: RunView): number => r.start_ns + r.input_ns + r.infer_ns + r.output_ns;

/** Lane is an instance with its runs in rows: those of an instance that executes several batches at once are below each other. */
export interface Lane { at: number; rows: RunView[][] }

/** lanesOf puts runs, which are in the order of their begin, into the rows of n lanes. Lanes without runs are left out. */
export function lanesOf(runs: RunView[], n: number): Lane[] {
  const lanes: Lane[] = Array.from({ length: n }, (_, at) => ({ at, rows: [] }));
  for (const r of runs) {
    const rows = lanes[r.lane]?.rows;
    if (!rows) continue;
    const free = rows.find((row) => endOf(row.at(-1)!) <= r.start_ns);
    if (free) free.push(r);
    else rows.push([r]);
  }
  return lanes.filter((l) => l.rows.length > 0);
}

/** Bar is a run as it is drawn, or several that are too small to be told apart. */
export interface Bar { x: number; width: number; runs: RunView[] }

const least = 1, apart = 0.8; // pixels: the narrowest bar, and the narrowest gap that is drawn

/** bars places the runs of a row in so many pixels for an interval of nanoseconds. Runs that are narrower than a pixel join their neighbours. */
export function bars(row: RunView[], from: number, to: number, width: number): Bar[] {
  const scale = width / Math.max(1, to - from), list: Bar[] = [];
  for (const r of row) {
    const left = Math.max(0, (r.start_ns - from) * scale), right = Math.min(width, (endOf(r) - from) * scale);
    if (right < 0 || left > width) continue;
    const last = list.at(-1), own = Math.max(least, right - left);
    if (last && left - (last.x + last.width) < apart && (own < 3 || last.runs.length > 1 || last.width < 3) && own < 12) {
      last.width = Math.max(last.width, left + own - last.x);
      last.runs.push(r);
    } else list.push({ x: left, width: own, runs: [r] });
  }
  return list;
}

/** step goes from a run to another one: the next, the one before, the first or the last on its instance, or the one nearest in time on the next instance. */
export function step(lanes: Lane[], at: RunView | null, key: 'left' | 'right' | 'up' | 'down' | 'first' | 'last'): RunView | null {
  const all = lanes.map((l) => l.rows.flat().sort((a, b) => a.start_ns - b.start_ns || a.id - b.id));
  const lane = lanes.findIndex((l) => l.at === at?.lane);
  if (!at || lane < 0) return (key === 'up' ? all.at(-1) : all[0])?.[0] ?? null;
  if (key === 'first' || key === 'last') return all[lane]!.at(key === 'first' ? 0 : -1)!;
  if (key === 'left' || key === 'right') {
    const own = all[lane]!, i = own.findIndex((r) => r.id === at.id) + (key === 'left' ? -1 : 1);
    return own[i] ?? at;
  }
  const next = all[lane + (key === 'up' ? -1 : 1)];
  if (!next) return at;
  return next.reduce((best, r) => (Math.abs(r.start_ns - at.start_ns) < Math.abs(best.start_ns - at.start_ns) ? r : best));
}

/** Interval is a part of time in microseconds since 1970. */
export interface Interval { from: number; to: number }

export const shortest = 20, longest = 3600e6;

/** zoomed is an interval scaled around a moment, in whole microseconds. */
export function zoomed(v: Interval, factor: number, around = (v.from + v.to) / 2): Interval {
  const span = Math.min(longest, Math.max(shortest, Math.round((v.to - v.from) * factor)));
  const from = Math.max(0, Math.round(around - ((around - v.from) / (v.to - v.from)) * span));
  return { from, to: from + span };
}

/** moved is an interval a part of its length later. */
export const moved = (v: Interval, part: number): Interval => {
  const by = Math.max(-v.from, Math.round((v.to - v.from) * part));
  return { from: v.from + by, to: v.to + by };
};

/** covers reports whether a view has all that is known of an interval. */
export const covers = (v: TimelineView, i: Interval): boolean => v.from_us <= i.from && v.to_us >= i.to;

/** cut is the part of a view in an interval. Its share stays that of the whole view. */
export function cut(v: TimelineView, i: Interval): TimelineView {
  const shift = (i.from - v.from_us) * 1000, span = (i.to - i.from) * 1000;
  const runs = v.runs.filter((r) => endOf(r) >= shift && r.start_ns - shift <= span).map((r) => ({ ...r, start_ns: r.start_ns - shift }));
  return { ...v, from_us: i.from, to_us: i.to, runs };
}
