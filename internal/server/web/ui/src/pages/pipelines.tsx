// All ensembles at a glance.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { GraphView, ModelView } from '../api';
import { count, dur, percent, plural } from '../format';
import { plan } from '../graphs';
import { useLive } from '../live';
import { byVersion, ensembles, isEnd, mini, slowest, withLive, type Order } from '../mini';
import { go, link } from '../route';
import { Empty, Page, Spark, State } from '../parts/bits';
import { Grid } from '../parts/grid';

const orders: Record<Order, string> = { name: 'name', rate: 'requests/s', errors: 'errors/s', p99: 'p99' };

export const Pipelines = ({ query }: { query: Record<string, string> }) => {
  const l = useLive();
  const typed = query['q'] ?? '', order = (query['sort'] ?? 'name') in orders ? (query['sort'] ?? 'name') as Order : 'name';
  const set = (v: Record<string, string>) => go(link('pipelines', '', { ...query, ...v }), true);
  const all = useMemo(() => new Set((l.models ?? []).filter((m) => m.ensemble).map((m) => m.name)).size, [l.models]);
  const list = useMemo(() => ensembles(l.models ?? [], typed, order), [l.models, typed, order]);
  const by = useMemo(() => byVersion(l.models), [l.models]);
  return (
    <Page title={<>Pipelines <span class="dim">{l.models && (list.length === all ? all.toLocaleString('en') : `${list.length} of ${all}`)}</span></>} actions={
      <>
        <input type="search" aria-label="Filter pipelines by name" placeholder="name" value={typed} onInput={(e) => set({ q: e.currentTarget.value })} />
        <label class="inline">by <select aria-label="Order" value={order} onChange={(e) => set({ sort: e.currentTarget.value })}>
          {Object.entries(orders).map(([k, text]) => <option key={k} value={k}>{text}</option>)}
        </select></label>
      </>
    }>
      {list.length === 0
        ? <Empty>{l.models === null ? 'Waiting for the server…' : all > 0 ? 'No pipeline fits.' : 'No ensemble is served.'}</Empty>
        : <Grid list={list} least={280} height={188} gap={14} label="Pipelines" name={(m) => m.name} render={(m) => <Small m={m} by={by} />} />}
    </Page>
  );
};

/** wait is how long a card is seen before its plan is read: those that scroll by are not. */
const wait = 60;

const usePlan = (model: string, version: string, served: boolean): GraphView | Error | null => {
  const [s, set] = useState<GraphView | Error | null>(null);
  useEffect(() => {
    set(null);
    if (!served) return undefined;
    let over = false;
    const timer = setTimeout(() => {
      plan(model, version).then((g) => { if (!over) set(g); }, (e: Error) => { if (!over) set(e); });
    }, wait);
    return () => { over = true; clearTimeout(timer); };
  }, [model, version, served]);
  return s;
};

const Small = ({ m, by }: { m: ModelView; by: Map<string, ModelView> }) => {
  const served = m.state === 'READY';
  const g = usePlan(m.name, m.version, served);
  const nodes = useMemo(() => (g && !(g instanceof Error) ? withLive(g, by) : []), [g, by]);
  const worst = m.rate > 0 ? slowest(nodes) : null; // others may call the models of an ensemble that nobody calls
  return (
    <article class="small">
      <h2><a class="stretch clip" href={link('pipeline', m.name)} title={m.name}>{m.name}</a>{!served && <State state={m.state} {...(m.reason ? { reason: m.reason } : {})} />}</h2>
      <div class="minibox">
        {!served ? <span class="why">{m.reason || 'It is not loaded.'}</span> : g instanceof Error ? <span class="wrong clip" title={g.message}>{g.message}</span> : g && <Picture g={g} failing={new Set(nodes.filter((n) => (n.live?.error_rate ?? 0) > 0).map((n) => n.node))} worst={worst?.node ?? null} />}
      </div>
      <p class="clip dim">{!served ? `version ${m.version || '–'}` : worst ? <><i class="mark" />{worst.name} <span>{dur(worst.ns)}, {percent(worst.share)} of the steps</span></> : m.rate > 0 ? 'no figures of its steps yet' : 'no requests in the last minute'}</p>
      <dl>
        <div><dt>requests</dt><dd>{count(m.rate)}/s</dd></div>
        <div><dt>errors</dt><dd class={m.error_rate > 0 ? 'wrong' : ''}>{count(m.error_rate)}/s</dd></div>
        <div><dt>p99</dt><dd>{m.p99_ns ? dur(m.p99_ns) : '–'}</dd></div>
        <Spark values={m.rates} width={64} height={20} />
      </dl>
    </article>
  );
};

/** Picture is a graph without text: the slowest step is filled, and steps with errors are red. */
const Picture = ({ g, failing, worst }: { g: GraphView; failing: Set<number>; worst: number | null }) => {
  const l = useMemo(() => mini(g), [g]);
  const name = (id: number) => g.nodes.find((n) => n.node === id)?.name ?? '';
  const steps = g.nodes.filter((n) => !n.kind).map((n) => n.name);
  return (
    <svg class="mini" viewBox={`0 0 ${l.width} ${l.height}`} style={{ maxWidth: `${l.width * 1.6}px` }} role="img" aria-label={`${plural(steps.length, 'step')}: ${steps.slice(0, 8).join(', ')}${steps.length > 8 ? ' …' : ''}`}>
      {l.edges.map((e) => <path key={`${e.from} ${e.to}`} d={e.path} />)}
      {l.nodes.map((n) => isEnd(n.id)
        ? <circle key={n.id} cx={n.x} cy={n.y} r={n.width / 2} />
        : <rect key={n.id} class={`${n.id === worst ? 'worst' : ''}${failing.has(n.id) ? ' failing' : ''}${n.width === n.height ? ' flow' : ''}`}
          x={n.x - n.width / 2} y={n.y - n.height / 2} width={n.width} height={n.height} rx="4"><title>{name(n.id)}</title></rect>)}
    </svg>
  );
};
