import { useMemo, useState } from 'preact/hooks';
import { ref, type ModelView } from '../api';
import { ago, bytes, clock, count, dur, percent } from '../format';
import { gpuNote } from '../figures';
import { useLive } from '../live';
import { go, link } from '../route';
import { Card, Empty, Page, Ratio, Spark, State, Status } from '../parts/bits';
import { Chart } from '../parts/chart';
import { Virtual } from '../parts/virtual';

type Key = 'name' | 'rate' | 'error_rate' | 'p50_ns' | 'p99_ns' | 'queue' | 'batch_rows';

const columns: [Key, string, string][] = [
  ['name', 'Model', ''], ['rate', 'Requests/s', 'num'], ['error_rate', 'Errors/s', 'num'], ['p50_ns', 'p50', 'num'],
  ['p99_ns', 'p99', 'num'], ['queue', 'Queue', 'num'], ['batch_rows', 'Batch', 'num'],
];

const kindsOf: Record<string, (m: ModelView) => boolean> = {
  all: () => true, ensembles: (m) => m.ensemble, models: (m) => !m.ensemble, unhealthy: (m) => m.state !== 'READY' || m.error_rate > 0,
};

/** sorted orders models by a column, names first to last and figures high to low. */
export function sorted(list: ModelView[], by: Key, up: boolean): ModelView[] {
  const sign = up ? 1 : -1;
  return [...list].sort((a, b) => {
    const d = by === 'name' ? a.name.localeCompare(b.name) : a[by] - b[by];
    return sign * d || a.name.localeCompare(b.name) || Number(a.version) - Number(b.version);
  });
}

export const Overview = ({ query }: { query: Record<string, string> }) => {
  const l = useLive();
  const by = (query['sort'] as Key | undefined) ?? 'name';
  const up = query['up'] ? query['up'] === '1' : by === 'name';
  const kind = query['kind'] ?? 'all';
  const [text, setText] = useState('');
  const list = useMemo(() => {
    const fits = kindsOf[kind] ?? kindsOf['all']!;
    const t = text.toLowerCase();
    return sorted((l.models ?? []).filter((m) => fits(m) && m.name.toLowerCase().includes(t)), by, up);
  }, [l.models, kind, text, by, up]);
  const set = (v: Record<string, string>) => go(link('', '', { ...query, ...v }), true);
  return (
    <Page title="Overview">
      <Tiles />
      <div class="columns">
        <Rates />
        <LoadChart />
      </div>
      <div class="columns wide">
        <Card title={<>Models <span class="dim">{list.length}</span></>} actions={
          <div class="tools">
            <div class="tabs" role="group" aria-label="Which models">
              {Object.keys(kindsOf).map((k) => <button type="button" key={k} aria-pressed={k === kind} onClick={() => set({ kind: k })}>{k}</button>)}
            </div>
            <input type="search" placeholder="Filter" aria-label="Filter models by name" value={text} onInput={(e) => setText(e.currentTarget.value)} />
          </div>
        }>
          {l.models === null ? <Empty>Waiting for the server…</Empty> : list.length === 0 ? <Empty>{l.models.length ? 'No model fits.' : 'No models: start the server with --model-repository DIR, or load one with tutti repo load URL MODEL.'}</Empty> : (
            <div class="models" style={{ '--rows': Math.min(list.length, 14) } as never}>
              <Virtual list={list} row={44} label="Models" render={(m) => <ModelRow m={m} />} columns={
                <div class="mrow thead" role="row">
                  {columns.map(([k, title, c]) => (
                    <span key={k} role="columnheader" class={c} aria-sort={k === by ? (up ? 'ascending' : 'descending') : 'none'}>
                      <button type="button" onClick={() => set({ sort: k, up: k === by ? (up ? '0' : '1') : k === 'name' ? '1' : '0' })}>
                        {title}{k === by && <span aria-hidden="true">{up ? ' ↑' : ' ↓'}</span>}
                      </button>
                    </span>
                  ))}
                  <span role="columnheader">Queue | compute</span><span role="columnheader">State</span>
                </div>
              } />
            </div>
          )}
        </Card>
        <News />
      </div>
    </Page>
  );
};

const ModelRow = ({ m }: { m: ModelView }) => (
  <div class="mrow" role="row">
    <span role="cell" class="mname"><a class="clip" href={link('pipeline', m.name)}>{m.name}</a>
      <small class="dim clip">{m.ensemble ? 'ensemble' : m.platform || 'model'} · v{m.version || '–'}</small></span>
    {m.reason && m.state !== 'READY' ? <span role="cell" aria-colspan={7} class="mwhy" title={m.reason}>{m.reason}</span> : <>
    <span role="cell" class="num withspark"><Spark values={m.rates} width={72} /><b>{count(m.rate)}</b></span>
    <span role="cell" class={`num ${m.error_rate > 0 ? 'wrong' : 'dim'}`}>{count(m.error_rate)}</span>
    <span role="cell" class="num">{m.p50_ns ? dur(m.p50_ns) : '–'}</span>
    <span role="cell" class="num">{m.p99_ns ? <a href={link('traces', '', { model: m.name, min_ns: m.p99_ns })} title="The traces above it">{dur(m.p99_ns)}</a> : '–'}</span>
    <span role="cell" class="num">{m.queue}</span>
    <span role="cell" class="num">{m.batch_rows ? count(m.batch_rows) : '–'}</span>
    <span role="cell" title={`queue ${dur(m.queue_ns)}, compute ${dur(m.compute_ns)}`}><Ratio queue={m.queue_ns} compute={m.compute_ns} />
      <span class="sr">queue {dur(m.queue_ns)}, compute {dur(m.compute_ns)}</span></span>
    </>}
    <span role="cell"><State state={m.state} {...(m.reason ? { reason: m.reason } : {})} /></span>
  </div>
);

const Tiles = () => {
  const l = useLive(), s = l.server, load = l.load.at(-1);
  const models = l.models ?? [];
  const ready = models.filter((m) => m.state === 'READY').length;
  const outer = models.filter((m) => m.ensemble);
  const served = outer.length ? outer : models;
  const rate = served.reduce((n, m) => n + m.rate, 0), errors = served.reduce((n, m) => n + m.error_rate, 0);
  const retained = s?.store?.rings.reduce((n, r) => n + r.traces, 0) ?? 0;
  return (
    <dl class="tiles">
      <Tile name={outer.length ? 'Ensemble requests' : 'Requests'} value={`${count(rate)}/s`} note={`${count(errors)} errors/s`} bad={errors > 0} />
      <Tile name="Models ready" value={`${ready} of ${models.length}`} note={s ? (s.ready ? 'server ready' : 'server not ready') : '…'} bad={!!s && !s.ready} />
      <Tile name="Processor" value={load ? percent(load.cores / (s?.cores || 1)) : '…'} note={s ? `of ${s.cores} cores` : ''} />
      <Tile name="Memory" value={s ? bytes(s.memory_bytes) : '…'} note={s ? `${bytes(s.tensor_bytes)} in tensors` : ''} />
      {(s?.gpus ?? []).map((g, i, all) => (
        <Tile key={g.uuid} name={all.length > 1 ? `GPU ${i}` : 'GPU'} value={g.utilization === null ? '–' : percent(g.utilization)} note={gpuNote(g)} />
      ))}
      <Tile name="Stored traces" value={s?.store ? count(retained) : 'off'} note={s?.store ? `in ${bytes(s.store.rings.reduce((n, r) => n + r.used_bytes, 0))} of ${bytes(s.store.bytes)}` : '--trace-store-bytes'} />
      <Tile name="Uptime" value={s ? ago(s.now_us - s.started_us) : '…'} note={s ? `tutti ${s.version}${s.name === 'triton' ? '' : `, ${s.name}`}` : ''} />
    </dl>
  );
};

const Tile = ({ name, value, note, bad = false }: { name: string; value: string; note: string; bad?: boolean }) => (
  <div class="tile"><dt>{name}</dt><dd><b>{value}</b><small class={bad ? 'wrong' : 'dim'}>{note}</small></dd></div>
);

const lineColors = ['--c1', '--c2', '--c3', '--c4', '--c5'];

const Rates = () => {
  const l = useLive();
  const models = l.models ?? [];
  const outer = models.filter((m) => m.ensemble && m.rates.length > 0);
  const busiest = (outer.length ? outer : models.filter((m) => m.rates.length > 0)).sort((a, b) => b.rate - a.rate).slice(0, 5)
    .sort((a, b) => a.name.localeCompare(b.name));
  const now = Math.floor((l.server?.now_us ?? 0) / 1e6);
  const at = Array.from({ length: 60 }, (_, i) => now - 59 + i);
  return (
    <Card title="Requests per second">
      {busiest.length === 0 ? <Empty>No requests in the last minute.</Empty> : (
        <Chart at={at} write={count} label={`Requests per second of ${busiest.map((m) => m.name).join(', ')}`}
          series={busiest.map((m, i) => ({
            label: m.name, color: lineColors[i]!, values: [...Array<null>(Math.max(0, 60 - m.rates.length)).fill(null), ...m.rates.slice(-60)],
          }))} />
      )}
    </Card>
  );
};

const LoadChart = () => {
  const l = useLive();
  return (
    <Card title="Cores in use">
      {l.load.length < 2 ? <Empty>Waiting for two seconds of figures…</Empty> : (
        <Chart at={l.load.map((x) => x.at)} write={(v) => v.toFixed(2)} label="Cores in use"
          series={[{ label: 'cores', color: '--c1', values: l.load.map((x) => x.cores), fill: true }]} />
      )}
    </Card>
  );
};

const News = () => {
  const l = useLive();
  return (
    <Card title="Last events" actions={<a href={link('traces')}>all traces</a>}>
      {l.news.length === 0 ? <Empty>No trace is stored yet.</Empty> : (
        <ul class="news">
          {l.news.slice(0, 40).map((t) => (
            <li key={ref(t)}><a href={link('traces', ref(t))}>
              <span class="mono dim">{clock(t.start_us).slice(0, 8)}</span>
              <span class="clip">{t.model}</span>
              {t.status === 'ok' ? <span class={`retained ${t.retained}`}>{t.retained}</span> : <Status status={t.status} />}
              <b class="mono">{dur(t.duration_ns)}</b>
            </a></li>
          ))}
        </ul>
      )}
    </Card>
  );
};
