// How long requests took over time; a cell leads to its traces.
import { useMemo, useState } from 'preact/hooks';
import type { TraceSummary } from '../api';
import { heat, low, type Heat } from '../bins';
import { clock, dur, plural } from '../format';
import { memo, useWidth } from './bits';

const left = 56, below = 20, laneHeight = 22;

type Cell = Heat['cells'][number];

/** cellQuery is what asks for the traces of a cell. */
export function cellQuery(h: Heat, c: Cell): Record<string, number> {
  return {
    from_us: h.from + c.column * h.width, to_us: h.from + (c.column + 1) * h.width - 1,
    min_ns: Math.floor(low(c.lane)), max_ns: Math.ceil(low(c.lane + 1)),
  };
}

export const HeatMap = memo(({ list, pick }: { list: TraceSummary[]; pick: (v: Record<string, number>) => void }) => {
  const [box, width] = useWidth<HTMLDivElement>();
  const columns = Math.max(10, Math.min(72, Math.floor((width - left) / 11)));
  const h = useMemo(() => heat(list, columns), [list, columns]);
  const [at, setAt] = useState<number>(-1);
  const cells = useMemo(() => [...(h?.cells ?? [])].sort((a, b) => a.column - b.column || a.lane - b.lane), [h]);
  if (!h) return null;
  const w = Math.max(1, (width - left) / h.columns);
  const height = h.lanes * laneHeight;
  const y = (lane: number) => height - (lane - h.lowest + 1) * laneHeight;
  const title = (c: Cell) => `${clock(h.from + c.column * h.width)}, ${dur(low(c.lane))} to ${dur(low(c.lane + 1))}: ${plural(c.count, 'trace')}${c.failed ? `, ${c.failed} failed` : ''}`;
  const chosen = cells[at];
  return (
    <div class="heat" ref={box}>
      <svg width={width || 1} height={height + below} role="group" tabindex={0}
        aria-label="Heat map of durations over time: left and right arrow keys go from cell to cell, enter shows its traces"
        onKeyDown={(e) => {
          if (e.key === 'ArrowRight') setAt((n) => Math.min(cells.length - 1, n + 1));
          else if (e.key === 'ArrowLeft') setAt((n) => Math.max(0, n - 1));
          else if (e.key === 'Enter' && chosen) pick(cellQuery(h, chosen));
          else return;
          e.preventDefault();
        }}>
        {Array.from({ length: h.lanes }, (_, i) => h.lowest + i).filter((l) => l % 4 === 0 || h.lanes < 5).map((l) => (
          <g key={l}><line class="rule" x1={left} x2={width} y1={y(l) + laneHeight} y2={y(l) + laneHeight} />
            <text x={left - 6} y={y(l) + laneHeight - 2} text-anchor="end">{dur(low(l))}</text></g>
        ))}
        {cells.map((c, i) => (
          <rect key={c.column * 1000 + c.lane} class={`cell${c.failed * 2 >= c.count ? ' wrong' : ''}${i === at ? ' at' : ''}`}
            x={left + c.column * w + 0.5} y={y(c.lane) + 0.5} width={Math.max(1, w - 1)} height={laneHeight - 1} rx="2"
            fill-opacity={0.22 + 0.78 * (Math.log(1 + c.count) / Math.log(1 + h.most))} onClick={() => pick(cellQuery(h, c))}>
            <title>{title(c)}</title>
          </rect>
        ))}
        <text x={left} y={height + 15}>{clock(h.from).slice(0, 8)}</text>
        <text x={width} y={height + 15} text-anchor="end">{clock(h.to).slice(0, 8)}</text>
      </svg>
      <div class="sr" role="status">{chosen ? title(chosen) : ''}</div>
    </div>
  );
});
