// Charts of the past.
import { bytes, count, dur, percent } from '../format';
import { available, nothing, rangeOf, ranges, times, usePast, type Range } from '../past';
import type { HistoryView, ModelSeries, Values } from '../api';
import type { Polled } from '../poll';
import { Bad, Card, Empty } from './bits';
import { Chart, type Series } from './chart';

const colors = ['--c1', '--c2', '--c3', '--c4', '--c5'];

/** Ranges are the buttons that choose a range. */
export const Ranges = ({ chosen, view, choose, live = true }: { chosen: Range; view: HistoryView | null; choose: (key: string) => void; live?: boolean }) => (
  <div class="tabs" role="group" aria-label="Range of time">
    {ranges.filter((r) => live || r.seconds > 0).map((r) => {
      const there = available(r, view);
      return <button type="button" key={r.key} aria-pressed={r.key === chosen.key} disabled={!there} title={there ? r.title : `${r.title}: needs a server with --data-dir`} onClick={() => choose(r.key)}>{r.label}</button>;
    })}
  </div>
);

const Past = ({ title, view, series, write }: { title: string; view: HistoryView; series: Series[]; write: (v: number) => string }) => {
  const from = view.from_us / 1e6;
  const shown = series.filter((s) => !s.optional || !nothing(s.values));
  return (
    <Card title={title}>
      {shown.every((s) => s.values.every((v) => v === null)) ? <Empty>Nothing in this time.</Empty> : (
        <Chart at={times(view)} range={[from, from + (view.steps * view.step_us) / 1e6]} write={write} height={150} label={`${title}: ${shown.map((s) => s.label).join(', ')}`} series={shown} />
      )}
    </Card>
  );
};

const each = (list: ModelSeries[], f: (m: ModelSeries) => Values): Series[] =>
  list.slice(0, colors.length).map((m, i) => ({ label: m.name, color: colors[i]!, values: f(m) }));

/** ServerPast has the charts of the server and its busiest models. */
export const ServerPast = ({ past: { value: v, error } }: { past: Polled<HistoryView | null> }) => {
  if (error !== null) return <Bad error={error} />;
  if (!v) return <Empty>Reading the history…</Empty>;
  const list = v.models;
  return (
    <>
      <div class="pasts">
        <Past title="Requests per second" view={v} write={count} series={[...each(list, (m) => m.rate),
          ...(v.total && list.length !== 1 ? [{ label: 'all', color: '--dim', values: v.total.rate, dash: true }] : [])]} />
        <Past title="99th percentile" view={v} write={dur} series={each(list, (m) => m.p99_ns)} />
        <Past title="Errors per second" view={v} write={count} series={v.total ? [{ label: 'all', color: '--wrong', values: v.total.error_rate, fill: true }] : []} />
        <Past title="Cores in use" view={v} write={(x) => x.toFixed(2)} series={[{ label: 'cores', color: '--c1', values: v.cores, fill: true }]} />
        {v.gpus.map((g, i) => (
          <Past key={g.uuid} title={v.gpus.length > 1 ? `GPU ${i}` : 'GPU'} view={v} write={percent} series={[{ label: 'busy', color: '--device', values: g.utilization, fill: true }]} />
        ))}
        {v.gpus.length > 0 && <Past title="Memory" view={v} write={bytes} series={[{ label: 'server', color: '--c2', values: v.memory_bytes }, ...v.gpus.map((g, i) => ({ label: `GPU ${i}`, color: '--device', values: g.memory_used_bytes }))]} />}
      </div>
      {v.more > 0 && <p class="note">The lines are those with the most requests; {v.more} others had some.</p>}
    </>
  );
};

/** ModelPast has the charts of one model. */
export const ModelPast = ({ model, range: key, choose }: { model: string; range: string | undefined; choose: (key: string) => void }) => {
  const range = rangeOf(key === 'live' ? undefined : key);
  const { value: v, error } = usePast(range, model);
  const m = v?.models[0];
  return (
    <section class="past" aria-label="History">
      <div class="pasthead"><h2>History</h2><Ranges chosen={range} view={v} choose={choose} live={false} /></div>
      {error !== null ? <Bad error={error} /> : !v || !m ? <Empty>Reading the history…</Empty> : (
        <div class="pasts few">
          <Past title="Requests per second" view={v} write={count} series={[{ label: 'succeeded', color: '--c1', values: m.rate, fill: true }, { label: 'failed', color: '--wrong', values: m.error_rate, optional: true }]} />
          <Past title="Duration" view={v} write={dur} series={[{ label: 'p50', color: '--c2', values: m.p50_ns }, { label: 'p99', color: '--c3', values: m.p99_ns }]} />
          <Past title="Waiting requests" view={v} write={count} series={[{ label: 'most', color: '--queue', values: m.queue, fill: true }]} />
          {m.ensemble ? null : <Past title="Rows in a batch" view={v} write={count} series={[{ label: 'mean', color: '--compute', values: m.batch_rows }]} />}
          {m.ensemble ? null : <Past title="Queue and compute" view={v} write={dur} series={[{ label: 'queue', color: '--queue', values: m.queue_ns }, { label: 'compute', color: '--compute', values: m.compute_ns }]} />}
        </div>
      )}
    </section>
  );
};
