// The waterfall of a request and what its time went into.
import { useMemo, useState } from 'preact/hooks';
import type { GraphView, PartView, StepView, TraceView } from '../api';
import { bytes, dur, percent, plural } from '../format';
import { link } from '../route';
import { decided, eventNames, gap, kinds, rows, ticks, totals, type Row } from '../waterfall';
import { Fact, useWidth } from './bits';

/** Split is the bar of parts along the critical path, with a table of their sums. */
export const Split = ({ parts, total }: { parts: PartView[]; total: number }) => {
  const sums = useMemo(() => totals(parts), [parts]);
  const share = (ns: number) => (total > 0 ? ns / total : 0);
  return (
    <div class="split">
      <div class="bar" role="img" aria-label={sums.map((p) => `${kinds[p.kind] ?? p.kind} ${percent(share(p.ns))}`).join(', ')}>
        {parts.filter((p) => p.ns > 0).map((p, i) => (
          <i key={i} class={`fill ${p.kind}`} style={{ width: `${share(p.ns) * 100}%` }} title={`${p.text}: ${dur(p.ns)}`} />
        ))}
      </div>
      <ul class="sums">
        {sums.map((p) => (
          <li key={p.kind}><i class={`fill ${p.kind}`} /><span>{kinds[p.kind] ?? p.kind}</span><b>{dur(p.ns)}</b><span class="dim">{percent(share(p.ns))}</span></li>
        ))}
      </ul>
    </div>
  );
};

/** Parts lists the parts as they follow each other. */
export const Parts = ({ t }: { t: TraceView }) => (
  <ol class="parts">
    {t.split.filter((p) => p.ns > 0).map((p, i) => (
      <li key={i}>
        <span class="mono dim">{dur(p.start_ns)}</span><i class={`fill ${p.kind}`} />
        <span>{p.text}{!!p.batch && <> · <a href={link('batches', String(p.batch))}>batch {p.batch}</a></>}</span>
        <b class="mono">{dur(p.ns)}</b>
      </li>
    ))}
  </ol>
);

export const Waterfall = ({ t, g = null }: { t: TraceView; g?: GraphView | null }) => {
  const list = useMemo(() => rows(t, g), [t, g]);
  const [open, set] = useState('');
  const [box, width] = useWidth<HTMLDivElement>();
  const narrow = width > 0 && width < 560;
  const latest = Math.max(t.duration_ns, ...list.map((r) => Math.max(r.to, r.predicted ?? 0)), 1);
  const total = t.due && t.due.deadline_ns > latest && t.due.deadline_ns < 2 * latest ? t.due.deadline_ns : latest;
  const marks = ticks(total, narrow ? 3 : 6);
  const x = (ns: number) => `${Math.max(0, Math.min(100, (ns / total) * 100))}%`;
  return (
    <div class="fall" ref={box}>
      <div class="axis" aria-hidden="true"><span /><div>{marks.filter((v) => v < total * (narrow ? 0.75 : 0.94)).map((v) => <i key={v} style={{ left: x(v) }}>{dur(v)}</i>)}</div><span /></div>
      <ol>
        {list.map((r) => (
          <li key={r.key} class={`${r.step?.critical ? 'critical' : ''}${r.skipped === undefined ? '' : ' skipped'}${r.depth ? ' inside' : ''}`}>
            <button type="button" class="wrow" aria-expanded={open === r.key} onClick={() => set(open === r.key ? '' : r.key)}>
              <span class="wname" style={{ paddingLeft: `${6 + Math.min(r.depth, 3) * 10}px` }}>
                <span class="clip">{r.label}{r.step?.critical && <abbr title="on the critical path">●</abbr>}</span>
                {r.role && <small class="clip dim" title={r.role}>{r.role}</small>}
              </span>
              <span class="track">
                {marks.map((v) => <i key={v} class="grid" style={{ left: x(v) }} />)}
                {r.segments.map((s, i) => (
                  <i key={i} class={`fill seg ${s.kind}${r.key === 'request' ? ' own' : ''}`} title={`${s.title}: ${dur(s.to - s.from)}`}
                    style={{ left: x(s.from), width: `max(1px, ${x(s.to - s.from)})` }} />
                ))}
                {!!r.step?.device_end_ns && <i class="ondevice" title={`on ${r.step.place}: ${dur(deviceTime(r.step))}`} style={{ left: x(r.step.device_start_ns ?? 0), width: `max(2px, ${x(deviceTime(r.step))})` }} />}
                {r.predicted !== undefined && <i class="predicted" title={`predicted end: ${dur(r.predicted)}`} style={{ left: x(r.predicted) }} />}
                {r.key === 'request' && !!t.due && t.due.deadline_ns <= total && <i class="due" title={`deadline: ${dur(t.due.deadline_ns)}`} style={{ left: x(t.due.deadline_ns) }} />}
                {r.events.map((e, i) => <i key={`e${i}`} class={`event ${e.kind}`} style={{ left: x(e.ns) }} title={eventTitle(e)} />)}
              </span>
              <b class="wdur">{r.skipped === undefined && !r.key.startsWith('predicted') ? dur(r.to - r.from) : '–'}</b>
            </button>
            {open === r.key && <Detail r={r} t={t} />}
          </li>
        ))}
      </ol>
      <Legend t={t} />
      <Decided t={t} />
    </div>
  );
};

/** Decided lists which way the request took. */
const Decided = ({ t }: { t: TraceView }) => {
  const list = decided(t), most = 12;
  if (list.length === 0) return null;
  return (
    <ul class="plain decided" aria-label="What was decided">
      {list.slice(0, most).map((x) => <li key={x}>{x}</li>)}
      {list.length > most && <li class="dim">and {list.length - most} more, in the table of events</li>}
    </ul>
  );
};

/** deviceTime is how long the device executed a step. */
const deviceTime = (s: StepView): number => (s.device_end_ns ?? 0) - (s.device_start_ns ?? 0);

/** Legend names the marks that a waterfall has. */
const Legend = ({ t }: { t: TraceView }) => {
  const marks = [...new Set(t.events.map((e) => e.kind))];
  const devices = [...new Set(t.spans.filter((s) => s.device_end_ns).map((s) => s.place))];
  if (marks.length === 0 && devices.length === 0 && !t.due) return null;
  return (
    <ul class="legend marks">
      {!!t.due?.predicted_ns && <li><i class="predicted" />predicted end, as the request arrived</li>}
      {!!t.due && <li><i class="due" />deadline</li>}
      {devices.length > 0 && <li><i class="ondevice" />time on {devices.join(', ')}</li>}
      {marks.map((k) => <li key={k}><i class={`event ${k}`} />{eventNames[k] ?? k}</li>)}
    </ul>
  );
};

const eventTitle = (e: TraceView['events'][number]): string =>
  [eventNames[e.kind] ?? e.kind, e.tensor, e.bytes ? bytes(e.bytes) : '', e.duration_ns ? dur(e.duration_ns) : '', e.from && e.to ? `${e.from} to ${e.to}` : '', e.reason].filter(Boolean).join(' · ');

/** Runs lists the executions of a step inside of a fan-out. */
const Runs = ({ r }: { r: Row }) => (
  <div class="detail scroll" tabIndex={0} role="region" aria-label={`Groups of ${r.label}`}><table>
    <thead><tr><th>Group</th><th class="num">Items</th><th class="num">Batch</th><th class="num">Its rows</th><th>Status</th><th class="num">From</th><th class="num">Took</th></tr></thead>
    <tbody>{r.runs.map((s, i) => (
      <tr key={i}><td>{s.sub_run || i + 1}</td><td class="num">{s.rows}</td>
        <td class="num">{s.batch > 0 && <a href={link('batches', String(s.batch))}>{s.batch}</a>}</td><td class="num">{s.batch > 0 && s.batch_rows}</td>
        <td>{s.status.replaceAll('_', ' ')}</td><td class="num mono">{dur(s.ready_ns || s.enqueued_ns)}</td><td class="num mono">{dur(s.done_ns - (s.ready_ns || s.enqueued_ns))}</td></tr>
    ))}</tbody>
  </table></div>
);

const Detail = ({ r, t }: { r: Row; t: TraceView }) => {
  const s = r.step;
  if (r.key.startsWith('predicted')) return <p class="detail">Expected to be done after {dur(r.predicted ?? 0)}; it did not run.</p>;
  if (r.skipped !== undefined) return <p class="detail">Skipped at {dur(r.from)}: {r.skipped}</p>;
  if (r.key.startsWith('fan-out')) return <ul class="plain detail">{r.events.map((e, i) => <li key={i}>{dur(e.ns)} {e.reason}</li>)}</ul>;
  if (r.runs.length > 1) return <Runs r={r} />;
  if (!s) return (
    <dl class="facts detail">{t.moments.map((m) => <Fact key={m.name} name={m.name}>{dur(m.ns)}</Fact>)}</dl>
  );
  return (
    <div class="detail">
      <dl class="facts">
        <Fact name="model">{s.model} {s.version}</Fact>
        <Fact name="status">{s.status.replaceAll('_', ' ')}</Fact>
        <Fact name="sub-run">{s.sub_run}</Fact>
        {s.batch > 0 && <Fact name="batch"><a href={link('batches', String(s.batch))}>{s.batch}</a></Fact>}
        {s.batch > 0 && <Fact name="rows">{`${s.rows} of ${s.batch_rows}`}</Fact>}
        {s.members > 1 && <Fact name="shared with">{plural(s.members - 1, 'request')}</Fact>}
        {s.elements > 0 && <Fact name="padding">{percent(s.padding / s.elements)}</Fact>}
        {s.batch > 0 && <Fact name="instance">{`${s.instance} on ${s.place}`}</Fact>}
        {s.precision && <Fact name="precision">{s.precision}</Fact>}
        {s.before > 0 && <Fact name="instance was busy with"><a href={link('batches', String(s.before))}>batch {s.before}</a></Fact>}
        {!!s.device_end_ns && <Fact name={`time on ${s.place}`}>{dur(deviceTime(s))} <span class="dim">from {dur(s.device_start_ns ?? 0)} on</span></Fact>}
        {!!s.device_end_ns && <Fact name="host, to put it there">{dur(s.end_ns - s.start_ns)}</Fact>}
        {r.predicted !== undefined && <Fact name="predicted end">{dur(r.predicted)} <span class="dim">done {gap(r.predicted, s.done_ns)}</span></Fact>}
        {r.segments.map((g, i) => <Fact key={i} name={g.title}>{dur(g.to - g.from)}</Fact>)}
      </dl>
      {r.events.length > 0 && <ul class="plain">{r.events.map((e, i) => <li key={i}>{dur(e.ns)} {eventTitle(e)}</li>)}</ul>}
    </div>
  );
};
