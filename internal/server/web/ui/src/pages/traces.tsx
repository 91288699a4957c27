import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import { api, type TraceSummary } from '../api';
import { histogram, low, quantile } from '../bins';
import { clock, dur, plural } from '../format';
import { useLive } from '../live';
import { go, link } from '../route';
import { Bad, Card, Empty, memo, Page } from '../parts/bits';
import { HeatMap } from '../parts/heatmap';
import { traceColumns, TraceRow } from '../parts/traces';
import { Virtual } from '../parts/virtual';

const pageSize = 1000;
const mostTraces = 20_000;
const asked = ['request', 'trace', 'model', 'status', 'retained', 'min_ns', 'max_ns', 'from_us', 'to_us', 'param', 'value'];

/** parseDur reads "250us", "1.5 ms" or "2s"; a bare number is in milliseconds. */
export function parseDur(text: string): number | undefined {
  const m = /^\s*([\d.]+)\s*(ns|us|µs|ms|s|)\s*$/.exec(text);
  if (!m) return undefined;
  const unit = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, '': 1e6 }[m[2] as 'ns'];
  const n = Math.round(Number(m[1]) * unit);
  return Number.isFinite(n) ? n : undefined;
}

/** useTraces reads the stored traces that a query asks for, a page after the other. */
function useTraces(q: Record<string, string>) {
  const key = JSON.stringify(q);
  const [s, set] = useState<{ list: TraceSummary[]; done: boolean; error: unknown }>({ list: [], done: false, error: null });
  const [turn, again] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    set({ list: [], done: false, error: null });
    void (async () => {
      let list: TraceSummary[] = [], cursor = 0;
      do {
        const page = await api.traces({ ...q, limit: pageSize, cursor }, abort.signal);
        list = list.concat(page.traces);
        cursor = page.next;
        if (abort.signal.aborted) return;
        set({ list, done: cursor === 0 || list.length >= mostTraces, error: null });
      } while (cursor !== 0 && list.length < mostTraces);
    })().catch((error: unknown) => { if (!abort.signal.aborted) set((o) => ({ ...o, done: true, error })); });
    return () => abort.abort();
  }, [key, turn]);
  return { ...s, again: () => again((n) => n + 1) };
}

export const Traces = ({ query }: { query: Record<string, string> }) => {
  const q = Object.fromEntries(asked.filter((k) => query[k]).map((k) => [k, query[k]!]));
  const { list, done, error, again } = useTraces(q);
  const narrow = useCallback((v: Record<string, number>) => go(link('traces', '', { ...q, ...v })), [JSON.stringify(q)]);
  const sorted = useMemo(() => list.map((t) => t.duration_ns).sort((a, b) => a - b), [list]);
  const failed = useMemo(() => list.reduce((n, t) => n + (t.status === 'ok' ? 0 : 1), 0), [list]);
  const [byTime, setByTime] = useState(true);
  const shown = useMemo(() => (byTime ? list : [...list].sort((a, b) => b.duration_ns - a.duration_ns)), [list, byTime]);
  const most = sorted.at(-1) ?? 1;
  return (
    <Page title="Traces" actions={<button type="button" onClick={again}>Refresh</button>}>
      <Form key={JSON.stringify(q)} q={q} />
      {(q['from_us'] || q['to_us']) && (
        <p class="note">From {clock(Number(q['from_us'] ?? 0))} to {q['to_us'] ? clock(Number(q['to_us'])) : 'now'} · <a href={link('traces', '', { ...q, from_us: undefined, to_us: undefined, min_ns: undefined, max_ns: undefined })}>all times</a></p>
      )}
      {error !== null && <Bad error={error} />}
      {list.length > 0 && (
        <div class="columns wide">
          <Card title="Latency over time" actions={<span class="dim hint">stored traces; press a cell for its traces</span>}>
            <HeatMap list={list} pick={narrow} />
          </Card>
          <Card title="Distribution" actions={<span class="dim">p50 {dur(quantile(sorted, 0.5))} · p99 {dur(quantile(sorted, 0.99))}</span>}>
            <Histogram list={list} pick={narrow} />
          </Card>
        </div>
      )}
      <Card title={<>{plural(list.length, 'trace')}{!done && ' so far'} <span class="dim">{failed > 0 && `${failed} failed`}</span></>} actions={
        <div class="tabs" role="group" aria-label="Order">
          <button type="button" aria-pressed={byTime} onClick={() => setByTime(true)}>newest</button>
          <button type="button" aria-pressed={!byTime} onClick={() => setByTime(false)}>slowest</button>
        </div>
      }>
        {list.length === 0 ? <Empty>{done ? 'No stored trace fits. Failed and slow requests are retained, and one in so many of the others is sampled.' : 'Searching…'}</Empty> : (
          <div class="tracelist"><Virtual list={shown} row={34} label="Traces" columns={traceColumns} render={(t) => <TraceRow t={t} most={most} />} /></div>
        )}
      </Card>
    </Page>
  );
};

const Form = ({ q }: { q: Record<string, string> }) => {
  const l = useLive();
  const names = useMemo(() => [...new Set((l.models ?? []).map((m) => m.name))], [l.models?.length]);
  const submit = (f: HTMLFormElement) => {
    const d = new FormData(f), text = (k: string) => String(d.get(k) ?? '').trim();
    go(link('traces', '', {
      ...q, request: text('request'), trace: text('trace'), model: text('model'), status: text('status'), retained: text('retained'),
      min_ns: parseDur(text('min')), max_ns: parseDur(text('max')), param: text('param'), value: text('value'),
    }));
  };
  const ms = (k: string) => (q[k] ? dur(Number(q[k])).replace(' ', '') : '');
  return (
    <form class="filters" onSubmit={(e) => { e.preventDefault(); submit(e.currentTarget); }} onReset={(e) => { e.preventDefault(); go(link('traces')); }}>
      <label>Model<input name="model" list="models" defaultValue={q['model'] ?? ''} /><datalist id="models">{names.map((n) => <option key={n} value={n} />)}</datalist></label>
      <label>Request id<input name="request" defaultValue={q['request'] ?? ''} /></label>
      <label>Status<select name="status" value={q['status'] ?? ''} onChange={(e) => submit(e.currentTarget.form!)}>
        <option value="">any</option><option>ok</option><option>failed</option>
        {q['status'] && !['ok', 'failed'].includes(q['status']) && <option>{q['status']}</option>}
      </select></label>
      <label>Retained<select name="retained" value={q['retained'] ?? ''} onChange={(e) => submit(e.currentTarget.form!)}>
        <option value="">any</option><option>failed</option><option>slow</option><option>requested</option><option>sampled</option>
      </select></label>
      <label class="short">At least<input name="min" placeholder="10ms" defaultValue={ms('min_ns')} /></label>
      <label class="short">At most<input name="max" placeholder="1s" defaultValue={ms('max_ns')} /></label>
      <details open={!!(q['trace'] || q['param'])}><summary>more</summary><div>
        <label>Trace id<input name="trace" defaultValue={q['trace'] ?? ''} /></label>
        <label>Parameter<input name="param" defaultValue={q['param'] ?? ''} /></label>
        <label>Value<input name="value" defaultValue={q['value'] ?? ''} /></label>
      </div></details>
      <div class="buttons"><button type="submit" class="primary">Search</button><button type="reset">Clear</button></div>
    </form>
  );
};

const Histogram = memo(({ list, pick }: { list: TraceSummary[]; pick: (v: Record<string, number>) => void }) => {
  const bins = useMemo(() => histogram(list), [list]);
  const most = Math.max(...bins.map((b) => b.count), 1);
  return (
    <ol class="histogram" aria-label="Number of traces by duration">
      {bins.map((b) => {
        const min_ns = Math.floor(low(b.lane)), max_ns = Math.ceil(low(b.lane + 1));
        const text = `${dur(min_ns)} to ${dur(max_ns)}: ${b.count}${b.failed ? `, ${b.failed} failed` : ''}`;
        return (
          <li key={b.lane}>
            <button type="button" disabled={b.count === 0} title={text} onClick={() => pick({ min_ns, max_ns })}>
              <span class="dim">{dur(min_ns)}<span class="sr"> to {dur(max_ns)}:</span></span>
              <span class="hbar"><i style={{ width: `${((b.count - b.failed) / most) * 100}%` }} /><i class="wrong" style={{ width: `${(b.failed / most) * 100}%` }} /></span>
              <b>{b.count || ''}{b.failed > 0 && <span class="sr">, {b.failed} failed</span>}</b>
            </button>
          </li>
        );
      })}
    </ol>
  );
});
