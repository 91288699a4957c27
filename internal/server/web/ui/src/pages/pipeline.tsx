import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api, type EdgeView, type GraphView, type ModelView, type NodeView } from '../api';
import { trim } from '../config';
import { carriedText, copiesText, refusals } from '../figures';
import { roleOf } from '../flow';
import { count, dur, percent, plural, shape, whole } from '../format';
import { useLive } from '../live';
import { byVersion, withLive } from '../mini';
import { go, link } from '../route';
import { Bad, Card, Empty, Fact, Page, Ratio, Spark, State, useAsked } from '../parts/bits';
import { Graph } from '../parts/graph';
import { Operate } from '../parts/operate';
import { ModelPast } from '../parts/past';

/** EdgeRates says how many bytes per second are copied along each edge. */
export function edgeRates(was: GraphView | null, now: GraphView, seconds: number): number[] {
  return now.edges.map((e, i) => {
    const old = was?.edges[i];
    return old && old.tensor === e.tensor && seconds > 0 ? Math.max(0, e.copied_bytes - old.copied_bytes) / seconds : 0;
  });
}

export const Pipeline = ({ model, query }: { model: string; query: Record<string, string> }) => {
  useEffect(() => { if (!model) go(link('pipelines'), true); }, [model]);
  return model ? <One key={model} model={model} query={query} /> : null;
};

const One = ({ model, query }: { model: string; query: Record<string, string> }) => {
  const l = useLive();
  const version = Number(query['version'] ?? 0);
  const asked = useAsked(() => api.graph(model, version), [model, version], 2000);
  const last = useRef<{ at: number; g: GraphView | null; rates: number[] }>({ at: 0, g: null, rates: [] });
  const g = asked.value;
  if (g && g !== last.current.g) {
    const at = performance.now();
    last.current = { at, g, rates: edgeRates(last.current.g, g, (at - last.current.at) / 1000) };
  }
  const nodes = useMemo(() => (g ? withLive(g, byVersion(l.models)) : []), [g, l.models]);
  const chosen = query['node'] === undefined ? null : nodes.find((n) => n.node === Number(query['node'])) ?? null;
  const choose = (n: number | null) => go(link('pipeline', model, { ...query, node: n ?? undefined }), true);
  const versions = (l.models ?? []).filter((m) => m.name === model);
  const own = versions.find((m) => m.version === String(g?.version ?? version)) ?? versions.at(-1);
  const down = !g && versions.length > 0 && versions.every((m) => m.state !== 'READY');
  const names = useMemo(() => [...new Set((l.models ?? []).map((m) => m.name))], [l.models === null, l.models?.length]);
  return (
    <Page title={
      <span class="pick">
        <select aria-label="Model" value={model} onChange={(e) => go(link('pipeline', e.currentTarget.value))}>
          {!names.includes(model) && <option>{model}</option>}
          {names.map((n) => <option key={n}>{n}</option>)}
        </select>
        {versions.length > 1 && (
          <select aria-label="Version" value={String(g?.version ?? version)} onChange={(e) => go(link('pipeline', model, { version: e.currentTarget.value }))}>
            {versions.map((m) => <option key={m.version} value={m.version}>version {m.version}</option>)}
          </select>
        )}
        {own && <State state={own.state} {...(own.reason ? { reason: own.reason } : {})} />}
      </span>
    } actions={<><a class="button" href={link('pipelines')}>All pipelines</a><a class="button" href={link('model', model)}>Model</a><a class="button" href={link('traces', '', { model })}>Traces</a><a class="button" href={link('timeline', '', own && !own.ensemble ? { model } : { pipeline: model })}>Timeline</a><a class="button primary" href={link('try', model)}>Try it</a></>}>
      {own && !down && <Strip m={own} />}
      {own && !down && <Overload m={own} nodes={nodes} />}
      {versions.filter((m) => m.state !== 'READY' && m.reason).map((m) => (
        <div key={m.version} class="bad" role="alert"><b>{m.version ? `Version ${m.version}` : model} is {(m.state || 'not loaded').toLowerCase()}</b>{'\n'}{m.reason}</div>
      ))}
      {asked.error !== null && !g && !down && <Bad error={asked.error} />}
      <div class={down ? '' : 'columns wide'}>
        {!down && (
        <Card class="graphcard" title={g ? <>Graph <span class="dim">{plural(g.nodes.length, 'step')}, version {g.version}</span></> : 'Graph'} actions={<Legend nodes={nodes} />}>
          {g ? <Graph g={g} nodes={nodes} rates={last.current.rates} chosen={chosen?.node ?? null} choose={choose} /> : asked.error === null && <Empty>Reading the plan…</Empty>}
        </Card>)}
        <Beside model={model} g={g} down={down} node={chosen} nodes={nodes} close={() => choose(null)} version={own?.state === 'READY' ? own.version : ''} />
      </div>
      {!down && <ModelPast model={model} range={query['range']} choose={(range) => go(link('pipeline', model, { ...query, range }), true)} />}
    </Page>
  );
};

const Legend = ({ nodes }: { nodes: NodeView[] }) => (
  <ul class="legend" aria-label="Colours">
    <li><i class="line host" />host</li><li><i class="line pinned" />pinned</li><li><i class="line device" />device</li><li><i class="line copied" />copied</li>
    <li><i class="fill queue" />queue</li><li><i class="fill compute" />compute</li>
    {nodes.some((n) => n.fallback_of || n.kind === 'shadow') && <li><i class="line beside" />fallback or shadow</li>}
    {nodes.some((n) => n.within?.length) && <li><i class="framed" />for each item</li>}
  </ul>
);

/** Strip has the figures of a model in the last minute. */
export const Strip = ({ m }: { m: ModelView }) => (
  <dl class="tiles small">
    <div class="tile"><dt>Requests</dt><dd><b>{count(m.rate)}/s</b></dd><Spark values={m.rates} width={72} /></div>
    <div class="tile"><dt>Errors</dt><dd><b class={m.error_rate > 0 ? 'wrong' : ''}>{count(m.error_rate)}/s</b></dd></div>
    <div class="tile"><dt>p50</dt><dd><b>{m.p50_ns ? dur(m.p50_ns) : '–'}</b></dd></div>
    <div class="tile"><dt>p99</dt><dd><b>{m.p99_ns ? dur(m.p99_ns) : '–'}</b></dd></div>
    <div class="tile"><dt>Succeeded</dt><dd><b>{count(m.requests)}</b></dd></div>
    <div class="tile"><dt>Failed</dt><dd><b>{count(m.failures)}</b></dd></div>
  </dl>
);

/** Overload shows the goodput and the refusals, where there are deadlines or refusals. */
const Overload = ({ m, nodes }: { m: ModelView; nodes: NodeView[] }) => {
  const list = refusals(m, nodes), d = m.due;
  if (!d && list.length === 0) return null;
  const all = d ? d.in_time + d.late + d.refused + d.failed : 0;
  return (
    <div class="overload">
      {d && <dl class="tiles small">
        <div class="tile"><dt>Goodput: in time</dt><dd><b>{count(d.in_time)}/s</b></dd><Spark values={d.in_times} width={72} /></div>
        <div class="tile"><dt>Of all with deadlines</dt><dd><b>{all > 0 ? percent(d.in_time / all) : '–'}</b></dd></div>
        <div class="tile"><dt>Late</dt><dd><b class={d.late > 0 ? 'wrong' : ''}>{count(d.late)}/s</b></dd></div>
        <div class="tile"><dt>Refused</dt><dd><b class={d.refused > 0 ? 'wrong' : ''}>{count(d.refused)}/s</b></dd></div>
        <div class="tile"><dt>Failed otherwise</dt><dd><b class={d.failed > 0 ? 'wrong' : ''}>{count(d.failed)}/s</b></dd></div>
      </dl>}
      {list.length > 0 && <ul class="legend refusals" aria-label="Refusals by reason">
        <li class="dim">Refusals, last minute:</li>
        {list.map((r) => <li key={`${r.at} ${r.reason}`}><span>{r.reason.replaceAll('_', ' ')}</span> <span class="dim">{r.at}</span> <b>{count(r.rate)}/s</b></li>)}
      </ul>}
    </div>
  );
};

type Tab = 'step' | 'plan' | 'config' | 'operate';

const Beside = ({ model, g, down, node, nodes, close, version }: {
  model: string; g: GraphView | null; down: boolean; node: NodeView | null; nodes: NodeView[]; close: () => void; version: string;
}) => {
  const tabs: Tab[] = [...(node ? ['step'] as const : []), ...(down ? [] : ['plan', 'config'] as const), 'operate'];
  const [wanted, set] = useState<Tab>('plan');
  useEffect(() => set((t) => (node ? 'step' : t === 'step' ? 'plan' : t)), [node?.node]);
  const tab = tabs.includes(wanted) ? wanted : tabs[0]!;
  return (
    <Card title={<div class="tabs" role="group" aria-label="Beside the graph">
      {tabs.map((t) => <button type="button" key={t} aria-pressed={t === tab} onClick={() => set(t)}>{t}</button>)}
    </div>}>
      {tab === 'step' && node && g && <Step node={node} g={g} close={close} />}
      {tab === 'plan' && <><Plan nodes={nodes} />{g && <Places g={g} />}</>}
      {tab === 'config' && <Config model={model} />}
      {tab === 'operate' && <Operate model={model} version={version} />}
    </Card>
  );
};

const Step = ({ node: n, g, close }: { node: NodeView; g: GraphView; close: () => void }) => {
  const v = n.live;
  return (
    <div class="step">
      <h3>{n.name} <button type="button" class="quiet" onClick={close} aria-label="Close the step">×</button></h3>
      <Flow n={n} nodes={g.nodes} />
      {!n.kind && <dl class="facts">
        <Fact name="model"><a href={link('pipeline', n.model)}>{n.model}</a> {n.version}</Fact>
        <Fact name="platform">{n.platform}</Fact>
        <Fact name="runs on">{n.site}{n.places?.length ? ` (${n.places.map((at) => (n.lost?.includes(at) ? `${at}, lost` : at)).join('; ')})` : ''}</Fact>
        {n.precision && <Fact name="precision">{n.precision}</Fact>}
        <Fact name="largest batch">{n.max_batch || 'none'}</Fact>
        {n.instances > 0 && <Fact name="instances">{n.instances}</Fact>}
        <Fact name="in flight">{n.in_flight}</Fact>
        {n.max_inflight > 0 && <Fact name="at most in flight">{n.max_inflight}</Fact>}
        {v && <><Fact name="requests">{count(v.rate)}/s</Fact><Fact name="errors">{count(v.error_rate)}/s</Fact>
          <Fact name="waiting">{v.queue}</Fact><Fact name="mean batch">{v.batch_rows ? count(v.batch_rows) : '–'}</Fact>
          <Fact name="p50, p99">{dur(v.p50_ns)}, {dur(v.p99_ns)}</Fact>
          <Fact name="queue, compute">{dur(v.queue_ns)}, {dur(v.compute_ns)}</Fact></>}
      </dl>}
      {v && v.queue_ns + v.compute_ns > 0 && <div class="wideratio"><Ratio queue={v.queue_ns} compute={v.compute_ns} />
        <small class="dim">{percent(v.queue_ns / (v.queue_ns + v.compute_ns))} of the time in the queue</small></div>}
      <h3>Tensors</h3>
      <ul class="plain mono">
        {g.edges.filter((e) => e.to === n.node).map((e, i) => <li key={`i${i}`}><span class="dim">in</span> {e.input} <span class="dim">{e.datatype} {shape(e.shape)}</span>{e.copy && <span class="wrong" title={e.copy}> copied to {e.place}</span>}<Carried e={e} /></li>)}
        {[...new Map(g.edges.filter((e) => e.from === n.node).map((e) => [e.tensor, e])).values()].map((e, i) => <li key={`o${i}`}><span class="dim">out</span> {e.tensor} <span class="dim">{e.datatype} {shape(e.shape)}</span><Carried e={e} /></li>)}
      </ul>
    </div>
  );
};

/** Flow says what a node decides, and why a step runs or does not run. */
const Flow = ({ n, nodes }: { n: NodeView; nodes: NodeView[] }) => {
  const around = (n.within ?? []).map((at) => nodes.find((x) => x.node === at)?.name ?? String(at));
  const facts: [string, ComponentChildren][] = [];
  if (n.kind) facts.push(['kind', n.kind]);
  if (around.length) facts.push(['runs', `for ${around.join(', for ')}`]);
  if (roleOf(n)) facts.push(['role', roleOf(n)]);
  if (n.rows) facts.push(['step', n.rows.step], ['rows that took it', whole(n.rows.held)], ['rows that did not', whole(n.rows.failed)]);
  if (n.items) {
    const { divided, items, groups } = n.items;
    facts.push([around.length ? 'groups divided' : 'requests divided', whole(divided)], ['items', whole(items)], ['groups of equal shape', whole(groups)]);
    if (divided > 0) facts.push(['items on average', count(items / divided)], ['groups on average', count(groups / divided)]);
  }
  if (n.share) facts.push(['share now', percent(n.share.share)], ['requests', whole(n.share.succeeded + n.share.failed)],
    ['failed', whole(n.share.failed)], ['mean time', n.share.mean_ns ? dur(n.share.mean_ns) : '–']);
  if (n.shadow) facts.push(['copies of', `${percent(n.shadow.share)} of the requests`], ['equal', whole(n.shadow.equal)], ['different', whole(n.shadow.different)],
    ['failed', whole(n.shadow.failed)], ['dropped', whole(n.shadow.dropped)]);
  if (n.fault?.rules) facts.push(['when it fails', n.fault.rules]);
  if (n.fault?.absorbed) facts.push([n.fault.fallback ? 'its fallback ran' : 'its optional result was used', plural(n.fault.used, 'time')]);
  return facts.length ? <dl class="facts">{facts.map(([name, value]) => <Fact key={name} name={name}>{value}</Fact>)}</dl> : null;
};

const Carried = ({ e }: { e: EdgeView }) => <small class="dim">{carriedText(e)}</small>;

const Plan = ({ nodes }: { nodes: NodeView[] }) => (
  <div class="scroll" tabIndex={0} role="region" aria-label="Steps"><table>
    <thead><tr><th>#</th><th>Step</th><th>Where</th><th class="num">Batch</th><th class="num">Mean</th></tr></thead>
    <tbody>{nodes.map((n) => (
      <tr key={n.node}><td class="dim">{n.node}</td><td>{n.name}<br /><small class="dim">{[n.platform, roleOf(n)].filter(Boolean).join(' · ')}{n.ensembles && n.ensembles.length > 1 ? ` · in ${n.ensembles.at(-1)}` : ''}</small></td>
        <td>{n.site}</td><td class="num">{(!n.kind && n.max_batch) || '–'}</td><td class="num">{n.live ? dur(n.live.queue_ns + n.live.compute_ns) : '–'}</td></tr>
    ))}</tbody>
  </table></div>
);

/** Places lists where each tensor is and why, and its copies. */
const Places = ({ g }: { g: GraphView }) => (
  <div class="scroll" tabIndex={0} role="region" aria-label="Tensors"><table>
    <thead><tr><th>Tensor</th><th>Where</th><th>Copies</th></tr></thead>
    <tbody>{g.edges.map((e, i) => (
      <tr key={i}><td>{e.tensor}<br /><small class="dim">{e.to < 0 ? 'to the response' : `to ${g.nodes[e.to]?.name ?? e.to}`}</small></td>
        <td>{e.at}<br /><small class="dim">{e.why}</small></td>
        <td>{e.copy && <small class="wrong">{e.copy}</small>}{e.copy && <br />}<small class="dim">{copiesText(e) || 'none made'}</small></td></tr>
    ))}</tbody>
  </table></div>
);

const Config = ({ model }: { model: string }) => {
  const { value, error } = useAsked(() => api.config(model), [model]);
  if (error !== null) return <Bad error={error} />;
  return <pre class="config" tabIndex={0} aria-label={`Configuration of ${model}`}>{value ? JSON.stringify(trim(value), null, 2) : '…'}</pre>;
};
