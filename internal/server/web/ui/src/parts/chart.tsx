// Series over time, drawn by uPlot.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { themeNow, useTheme } from '../theme';
import { useWidth } from './bits';

export interface Series { label: string; values: (number | null)[]; color: string; fill?: boolean }

const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Chart draws series over common moments, seconds since 1970. */
export const Chart = ({ at, series, write, label, height = 168 }: {
  at: number[]; series: Series[]; write: (v: number) => string; label: string; height?: number;
}) => {
  const [box, width] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const shape = series.map((s) => `${s.label}|${s.color}`).join('\n');
  const data = [at, ...series.map((s) => s.values)] as uPlot.AlignedData;
  useEffect(() => {
    if (!box.current || width === 0) return;
    const axis = { stroke: css('--dim'), grid: { stroke: css('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    plot.current = new uPlot({
      width, height, cursor: { y: false, points: { size: 6 } }, legend: { show: false },
      scales: { x: { range: (_u, min, max) => [Math.min(min, max - 59), max] }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, space: 70 }, { ...axis, size: 58, space: 32, values: (_u, v) => v.map(write) }],
      series: [{}, ...series.map((s) => ({
        label: s.label, stroke: css(s.color), width: 1.5, points: { show: false },
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
        {series.map((s) => <span key={s.label}><i style={{ background: `var(${s.color})` }} />{s.label} <b>{write(s.values.at(-1) ?? 0)}</b></span>)}
      </figcaption>
    </figure>
  );
};
