// The graph of a plan, which can be moved and scaled.
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { EdgeView, GraphView, NodeView } from '../api';
import { bytes, count, dur, shape, shorten } from '../format';
import { carriedRate, carriedText, copiesText } from '../figures';
import { dashed, figures, inset, nameOf, outline, roleOf } from '../flow';
import { curve, ends, layout, request, type Layout, type PlacedEdge, type PlacedFrame, type PlacedNode } from '../layout';
import { memo, useWidth } from './bits';

interface View { x: number; y: number; scale: number }

const least = 0.08, most = 2.5;
const bound = (v: number): number => Math.min(most, Math.max(least, v));

/** fit is the view in which all is seen, never enlarged. */
export function fit(l: { width: number; height: number }, width: number, height: number): View {
  const scale = bound(Math.min(1, width / l.width, height / l.height));
  return { x: (width - l.width * scale) / 2, y: (height - l.height * scale) / 2, scale };
}

const narrow = 560, tallest = 900;

/** best is the layout from left to right, or from top to bottom where the page is narrow or a long plan is larger that way. */
export function best(g: GraphView, width: number): { l: Layout; down: boolean } {
  const down = width > 0 && width < narrow, l = layout(g, down);
  const scale = width / l.width;
  if (down || width === 0 || scale > 0.55 || g.nodes.length > 60) return { l, down };
  const other = layout(g, true);
  return fit(other, width, tallest).scale > scale * 1.25 ? { l: other, down: true } : { l, down };
}

/** structure changes when the plan does, and not with its figures. */
const structure = (g: GraphView): string => g.nodes.map((n) => `${n.node}${n.kind ?? ''}${n.within?.join('/') ?? ''}`).join() + g.edges.map((e) => `${e.from}>${e.to}`).join();

export const Graph = ({ g, nodes, rates, chosen, choose }: {
  g: GraphView; nodes: NodeView[]; rates: number[]; chosen: number | null; choose: (n: number | null) => void;
}) => {
  const [box, width] = useWidth<HTMLDivElement>();
  const key = structure(g);
  const { l, down } = useMemo(() => best(g, width), [key, width < narrow, Math.round(width / 50)]);
  const height = Math.round(Math.max(340, Math.min(down && width >= narrow ? tallest : 560, l.height * Math.min(1, (width || 1) / l.width) + 40)));
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const refit = () => setView(fit(l, width, height));
  useEffect(() => { if (width > 0) refit(); }, [l, width, height]);
  const zoom = (factor: number, cx = width / 2, cy = height / 2) => setView((v) => {
    const scale = bound(v.scale * factor), f = scale / v.scale;
    return { x: cx - (cx - v.x) * f, y: cy - (cy - v.y) * f, scale };
  });
  const svg = useRef<SVGSVGElement>(null);
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  useEffect(() => {
    const e = svg.current;
    if (!e) return;
    const wheel = (w: WheelEvent) => {
      if (!w.ctrlKey && !w.metaKey && !w.altKey) return;
      w.preventDefault();
      const r = e.getBoundingClientRect();
      zoom(Math.exp(-w.deltaY / 300), w.clientX - r.left, w.clientY - r.top);
    };
    e.addEventListener('wheel', wheel, { passive: false });
    return () => e.removeEventListener('wheel', wheel);
  }, []);
  const now = useRef({ chosen, choose });
  now.current = { chosen, choose };
  const pick = useCallback((id: number) => {
    if (!drag.current?.moved) now.current.choose(id === now.current.chosen ? null : id);
  }, []);
  const byNode = new Map(nodes.map((n) => [n.node, n]));
  const byPair = useMemo(() => {
    const pairs = new Map<string, { list: EdgeView[]; rate: number }>();
    g.edges.forEach((e, i) => {
      const k = ends(e).join(' '), p = pairs.get(k) ?? { list: [], rate: 0 };
      p.list.push(e);
      p.rate += carriedRate(e, rates[i] ?? 0);
      pairs.set(k, p);
    });
    return pairs;
  }, [g, rates]);
  const key2 = (e: KeyboardEvent) => {
    const step = 60, moves: Record<string, [number, number]> = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    const m = moves[e.key];
    if (m) setView((v) => ({ ...v, x: v.x + m[0], y: v.y + m[1] }));
    else if (e.key === '+' || e.key === '=') zoom(1.25);
    else if (e.key === '-') zoom(0.8);
    else if (e.key === '0') refit();
    else if (e.key === 'Escape') choose(null);
    else return;
    e.preventDefault();
  };
  return (
    <div class="graph" ref={box}>
      <div class="zoom">
        <button type="button" aria-label="Larger" onClick={() => zoom(1.25)}>+</button>
        <button type="button" aria-label="Smaller" onClick={() => zoom(0.8)}>−</button>
        <button type="button" onClick={refit}>fit</button>
      </div>
      <svg ref={svg} width={width || 1} height={height} class={view.scale < 0.45 ? 'far' : ''} role="group" tabindex={0} onKeyDown={key2}
        aria-label={`Graph of ${g.model}: arrow keys move it, plus and minus scale it, 0 fits it`}
        onPointerDown={(e) => { drag.current = { x: e.clientX, y: e.clientY, moved: false }; }}
        onPointerMove={(e) => {
          const d = drag.current;
          if (!d || e.buttons === 0) return;
          const dx = e.clientX - d.x, dy = e.clientY - d.y;
          if (!d.moved && Math.hypot(dx, dy) < 4) return;
          if (!d.moved) svg.current?.setPointerCapture(e.pointerId);
          drag.current = { x: e.clientX, y: e.clientY, moved: true };
          setView((v) => ({ ...v, x: v.x + dx, y: v.y + dy }));
        }}
        onPointerUp={() => { const d = drag.current; setTimeout(() => { if (drag.current === d) drag.current = null; }); }}>
        <defs>
          {['host', 'pinned', 'device', 'copied'].map((k) => (
            <marker key={k} id={`arrow-${k}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">
              <path class={`arrow ${k}`} d="M0 0.5L7.5 4L0 7.5z" />
            </marker>
          ))}
        </defs>
        <g transform={`translate(${view.x.toFixed(1)} ${view.y.toFixed(1)}) scale(${view.scale.toFixed(4)})`}>
          {l.frames.map((f) => <Frame key={f.begin} f={f} n={byNode.get(f.begin)} />)}
          {l.edges.map((e) => {
            const now = byPair.get(`${e.from} ${e.to}`), from = byNode.get(e.from);
            const failures = e.edges.some((x) => x.tensor === 'on failure') ? from?.fault?.used : undefined;
            return <Edge key={`${e.from} ${e.to}`} e={e} list={now?.list ?? e.edges} rate={now?.rate ?? 0} site={from?.site ?? 'host'} down={down}
              dashes={e.edges.every((x) => dashed(x, (id) => byNode.get(id)))} note={failures === undefined ? '' : `${count(failures)} ${failures === 1 ? 'time' : 'times'}`} />;
          })}
          {l.nodes.map((p) => p.id < 0
            ? <End key={p.id} p={p} />
            : <Node key={p.id} p={p} n={byNode.get(p.id)!} chosen={p.id === chosen} choose={pick} ran={ranInstead(nodes, byNode.get(p.id)!)} />)}
        </g>
      </svg>
    </div>
  );
};

/** ranInstead says how often a fallback took the place of its step; '' for other nodes. */
const ranInstead = (nodes: NodeView[], n: NodeView): string => {
  const of = n.fallback_of && nodes.find((x) => x.name === n.fallback_of);
  return of && of.fault ? `ran ${count(of.fault.used)} ${of.fault.used === 1 ? 'time' : 'times'}` : '';
};

/** Frame is around the steps inside of a fan-out. */
const Frame = ({ f, n }: { f: PlacedFrame; n: NodeView | undefined }) => {
  const v = n?.items;
  return (
    <g class="frame">
      <title>{n && v ? `${n.name}: ${v.items} items in ${v.groups} groups of equal shape, of ${v.divided} ${f.depth > 0 ? 'groups' : 'requests'}` : ''}</title>
      <rect x={f.x} y={f.y} width={f.width} height={f.height} rx="12" />
      <text x={f.x + 12} y={f.y + 16}>{n ? `for ${shorten(n.name, 34)}` : ''}</text>
    </g>
  );
};

const End = ({ p }: { p: PlacedNode }) => (
  <g class="end" transform={`translate(${p.x - p.width / 2} ${p.y - p.height / 2})`}>
    <rect width={p.width} height={p.height} rx={p.height / 2} />
    <text x={p.width / 2} y={p.height / 2 + 4.5} text-anchor="middle">{p.id === request ? 'request' : 'response'}</text>
  </g>
);

/** placeKind is how an edge is coloured: where its tensors lie, or that they are copied. */
export function placeKind(list: EdgeView[], site: string): 'copied' | 'host' | 'pinned' | 'device' {
  if (list.some((e) => e.place)) return 'copied';
  if (/pinned/i.test(site)) return 'pinned';
  return /host|^$/i.test(site) ? 'host' : 'device';
}

const Edge = memo(({ e, list, site, rate, down, dashes, note }: {
  e: PlacedEdge; list: EdgeView[]; site: string; rate: number; down: boolean; dashes: boolean; note: string;
}) => {
  const kind = placeKind(list, site);
  const title = list.map((x) => `${x.tensor} ${x.datatype} ${shape(x.shape)} at ${x.at}: ${x.why}${x.copy ? `\ncopy ${x.copy}` : ''}${carriedText(x)}${x.made?.length ? `\n${copiesText(x)}` : ''}`).join('\n');
  return (
    <g class={`edge ${kind}${dashes ? ' dashes' : ''}`}>
      <title>{title}</title>
      <path d={curve(e.points, down)} marker-end={`url(#arrow-${kind})`} style={{ strokeWidth: Math.min(6, 1.4 + Math.log10(1 + rate / 1000)) }} />
      <text x={e.label.x} y={e.label.y - 5} text-anchor="middle">{e.name}</text>
      {note ? <text class="bytes" x={e.label.x} y={e.label.y + 13} text-anchor="middle">{note}</text> : (kind === 'copied' || rate > 0) && <text class="bytes" x={e.label.x} y={e.label.y + 13} text-anchor="middle">{bytes(rate)}/s</text>}
    </g>
  );
});

const Node = memo(({ p, n, chosen, choose, ran }: { p: PlacedNode; n: NodeView; chosen: boolean; choose: (id: number) => void; ran: string }) => {
  const v = n.live, w = p.width, h = p.height, f = figures(n), shape = outline(n.kind, w, h), name = nameOf(n);
  const failing = f ? f.bad : v !== null && v.error_rate > 0;
  return (
    <g class={`node ${n.site === 'host' ? 'host' : 'device'}${n.kind ? ' flow' : ''}${n.fallback_of || n.kind === 'shadow' ? ' dashes' : ''}${chosen ? ' chosen' : ''}${failing ? ' failing' : ''}`}
      transform={`translate(${p.x - w / 2} ${p.y - h / 2})`} role="button" tabindex={0} aria-pressed={chosen}
      onClick={() => choose(p.id)} onKeyDown={(e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(p.id); } }}>
      {shape ? <path class="box" d={shape} /> : <rect class="box" width={w} height={h} rx={n.kind && !f ? h / 2 : 10} />}
      {!n.kind && <rect class="edgebar" x="0" y="12" width="3" height={h - 24} rx="1.5" />}
      {n.kind ? <Decision n={n} w={w} h={h} name={name} /> : <Model n={n} w={w} ran={ran} />}
    </g>
  );
});

/** Decision writes what a node without a model does. */
const Decision = ({ n, w, h, name }: { n: NodeView; w: number; h: number; name: string }) => {
  const f = figures(n), x = inset(n.kind), wide = Math.floor((w - 2 * x) / 7.2);
  if (!f) return <>
    <text class="name" x={w / 2} y={h / 2 - 2} text-anchor="middle">{shorten(name, wide)}{name.length > wide && <title>{name}</title>}</text>
    <text class="sub" x={w / 2} y={h / 2 + 14} text-anchor="middle">{n.kind}</text>
  </>;
  let at = x;
  return <>
    <text class="name" x={x} y="21">{shorten(name, wide)}{name.length > wide && <title>{name}</title>}</text>
    <text class="sub" x={x} y="36">{shorten(f.sub, 27)}{f.sub.length > 27 && <title>{f.sub}</title>}</text>
    <text class="fig" x={x} y="56">{f.left}<tspan class="unit">{f.unit}</tspan></text>
    <text class="sub" x={w - x} y="56" text-anchor="end">{f.right}</text>
    {f.bar.length > 0 ? f.bar.map((b, i) => {
      const from = at, width = Math.max(0, b.share * (w - 2 * x));
      at += width;
      return <rect key={i} class={`fill ${b.kind}`} x={from} y="64" width={width} height="4" />;
    }) : <text class="sub" x={x} y="72">{f.note}</text>}
    <title>{`${name}\n${f.sub}\n${[f.left + f.unit, f.right, f.note].filter(Boolean).join(', ')}`}</title>
  </>;
};

/** Model writes the figures of a step. */
const Model = ({ n, w, ran }: { n: NodeView; w: number; ran: string }) => {
  const v = n.live, role = roleOf(n), sub = [role || n.platform.replace(/^native:/, ''), n.precision, ran].filter(Boolean).join(' · ');
  const all = v ? v.queue_ns + v.compute_ns : 0, queue = all > 0 ? (v!.queue_ns / all) * (w - 24) : 0;
  const room = ran ? 34 : role ? 28 : 17;
  return <>
    <text class="name" x="14" y="23">{shorten(n.name, 23)}{n.name.length > 23 && <title>{n.name}</title>}</text>
    <text class="sub" x="14" y="39">{shorten(sub, room)}{sub.length > room && <title>{sub}</title>}{n.site !== 'host' ? ` · ${n.site}` : ''}</text>
    <text class="sub" x={w - 12} y="39" text-anchor="end">{n.instances > 1 ? `× ${n.instances}` : ''}</text>
    {v ? <>
      <text class="fig" x="14" y="62">{count(v.rate)}<tspan class="unit">/s</tspan></text>
      <text class="fig" x={w - 12} y="62" text-anchor="end">{dur(v.queue_ns + v.compute_ns)}</text>
      <rect class="fill queue" x="12" y="72" width={Math.max(0, queue)} height="5" />
      <rect class="fill compute" x={12 + queue} y="72" width={all > 0 ? Math.max(0, w - 24 - queue) : 0} height="5" />
      {all === 0 && <rect class="none" x="12" y="72" width={w - 24} height="5" />}
      <text class="sub" x="14" y="90">{n.in_flight} in flight<title>{v.queue} of them wait for an instance</title></text>
      <text class={`sub ${v.error_rate > 0 ? 'wrong' : ''}`} x={w - 12} y="90" text-anchor="end">
        {v.error_rate > 0 ? `${count(v.error_rate)} errors/s` : `batch of ${v.batch_rows ? count(v.batch_rows) : '–'}`}
      </text>
    </> : <text class="sub" x="14" y="66">no figures yet</text>}
  </>;
};
