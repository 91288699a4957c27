// What the nodes of an ensemble decide: its text, its figures and its shape.
import type { EdgeView, NodeView } from './api';
import { count, percent } from './format';

/** Frame is a fan-out that node begin divides, inside of that of node around. */
export interface Frame { begin: number; depth: number; around?: number }

/** framed lists the fan-outs with steps inside, the outermost first. */
export function framed(nodes: NodeView[]): Frame[] {
  const by = new Map<number, Frame>();
  for (const n of nodes) n.within?.forEach((begin, depth) => {
    const around = n.within?.[depth - 1];
    if (!by.has(begin)) by.set(begin, { begin, depth, ...(around === undefined ? {} : { around }) });
  });
  return [...by.values()].sort((a, b) => a.depth - b.depth || a.begin - b.begin);
}

/** decides tells the nodes with figures of their own from those that only pass tensors on. */
const decides = new Set(['condition', 'route', 'shadow', 'fan-out']);

/** sizeOf is the room of a node. */
export const sizeOf = (n: NodeView): { width: number; height: number } =>
  !n.kind ? { width: 200, height: 96 } : decides.has(n.kind) ? { width: 200, height: 82 } : { width: 150, height: 50 };

/** dashed reports whether an edge is beside the usual way of a request: of a fallback or a shadow. */
export const dashed = (e: EdgeView, node: (id: number) => NodeView | undefined): boolean =>
  [node(e.from), node(e.to)].some((n) => n?.fallback_of !== undefined || n?.kind === 'shadow');

/** Figures are what is written in a node that decides: two texts and the shares of its bar, by kind. */
export interface Figures { left: string; unit: string; right: string; bad: boolean; bar: { kind: string; share: number }[]; sub: string; note: string }

const per = (n: number, of: number): number => (of > 0 ? n / of : 0);

/** figures returns those of a node, null for one that decides nothing. */
export function figures(n: NodeView): Figures | null {
  if (n.rows) {
    const { held, failed } = n.rows, all = held + failed;
    return {
      left: count(held), unit: held === 1 ? ' row ran' : ' rows ran', right: `${count(failed)} did not`, bad: false, sub: `condition of ${n.rows.step}`,
      bar: all > 0 ? [{ kind: 'took', share: held / all }, { kind: 'passed', share: failed / all }] : [], note: all > 0 ? percent(held / all) : 'no rows yet',
    };
  }
  if (n.items) {
    const { divided, items, groups } = n.items, inner = (n.within?.length ?? 0) > 0;
    return {
      left: divided > 0 ? count(per(items, divided)) : '–', unit: inner ? ' items a group' : ' items a request', right: '', bad: false, bar: [], sub: 'fan-out',
      note: divided > 0 ? `in ${count(per(groups, divided))} groups, of ${count(divided)} ${inner ? 'groups' : 'requests'}` : 'no requests yet',
    };
  }
  if (n.kind === 'route' && n.share) {
    const { share, succeeded, failed } = n.share, all = succeeded + failed;
    return {
      left: percent(share), unit: '', right: `${count(all)} ${all === 1 ? 'request' : 'requests'}`, bad: failed > 0, bar: [{ kind: 'took', share }, { kind: 'passed', share: 1 - share }],
      sub: `${n.share.kind} of ${n.share.step}`, note: failed > 0 ? `${count(failed)} failed` : 'none failed',
    };
  }
  if (n.shadow) {
    const { equal, different, failed, dropped } = n.shadow, all = equal + different + failed;
    return {
      left: count(different), unit: different === 1 ? ' differs' : ' differ', right: `${count(all)} ${all === 1 ? 'copy' : 'copies'}`, bad: different + failed > 0, sub: `shadow of ${n.shadow.step}`,
      bar: all > 0 ? [{ kind: 'took', share: equal / all }, { kind: 'wrong', share: (different + failed) / all }] : [],
      note: [failed > 0 ? `${count(failed)} failed` : '', dropped > 0 ? `${count(dropped)} dropped` : ''].filter(Boolean).join(', ') || (all > 0 ? 'none failed' : 'no copies yet'),
    };
  }
  return null;
}

/** nameOf is the text of a node: an alternative is named by its model. */
export const nameOf = (n: NodeView): string => (n.kind === 'route' && n.share ? n.share.alternative : n.kind === 'shadow' && n.shadow ? n.shadow.model : n.name);

/** roleOf says why a step may not run for each request; '' for an ordinary one. */
export function roleOf(n: NodeView): string {
  if (n.fallback_of) return `fallback of ${n.fallback_of}`;
  if (!n.kind && n.share) return `${n.share.kind} of ${n.share.step}`;
  return '';
}

/** outline is the path of a node's shape: conditions and alternatives have tips, a fan-out widens and a gather narrows. */
export function outline(kind: string | undefined, w: number, h: number): string | null {
  const tip = 14, mid = h / 2;
  switch (kind) {
    case 'condition': case 'route': return `M0 ${mid}L${tip} 0H${w - tip}L${w} ${mid}L${w - tip} ${h}H${tip}z`;
    case 'fan-out': return `M0 ${h * 0.22}L${tip * 1.5} 0H${w}V${h}H${tip * 1.5}L0 ${h * 0.78}z`;
    case 'gather': return `M0 0H${w - tip * 1.5}L${w} ${h * 0.22}V${h * 0.78}L${w - tip * 1.5} ${h}H0z`;
    case 'window': return `M0 0H${w}V${h}H0zM7 0V${h}M${w - 7} 0V${h}`;
    case 'stream join': return `M0 0H${w - tip}L${w} ${mid}L${w - tip} ${h}H0L${tip} ${mid}z`;
    default: return null;
  }
}

/** inset is how far from the sides texts begin. */
export const inset = (kind: string | undefined): number => (kind === 'condition' || kind === 'route' || kind === 'fan-out' ? 22 : kind === 'window' || kind === 'stream join' ? 18 : 14);
