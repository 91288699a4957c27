import { useState } from 'preact/hooks';
import { api, type LoadEvent, type ModelDetail, type ModelStats, type VersionDetail } from '../api';
import { linesOf } from '../config';
import { ago, bytes, clock, count, dur, moment, percent, whole } from '../format';
import { useLive } from '../live';
import { usePolled } from '../poll';
import { go, link } from '../route';
import { Bad, Card, Copy, Empty, Fact, Page, State } from '../parts/bits';
import { Operate } from '../parts/operate';
import { ModelPast } from '../parts/past';
import { Strip } from './pipeline';

const good = new Set(['loaded', 'loaded again', 'updated', 'unloaded', 'evicted']);

/** Model is all that is known of one model. */
export const Model = ({ model, query }: { model: string; query: Record<string, string> }) => {
  const l = useLive();
  const asked = usePolled(() => api.detail(model), [model], () => 5000);
  const versions = (l.models ?? []).filter((m) => m.name === model);
  const serving = versions.findLast((m) => m.state === 'READY');
  const own = serving ?? versions.at(-1);
  const d = asked.value;
  const again = () => asked.again();
  return (
    <Page title={<span class="pick"><span class="wrap">{model}</span>{own && <State state={own.state} {...(own.reason ? { reason: own.reason } : {})} />}</span>} actions={<>
      <a class="button" href={link('pipeline', model)}>Graph</a><a class="button" href={link('traces', '', { model })}>Traces</a>
      <a class="button primary" href={link('try', model)}>Try it</a>
    </>}>
      {serving && <Strip m={serving} />}
      {versions.filter((m) => m.reason && m.reason !== 'unloaded').map((m) => (
        <div key={m.version} class="bad" role="alert"><b>{m.version ? `Version ${m.version}` : model} is {(m.state || 'not loaded').toLowerCase()}</b>{'\n'}{m.reason}</div>
      ))}
      {d && <FailedLoad e={d.loads[0]} shown={versions.map((m) => m.reason ?? '')} now={l.now()} />}
      {asked.error !== null && <Bad error={asked.error} />}
      {d?.changed && <p class="note">The files have changed since the model was loaded: load it again to serve them.</p>}
      <ModelPast model={model} range={query['range']} choose={(range) => go(link('model', model, { ...query, range }), true)} />
      <div class="columns wide">
        <div class="stack">
          <Card title="Versions">{!d ? <Empty>Reading…</Empty> : <Versions d={d} />}</Card>
          {d && !d.ensemble && d.versions.some((v) => v.instances?.length) && <Card title="Instances"><Instances list={d.versions} /></Card>}
          {d && <Loads list={d.loads} now={l.now()} />}
          {serving && <Statistics model={model} />}
        </div>
        <div class="stack">
          <Card title="Operate"><Operate model={model} version={serving?.version ?? ''} done={again} /></Card>
          {d && <Config d={d} />}
        </div>
      </div>
    </Page>
  );
};

/** FailedLoad tells why the last load failed, where no version says so. */
const FailedLoad = ({ e, shown, now }: { e: LoadEvent | undefined; shown: string[]; now: number }) => {
  if (!e?.reason || good.has(e.what) || shown.some((r) => r.includes(e.reason!))) return null;
  return <div class="bad" role="alert"><b>The last load failed {ago(now - e.at_us)} ago</b>{'\n'}{e.reason}</div>;
};

const Versions = ({ d }: { d: ModelDetail }) => (
  <>
    {d.versions.length === 0 ? <Empty>It was never loaded.</Empty> : (
      <div class="scroll" tabIndex={0} role="region" aria-label="Versions"><table>
        <thead><tr><th>Version</th><th>State</th><th class="num">Waiting</th><th class="num">Running</th><th class="num">Instances busy</th></tr></thead>
        <tbody>{d.versions.map((v) => (
          <tr key={v.version}><td>{v.version || '–'}</td><td><State state={v.state} {...(v.reason ? { reason: v.reason } : {})} /></td>
            <td class="num">{v.queued}</td><td class="num">{v.running}</td><td class="num">{v.state === 'READY' ? percent(v.utilization) : '–'}</td></tr>
        ))}</tbody>
      </table></div>
    )}
    <dl class="facts">
      {d.dir && <Fact name="folder"><span class="mono wrap">{d.dir}</span></Fact>}
      {d.used_by.length > 0 && <Fact name="called by">{d.used_by.map((e, i) => <>{i > 0 && ', '}<a key={e} href={link('pipeline', e)}>{e}</a></>)}</Fact>}
    </dl>
  </>
);

const Instances = ({ list }: { list: VersionDetail[] }) => (
  <div class="scroll" tabIndex={0} role="region" aria-label="Instances"><table>
    <thead><tr><th>Instance</th><th>Version</th><th>Place</th><th>Kind</th><th class="num">Count</th><th class="num">Process</th></tr></thead>
    <tbody>{list.flatMap((v) => (v.instances ?? []).map((x, i) => (
      <tr key={`${v.version} ${i}`}><td class="wrap">{x.name}</td><td>{v.version}</td><td>{x.place}</td><td>{x.kind.replace('KIND_', '')}{x.passive && ', passive'}</td><td class="num">{x.count}</td>
        <td class="num">{!x.process ? 'the server’s' : x.alive ? bytes(x.memory_bytes ?? 0) : <span class="wrong">none</span>}</td></tr>
    )))}</tbody>
  </table></div>
);

const Loads = ({ list, now }: { list: LoadEvent[]; now: number }) => (
  <Card title="Loads">
    {list.length === 0 ? <Empty>Nothing was loaded or unloaded since the server started.</Empty> : (
      <div class="scroll" tabIndex={0} role="region" aria-label="Loads"><table class="loads">
        <thead><tr><th>Time</th><th>What</th><th>Versions</th><th class="num">Took</th><th>Because</th></tr></thead>
        <tbody>{list.map((e, i) => (
          <tr key={`${e.at_us} ${i}`}><td class="mono" title={`${ago(now - e.at_us)} ago`}>{moment(new Date(e.at_us / 1000).toISOString(), new Date(now / 1000))}</td>
            <td><span class={`status ${good.has(e.what) ? (e.what.startsWith('loaded') ? 'good' : '') : 'wrong'}`}>{e.what === 'kept' ? 'failed, old one kept' : e.what}</span></td>
            <td>{e.versions.join(', ') || '–'}</td><td class="num">{e.took_ns ? dur(e.took_ns) : '–'}</td>
            <td>{e.cause}{e.reason && <div class="why wrong">{e.reason}</div>}</td></tr>
        ))}</tbody>
      </table></div>
    )}
  </Card>
);

const Statistics = ({ model }: { model: string }) => {
  const { value, error } = usePolled(() => api.stats(model), [model], () => 5000);
  if (error !== null) return <Card title="Statistics"><Bad error={error} /></Card>;
  return (
    <Card title="Statistics since it was loaded">
      {(value ?? []).map((s) => <Stats key={s.version} s={s} several={value!.length > 1} />)}
    </Card>
  );
};

const Stats = ({ s, several }: { s: ModelStats; several: boolean }) => {
  const of = (k: string) => s.inference_stats[k] ?? { count: 0, ns: 0 };
  const mean = (k: string) => (of(k).count ? dur(of(k).ns / of(k).count) : '–');
  return (
    <>
      {several && <h3>Version {s.version}</h3>}
      <dl class="facts">
        <Fact name="succeeded">{whole(of('success').count)}</Fact><Fact name="failed">{whole(of('fail').count)}</Fact>
        <Fact name="rows, batches">{whole(s.inference_count)}, {whole(s.execution_count)}</Fact>
        <Fact name="last request">{s.last_inference ? clock(s.last_inference * 1000).slice(0, 8) : 'none'}</Fact>
        <Fact name="mean of a request">{mean('success')}</Fact><Fact name="in the queue">{mean('queue')}</Fact>
        <Fact name="input, infer, output">{mean('compute_input')}, {mean('compute_infer')}, {mean('compute_output')}</Fact>
        {of('cache_hit').count + of('cache_miss').count > 0 && <Fact name="cache hits, misses">{whole(of('cache_hit').count)}, {whole(of('cache_miss').count)}</Fact>}
      </dl>
      {s.batch_stats.length > 0 && <div class="scroll" tabIndex={0} role="region" aria-label="Batches by size"><table>
        <thead><tr><th class="num">Rows of a batch</th><th class="num">Batches</th><th class="num">Infer, mean</th></tr></thead>
        <tbody>{s.batch_stats.map((b) => <tr key={b.batch_size}><td class="num">{b.batch_size}</td><td class="num">{count(b.compute_infer.count)}</td><td class="num">{b.compute_infer.count ? dur(b.compute_infer.ns / b.compute_infer.count) : '–'}</td></tr>)}</tbody>
      </table></div>}
    </>
  );
};

const Config = ({ d }: { d: ModelDetail }) => {
  const [shown, show] = useState<'served' | 'written'>('served');
  const cfg = shown === 'served' ? d.served : d.written;
  const lines = cfg ? linesOf(cfg, shown === 'served' ? d.written : null) : [];
  const filled = lines.some((x) => x.filled);
  return (
    <Card title="Configuration" actions={<>
      <div class="tabs" role="group" aria-label="Which configuration">
        <button type="button" aria-pressed={shown === 'served'} onClick={() => show('served')}>served</button>
        <button type="button" aria-pressed={shown === 'written'} onClick={() => show('written')}>written</button>
      </div>
      {cfg && <Copy text={lines.map((x) => x.text).join('\n')} label="the configuration" />}
    </>}>
      {filled && <p class="note"><mark>Marked</mark> lines were filled in by the server.</p>}
      {shown === 'served' && d.written_error && <p class="note">What was filled in is not known: {d.written_error}.</p>}
      {cfg ? <pre class="config" tabIndex={0} aria-label={`Configuration of ${d.name}, ${shown}`}>{lines.map((x, i) => <span key={i}>{x.filled ? <mark>{x.text}</mark> : x.text}{'\n'}</span>)}</pre>
        : <Empty>{shown === 'served' ? 'No version serves.' : d.written_error ?? 'It is not known.'}</Empty>}
    </Card>
  );
};
