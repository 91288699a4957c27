// Series over time, drawn by uPlot.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { themeNow, useTheme } from '../theme';
import { useWidth } from './bits';

export interface Series { label: string; values: (number | null)[]; color: string; fill?: boolean; dash?: boolean; /** optional: not drawn while it is zero */ optional?: boolean }

// Times of day with 24 hours, and dates as ISO 8601 writes them: [at least seconds between ticks, text, then what is added in a new year, month, day, hour, minute, second, mode].
const ticks = [
  [86400, '{YYYY}-{MM}-{DD}', null, null, null, null, null, null, 1],
  [60, '{HH}:{mm}', '\n{YYYY}-{MM}-{DD}', null, '\n{YYYY}-{MM}-{DD}', null, null, null, 1],
  [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1],
];

/** last is the last value that is known. */
export const last = (values: (number | null)[]): number | null => values.findLast((v) => v !== null) ?? null;

const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** few says that a line of a series would not be seen. */
const few = (s: Series): boolean => s.values.filter((v) => v !== null).length < 3;

/** Chart draws series over common moments, seconds since 1970. */
export const Chart = ({ at, series, write, label, height = 168, range }: {
  range?: [number, number]; at: number[]; series: Series[]; write: (v: number) => string; label: string; height?: number;
}) => {
  const [box, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const shape = series.map((s) => `${s.label}|${s.color}|${few(s)}`).join('\n');
  const data = [at, ...series.map((s) => s.values)] as uPlot.AlignedData;
  const bounds = useRef(range);
  bounds.current = range;
  useEffect(() => {
    if (!box.current || width === 0) return;
    const axis = { stroke: css('--dim'), grid: { stroke: css('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    plot.current = new uPlot({
      width, height, cursor: { y: false, points: { size: 6 } }, legend: { show: false },
      scales: { x: { range: (_u, min, max) => bounds.current ?? [Math.min(min, max - 59), max] }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, space: 74, size: 40, values: ticks as uPlot.Axis.Values }, { ...axis, size: 58, space: 32, values: (_u, v) => v.map(write) }],
      series: [{}, ...series.map((s) => ({
        label: s.label, stroke: css(s.color), width: 1.5, points: { show: few(s), size: 5 }, ...(s.dash ? { dash: [4, 4] } : {}),
        ...(s.fill ? { fill: `color-mix(in srgb, ${css(s.color)} 14%, transparent)` } : {}),
      }))],
    }, data, box.current);
    return () => { plot.current?.destroy(); plot.current = null; };
  }, [shape, width, height, theme, themeNow()]);
  useEffect(() => { plot.current?.setData(data); });
  return (
    <figure class="chart" aria-label={label}>
      <div ref={box} style={{ height: `${height}px` }} aria-hidden="true" />
      <figcaption>
        {series.map((s) => <span key={s.label}><i style={{ background: `var(${s.color})` }} />{s.label} <b>{last(s.values) === null ? '–' : write(last(s.values)!)}</b></span>)}
      </figcaption>
    </figure>
  );
};
