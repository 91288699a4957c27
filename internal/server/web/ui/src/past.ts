// Figures of the past: ranges of time, and their series as charts draw them.
import { api, type HistoryView, type Values } from './api';
import { usePolled } from './poll';

/** Range is a length of time that people choose; a chart of it has at most so many steps. */
export interface Range { key: string; label: string; title: string; seconds: number; steps: number }

const minute = 60, hour = 3600, day = 86400;

export const ranges: Range[] = [
  { key: 'live', label: 'live', title: 'the last minute, second by second', seconds: 0, steps: 0 },
  { key: '15m', label: '15 min', title: 'the last 15 minutes', seconds: 15 * minute, steps: 90 },
  { key: '1h', label: '1 h', title: 'the last hour', seconds: hour, steps: 180 },
  { key: '6h', label: '6 h', title: 'the last 6 hours', seconds: 6 * hour, steps: 180 },
  { key: '1d', label: '1 d', title: 'the last day', seconds: day, steps: 288 },
  { key: '7d', label: '7 d', title: 'the last 7 days', seconds: 7 * day, steps: 336 },
];

/** rangeOf is the range that an address names, 15 minutes by default. */
export const rangeOf = (key: string | undefined): Range => ranges.find((r) => r.key === key) ?? ranges[1]!;

/** available says whether a server has more of a range than of the one before it: beyond an hour it needs a data folder. */
export const available = (r: Range, v: HistoryView | null): boolean => r.seconds <= hour || v === null || v.stored;

/** times are the starts of the steps, in seconds since 1970. */
export const times = (v: HistoryView): number[] => Array.from({ length: v.steps }, (_, i) => (v.from_us + i * v.step_us) / 1e6);

/** nothing says that no step of a series has anything. */
export const nothing = (s: Values): boolean => s.every((v) => !v);

/** usePast reads the history of a range, of one model or of the server, again every 10 seconds while it is seen. */
export const usePast = (range: Range, model = '') =>
  usePolled<HistoryView | null>(() => (range.seconds ? api.history(range.seconds, range.steps, model) : Promise.resolve(null)), [range.key, model],
    () => (range.seconds === 0 ? 0 : range.seconds > hour ? 60_000 : 10_000));
