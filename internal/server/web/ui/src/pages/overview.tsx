import { ref } from '../api';
import { ago, bytes, clock, count, dur, percent } from '../format';
import { gpuNote } from '../figures';
import { useLive } from '../live';
import { go, link } from '../route';
import { rangeOf, usePast as useServerPast } from '../past';
import { Card, Empty, Page, Status } from '../parts/bits';
import { Chart } from '../parts/chart';
import { ModelTable } from '../parts/models';
import { Ranges, ServerPast } from '../parts/past';

export const Overview = ({ query }: { query: Record<string, string> }) => {
  const range = rangeOf(query['range']);
  const past = useServerPast(range);
  const young = !query['range'] && past.value?.cores.every((v) => v === null); // a server that has just started has no history
  const shown = young ? rangeOf('live') : range;
  return (
    <Page title="Overview" actions={<Ranges chosen={shown} view={past.value} choose={(key) => go(link('', '', { ...query, range: key }), true)} />}>
      <Tiles />
      {shown.seconds > 0 ? <ServerPast past={past} /> : (
        <div class="columns">
          <Rates />
          <LoadChart />
        </div>
      )}
      <div class="columns wide">
        <ModelTable page="" query={query} rows={14} />
        <News />
      </div>
    </Page>
  );
};

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
      {Math.abs(l.skewMs) > 30_000 && <Tile name="Clock of the server" value={`${l.skewMs > 0 ? '+' : '−'}${ago(Math.abs(l.skewMs) * 1000)}`} note="against this browser; times are the server's" />}
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
