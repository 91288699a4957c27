// The table of all models, which the overview and the page of models show.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ModelView } from '../api';
import { count, dur } from '../format';
import { useLive } from '../live';
import { go, link, parse } from '../route';
import { Card, Empty, Ratio, Spark, State } from './bits';
import { Virtual } from './virtual';

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
    const names = a.name < b.name ? -1 : a.name > b.name ? 1 : 0; // a locale's order takes too long for ten thousand
    return sign * (by === 'name' ? names : a[by] - b[by]) || names || Number(a.version) - Number(b.version);
  });
}

/** ModelTable lists models; what is chosen and typed is in the address of a page. */
export const ModelTable = ({ page, query, rows }: { page: string; query: Record<string, string>; rows: number }) => {
  const l = useLive();
  const by = columns.find(([k]) => k === query['sort'])?.[0] ?? 'name';
  const up = query['up'] ? query['up'] === '1' : by === 'name';
  const kind = kindsOf[query['kind'] ?? ''] ? query['kind']! : 'all';
  const named = query['name'] ?? '', put = useRef(named); // what the address has, and what was put there
  const [text, setText] = useState(named);
  const set = (v: Record<string, string>) => go(link(page, '', { ...parse(location.hash).query, ...v }), true);
  useEffect(() => { if (named !== put.current) { put.current = named; setText(named); } }, [named]);
  useEffect(() => {
    const t = setTimeout(() => { if (text !== put.current) { put.current = text; set({ name: text }); } }, 300);
    return () => clearTimeout(t);
  }, [text]);
  const list = useMemo(() => {
    const fits = kindsOf[kind]!;
    const t = text.toLowerCase();
    return sorted((l.models ?? []).filter((m) => fits(m) && m.name.toLowerCase().includes(t)), by, up);
  }, [l.models, kind, text, by, up]);
  return (
    <Card title={<>Models <span class="dim">{list.length}</span></>} actions={
      <div class="tools">
        <div class="tabs" role="group" aria-label="Which models">
          {Object.keys(kindsOf).map((k) => <button type="button" key={k} aria-pressed={k === kind} onClick={() => set({ kind: k })}>{k}</button>)}
        </div>
        <input type="search" placeholder="Filter" aria-label="Filter models by name" value={text} onInput={(e) => setText(e.currentTarget.value)} />
      </div>
    }>
      {l.models === null ? <Empty>Waiting for the server…</Empty> : list.length === 0 ? <Empty>{l.models.length ? 'No model fits.' : 'No models: start the server with --model-repository DIR, or load one with tutti repo load URL MODEL.'}</Empty> : (
        <div class="models" style={{ '--rows': Math.min(list.length, rows) } as never}>
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
  );
};

const ModelRow = ({ m }: { m: ModelView }) => (
  <div class="mrow" role="row">
    <span role="cell" class="mname"><a class="clip" href={link(m.ensemble ? 'pipeline' : 'model', m.name)} title={m.name}>{m.name}</a>
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

