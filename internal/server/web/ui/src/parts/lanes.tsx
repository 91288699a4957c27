// The timeline of instances: a lane for each, a bar for each batch.
import { useMemo, useRef, useState } from 'preact/hooks';
import type { LaneView, RunView, TimelineView } from '../api';
import { clock, dur, plural, shorten } from '../format';
import { textWidth } from '../measure';
import { useSeen } from '../seen';
import { bars, endOf, lanesOf, moved, step, zoomed, type Bar, type Interval, type Lane } from '../timeline';
import { ticks } from '../waterfall';
import { useWidth } from './bits';

const rowHeight = 20, axis = 24, between = 8, narrow = 620, beyond = 200;

/** laneName is the text of a lane. */
export const laneName = (l: LaneView): string => `${l.model} #${l.instance}${l.place === 'host' ? '' : ` on ${l.place}`}`;

/** runText says all about a run in a sentence. */
export const runText = (r: RunView, l: LaneView, from: number): string =>
  `batch ${r.id} of ${laneName(l)}, version ${l.version}: ${plural(r.rows, 'row')} of ${plural(r.members, 'request')}, ${dur(endOf(r) - r.start_ns)} from ${clock(from + r.start_ns / 1000)}${r.failed ? ', failed' : ''}`;

interface Placed extends Lane { y: number; height: number }

export const Lanes = ({ v, at, choose, open, show, of }: {
  v: TimelineView; at: RunView | null; choose: (r: RunView) => void; open: (r: RunView) => void; show: (i: Interval | null) => void; of: Set<number> | null;
}) => {
  const [box, width] = useWidth<HTMLDivElement>();
  const small = width < narrow, left = small ? 0 : 190, room = Math.max(1, width - left), head = small ? 16 : 0;
  const lanes = useMemo(() => lanesOf(v.runs, v.lanes.length), [v]);
  const placed = useMemo(() => {
    let y = axis;
    return lanes.map((l): Placed => {
      const height = head + l.rows.length * rowHeight + between, at = y;
      y += height;
      return { ...l, y: at, height };
    });
  }, [lanes, head]);
  const last = placed.at(-1), height = last ? last.y + last.height : axis + rowHeight;
  const [top, seen] = useSeen(box);
  const span = (v.to_us - v.from_us) * 1000, x = (ns: number) => left + (ns / span) * room;
  const moment = (px: number) => v.from_us + Math.max(0, Math.min(1, (px - left) / room)) * (v.to_us - v.from_us);
  const svg = useRef<SVGSVGElement>(null);
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const px = (e: PointerEvent) => e.clientX - (svg.current?.getBoundingClientRect().left ?? 0);
  const now: Interval = { from: v.from_us, to: v.to_us };
  const keys: Record<string, () => void> = {
    '+': () => show(zoomed(now, 0.5, at ? v.from_us + at.start_ns / 1000 : undefined)), '=': () => keys['+']!(), '-': () => show(zoomed(now, 2)),
    PageUp: () => show(moved(now, -0.5)), PageDown: () => show(moved(now, 0.5)), '0': () => show(null),
    Enter: () => { if (at) open(at); },
  };
  for (const [key, way] of [['ArrowLeft', 'left'], ['ArrowRight', 'right'], ['ArrowUp', 'up'], ['ArrowDown', 'down'], ['Home', 'first'], ['End', 'last']] as const) {
    keys[key] = () => { const next = step(lanes, at, way); if (next) choose(next); };
  }
  const press = (b: Bar) => {
    const [first, end] = [b.runs[0]!, b.runs.at(-1)!];
    if (b.runs.length === 1) choose(first);
    else show(zoomed({ from: Math.floor(v.from_us + first.start_ns / 1000), to: Math.ceil(v.from_us + endOf(end) / 1000) }, 1.2));
  };
  const chosen = at && v.lanes[at.lane];
  return (
    <div class="lanes" ref={box}>
      <svg ref={svg} width={width || 1} height={height} role="group" tabindex={0}
        aria-label="Timeline of instances: arrow keys go from batch to batch, home and end to the first and last of an instance, enter opens one, plus and minus scale the time, page up and page down move it, 0 shows the present"
        onKeyDown={(e) => { const f = keys[e.key]; if (f && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); f(); } }}
        onPointerDown={(e) => { if (e.button === 0 && e.pointerType !== 'touch' && px(e) >= left) setBrush([px(e), px(e)]); }}
        onPointerMove={(e) => {
          if (!brush || e.buttons === 0) return;
          if (Math.abs(px(e) - brush[0]) > 4 && !svg.current?.hasPointerCapture(e.pointerId)) svg.current?.setPointerCapture(e.pointerId);
          setBrush([brush[0], px(e)]);
        }}
        onPointerUp={() => {
          if (brush && Math.abs(brush[1] - brush[0]) > 6) show(zoomed({ from: Math.floor(moment(Math.min(...brush))), to: Math.ceil(moment(Math.max(...brush))) }, 1));
          setBrush(null);
        }}
        onPointerCancel={() => setBrush(null)}>
        {ticks(span, small ? 3 : 8).map((ns) => (
          <g key={ns}>
            <line class="rule" x1={x(ns)} x2={x(ns)} y1={axis - 6} y2={height} />
            {x(ns) + 60 < width && <text x={x(ns) + 3} y={12}>{ns === 0 ? clock(v.from_us) : `+${dur(ns)}`}</text>}
          </g>
        ))}
        {placed.filter((l) => l.y + l.height > top - beyond && l.y < top + seen + beyond).map((l) => (
          <LaneRow key={laneName(v.lanes[l.at]!)} l={l} v={v} left={left} room={room} head={head} span={span} at={at} of={of} press={press} />
        ))}
        {brush && <rect class="brush" x={Math.min(...brush)} width={Math.abs(brush[1] - brush[0])} y={axis - 6} height={height - axis + 6} />}
      </svg>
      <div class="sr" role="status">{at && chosen ? runText(at, chosen, v.from_us) : ''}</div>
    </div>
  );
};

const LaneRow = ({ l, v, left, room, head, span, at, of, press }: {
  l: Placed; v: TimelineView; left: number; room: number; head: number; span: number; at: RunView | null; of: Set<number> | null; press: (b: Bar) => void;
}) => {
  const view = v.lanes[l.at]!, name = laneName(view), fits = left > 0 ? left - 12 : room;
  const text = textWidth(name, 12) > fits ? shorten(name, Math.floor(fits / 7)) : name;
  return (
    <g transform={`translate(0 ${l.y})`}>
      <text class="lane" x={left > 0 ? left - 8 : 2} y={left > 0 ? rowHeight / 2 + 4 : 11} text-anchor={left > 0 ? 'end' : 'start'}>{text}<title>{name}, version {view.version}</title></text>
      <line class="rule" x1={left} x2={left + room} y1={l.height - between / 2} y2={l.height - between / 2} />
      {l.rows.map((row, i) => bars(row, 0, span, room).map((b) => {
        const [r, ...more] = b.runs;
        return <Run key={r!.id} b={b} x={left + b.x} y={head + i * rowHeight} title={more.length ? `${plural(b.runs.length, 'batch', 'batches')}: press to enlarge` : runText(r!, view, v.from_us)}
          class={`${b.runs.some((o) => o.failed) ? ' failed' : ''}${at && b.runs.some((o) => o.id === at.id) ? ' at' : ''}${of ? (b.runs.some((o) => of.has(o.id)) ? ' of' : ' other') : ''}`} press={press} />;
      }))}
    </g>
  );
};

/** Run is a bar: the phases of a batch where it is wide enough, else one colour. */
const Run = ({ b, x, y, title, class: c, press }: { b: Bar; x: number; y: number; title: string; class: string; press: (b: Bar) => void }) => {
  const r = b.runs[0]!, all = Math.max(1, endOf(r) - r.start_ns), h = rowHeight - 4;
  const parts = b.runs.length === 1 && b.width > 8
    ? ([['copies', r.input_ns], ['compute', r.infer_ns], ['encode', r.output_ns]] as const).map(([kind, ns]) => ({ kind, width: (ns / all) * b.width })) : [];
  let from = x;
  return (
    <g class={`run${b.runs.length > 1 ? ' several' : ''}${c}`} onClick={() => press(b)}>
      <title>{title}</title>
      {parts.length === 0 ? <rect class="fill compute" x={x} y={y} width={b.width} height={h} /> : parts.map((p) => {
        const at = from;
        from += p.width;
        return p.width > 0.1 && <rect key={p.kind} class={`fill ${p.kind}`} x={at} y={y} width={p.width} height={h} />;
      })}
      <rect class="border" x={x} y={y} width={b.width} height={h} rx="1.5" />
      {parts.length > 0 && b.width > textWidth(String(r.rows), 11) + 10 && <text x={x + b.width / 2} y={y + 12} text-anchor="middle">{r.rows}</text>}
    </g>
  );
};
