import { useState } from 'preact/hooks';
import { api, ref, type DueView, type TraceView } from '../api';
import { ago, bytes, clock, dur, plural } from '../format';
import { live } from '../live';
import { go, link } from '../route';
import { timelineLink } from './timeline';
import { Bad, Card, Copy, Empty, Fact, Page, Status, useAsked } from '../parts/bits';
import { Export } from '../parts/export';
import { Tensors } from '../parts/tensors';
import { Parts, Split, Waterfall } from '../parts/waterfall';
import { eventNames, gap, kinds, totals } from '../waterfall';

export const Trace = ({ id }: { id: string }) => {
  const { value: t, error } = useAsked(() => api.trace(id), [id]);
  if (error !== null) return <Page title="Request"><Bad error={error} /><p class="note">Stored traces make room for newer ones.</p></Page>;
  if (!t) return <Page title="Request"><Empty>Reading the trace…</Empty></Page>;
  return (
    <Page title={<>{t.model} <span class="dim">v{t.version}</span> <Status status={t.status} /></>}
      actions={<><Export t={t} /><Rival t={t} />{t.spans.some((s) => s.batch > 0) && <a class="button" href={timelineLink(t.start_us, t.start_us + t.duration_ns / 1000, { trace: ref(t) })}>Timeline</a>}<a class="button" href={link('pipeline', t.model)}>Pipeline</a></>}>
      <dl class="facts line">
        <Fact name="duration"><b class="big">{dur(t.duration_ns)}</b></Fact>
        <Fact name="began"><time dateTime={new Date(t.start_us / 1000).toISOString()}>{clock(t.start_us)}</time> <span class="dim">{ago(live.now() - t.start_us)} ago</span></Fact>
        {t.request_id && <Fact name="request id"><span class="mono">{t.request_id}</span> <a href={link('traces', '', { request: t.request_id })}>all</a></Fact>}
        <Fact name="trace id"><span class="mono wrap">{t.id}</span> <Copy text={t.id} label="the trace id" /></Fact>
        {t.parent_span_id && <Fact name="parent span"><span class="mono">{t.parent_span_id}</span></Fact>}
        <Fact name="retained as">{t.retained}</Fact>
        {t.params.map((p) => <Fact key={p.key} name={p.key}>{p.value}</Fact>)}
      </dl>
      {t.error && <p class="bad">{t.error}</p>}
      {t.reason && <dl class="facts line">
        <Fact name="reason"><span class="mono">{t.reason}</span></Fact>
        {t.step && <Fact name="step">{t.step}</Fact>}
        {!!t.predicted_finish_ms && <Fact name="predicted finish">{t.predicted_finish_ms} ms</Fact>}
      </dl>}
      <TraceBody t={t} />
    </Page>
  );
};

/** flowEvents are those that the graph of the ensemble helps to draw. */
const flowEvents = new Set(['fan_out', 'step_skipped', 'step_fault', 'step_routed']);

/** TraceBody is a trace without its title. */
export const TraceBody = ({ t }: { t: TraceView }) => {
  const worst = totals(t.split)[0], flow = t.ensemble && t.events.some((e) => flowEvents.has(e.kind));
  const { value: g } = useAsked(() => (flow ? api.graph(t.model, t.version).catch(() => null) : Promise.resolve(null)), [t.model, t.version, flow]);
  return (
    <>
      <Card title="Why did it take so long?" actions={worst && <span class="dim">most of it: {(kinds[worst.kind] ?? worst.kind).toLowerCase()}</span>}>
        <Split parts={t.split} total={t.duration_ns} />
        <details class="inorder"><summary>Along the critical path</summary><Parts t={t} /></details>
      </Card>
      <Card title={<>Waterfall <span class="dim">{plural(t.spans.length, 'step')}</span></>} actions={<span class="dim hint">● critical path · press a row for its figures</span>}>
        <Waterfall t={t} g={g} />
      </Card>
      {t.due && <Deadline d={t.due} failed={t.status !== 'ok'} />}
      {t.captured && <Tensors t={t} />}
      <div class="columns even">
        <SameBatches t={t} />
        <Events t={t} />
      </div>
    </>
  );
};

/** Deadline compares what was predicted as the request arrived with what happened. */
const Deadline = ({ d, failed }: { d: DueView; failed: boolean }) => (
  <Card class="deadline" title="Deadline" actions={<span class={`hint ${d.end_ns > d.deadline_ns ? 'wrong' : 'dim'}`}>after {dur(d.deadline_ns)} · {failed ? 'failed' : d.end_ns > d.deadline_ns ? 'late' : 'in time'}</span>}>
    {!d.predicted_ns ? <Empty>Nothing was predicted.</Empty> : (
      <div class="scroll" tabIndex={0} role="region" aria-label="Predictions"><table>
        <thead><tr><th>Step</th><th class="num">Predicted end</th><th class="num">End</th><th class="num">Difference</th></tr></thead>
        <tbody>
          {d.steps.map((s) => <tr key={s.node}><td>{s.step}</td><td class="num mono">{dur(s.predicted_ns)}</td><td class="num mono">{s.end_ns ? dur(s.end_ns) : <span class="dim">did not run</span>}</td><td class="num">{s.end_ns ? gap(s.predicted_ns, s.end_ns) : ''}</td></tr>)}
          <tr><td><b>response</b></td><td class="num mono">{dur(d.predicted_ns)}</td><td class="num mono">{failed ? <span class="dim">none</span> : dur(d.end_ns)}</td><td class="num">{failed ? '' : gap(d.predicted_ns, d.end_ns)}</td></tr>
        </tbody>
      </table></div>
    )}
  </Card>
);

const SameBatches = ({ t }: { t: TraceView }) => (
  <Card title="Requests in the same batches">
    {t.batches.length === 0 ? <Empty>{t.spans.length ? 'The batches are not known any more.' : 'No batch was formed.'}</Empty> : (
      <div class="scroll" tabIndex={0} role="region" aria-label="Requests in the same batches"><table>
        <thead><tr><th>Batch</th><th>Model</th><th class="num">Rows</th><th>Requests</th></tr></thead>
        <tbody>{t.batches.map((b) => (
          <tr key={b.id}><td><a href={link('batches', String(b.id))}>{b.id}</a></td><td>{b.model}</td><td class="num">{b.rows}</td>
            <td>{b.members <= 1 ? <span class="dim">alone</span> : <>{b.traces.filter((x) => x !== t.id && x !== ref(t)).slice(0, 6).map((x) => <a key={x} class="mono chip" href={link('traces', x)}>{x.slice(0, 8)}</a>)} <span class="dim">{b.members} in all</span></>}</td></tr>
        ))}</tbody>
      </table></div>
    )}
  </Card>
);

const Events = ({ t }: { t: TraceView }) => (
  <Card title="Copies and events">
    {t.events.some((e) => e.kind === 'model_load') && <p class="note">The request waited for a model that had been evicted from its device. See --model-memory.</p>}
    {t.events.some((e) => e.kind === 'spill') && <p class="note">The memory pool of a GPU was full: tensors of the events “spill” are in slower memory.</p>}
    {t.events.length === 0 ? <Empty>Nothing was copied between places.</Empty> : (
      <div class="scroll" tabIndex={0} role="region" aria-label="Copies and events"><table>
        <thead><tr><th class="num">At</th><th>Event</th><th>Tensor</th><th class="num">Bytes</th><th>From → to</th></tr></thead>
        <tbody>{t.events.map((e, i) => (
          <tr key={i}><td class="num mono">{dur(e.ns)}</td><td class={e.kind === 'copy' || e.kind === 'spill' ? 'wrong' : ''}>{eventNames[e.kind] ?? e.kind}</td><td>{e.tensor ?? (e.kind === 'spill' ? <span class="dim">memory of the model</span> : '')}</td>
            <td class="num">{e.bytes ? bytes(e.bytes) : ''}</td><td>{e.from && e.to ? `${e.from} → ${e.to}` : ''} {!!e.duration_ns && dur(e.duration_ns)} <span class="dim">{e.reason}</span></td></tr>
        ))}</tbody>
      </table></div>
    )}
  </Card>
);

/** Rival chooses the trace to compare with. */
const Rival = ({ t }: { t: TraceView }) => {
  const [open, set] = useState(false);
  const { value } = useAsked(() => (open ? api.traces({ model: t.model, limit: 30 }) : Promise.resolve(null)), [open, t.id]);
  if (!open) return <button type="button" onClick={() => set(true)}>Compare</button>;
  return (
    <select aria-label="Compare with" onChange={(e) => { if (e.currentTarget.value) go(link('compare', '', { a: ref(t), b: e.currentTarget.value })); }}>
      <option value="">compare with…</option>
      {value?.traces.filter((x) => ref(x) !== ref(t)).map((x) => (
        <option key={ref(x)} value={ref(x)}>{`${clock(x.start_us)} · ${dur(x.duration_ns)} · ${x.status} · v${x.version}${x.request_id ? ` · ${x.request_id.slice(0, 20)}` : ''}`}</option>
      ))}
    </select>
  );
};
