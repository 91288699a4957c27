// What ran on the instances of models, and when.
import { useMemo, useRef, useState } from 'preact/hooks';
import { api, Failure, type RunView, type TimelineView } from '../api';
import { clock, dur, percent, plural, storedText } from '../format';
import { plan } from '../graphs';
import { useLive } from '../live';
import { usePolled } from '../poll';
import { go, link } from '../route';
import { covers, cut, endOf, moved, zoomed, type Interval } from '../timeline';
import { Bad, Card, Empty, Fact, Page, useAsked } from '../parts/bits';
import { laneName, Lanes } from '../parts/lanes';

const spans = [100e3, 1e6, 10e6, 60e6];
const every = 2000; // milliseconds between two readings of the present

/** timelineLink leads to an interval around a part of the timeline. */
export const timelineLink = (from: number, to: number, more: Record<string, string> = {}): string => {
  const v = zoomed({ from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 1) }, 1.5);
  return link('timeline', '', { ...more, from_us: v.from, to_us: v.to });
};

export const Timeline = ({ query }: { query: Record<string, string> }) => {
  const l = useLive();
  const { model = '', pipeline = '', trace = '' } = query;
  const fixed: Interval | null = Number(query['to_us']) > Number(query['from_us']) ? { from: Number(query['from_us']), to: Number(query['to_us']) } : null;
  const span = spans.includes(Number(query['span'])) ? Number(query['span']) : 10e6;
  const steps = useAsked(() => (pipeline ? plan(pipeline, '0').then((g) => [...new Set(g.nodes.filter((n) => n.model).map((n) => n.model))]) : Promise.resolve([])), [pipeline]);
  const models = model ? [model] : steps.value;
  const marked = useAsked(() => (trace ? api.trace(trace) : Promise.resolve(null)), [trace]);
  const of = useMemo(() => (marked.value ? new Set(marked.value.spans.map((s) => s.batch)) : null), [marked.value]);
  const held = useRef<{ v: TimelineView; of: string } | null>(null);
  const read = async (list: string[]): Promise<TimelineView> => {
    const of = list.join('\n');
    if (fixed && held.current?.of === of && covers(held.current.v, fixed)) return cut(held.current.v, fixed); // the server may have dropped its batches since
    held.current = { v: await api.timeline(fixed ?? (await present(span)), list), of };
    return held.current.v;
  };
  const asked = usePolled(async () => (models === null ? null : read(models)), [fixed, span, models], () => (fixed ? 0 : every));
  const last = useRef<TimelineView | null>(null);
  if (asked.value) last.current = asked.value;
  const v = last.current; // the one before stays until the next has come, with the keyboard's place in it
  const [chosen, choose] = useState<RunView | null>(null);
  const set = (q: Record<string, string | number | undefined>) => go(link('timeline', '', { ...query, ...q }), true);
  const show = (i: Interval | null) => set({ from_us: i?.from, to_us: i?.to });
  const at = v && chosen ? v.runs.find((r) => r.id === chosen.id) ?? null : null;
  const names = useMemo(() => [...new Set((l.models ?? []).filter((m) => !m.ensemble).map((m) => m.name))].sort(), [l.models?.length]);
  const error = asked.error ?? steps.error ?? marked.error;
  return (
    <Page title="Timeline" actions={
      <>
        <label class="inline">Model <select value={model} onChange={(e) => set({ model: e.currentTarget.value, pipeline: undefined })}>
          <option value="">{pipeline ? `steps of ${pipeline}` : 'all'}</option>{model && !names.includes(model) && <option>{model}</option>}{names.map((n) => <option key={n}>{n}</option>)}
        </select></label>
        <label class="inline">Length <select value={fixed ? '' : span} onChange={(e) => set({ span: e.currentTarget.value, from_us: undefined, to_us: undefined })}>
          {fixed && <option value="">{dur((fixed.to - fixed.from) * 1000)}</option>}{spans.map((s) => <option key={s} value={s}>last {dur(s * 1000)}</option>)}
        </select></label>
        {fixed ? <button type="button" onClick={() => show(null)}>Follow</button> : <button type="button" disabled={!v} onClick={() => v && show({ from: v.from_us, to: v.to_us })}>Pause</button>}
      </>
    }>
      {error !== null && <Bad error={error} />}
      {trace && marked.value && <p class="note">The batches of <a href={link('traces', trace)}>request {marked.value.request_id || marked.value.id.slice(0, 8)}</a> are framed. <a href={link('timeline', '', { ...query, trace: undefined })}>Show all alike</a></p>}
      <Card title={v ? <>{clock(v.from_us)} to {clock(v.to_us)} <span class="dim">{dur((v.to_us - v.from_us) * 1000)}</span></> : 'Reading…'} actions={v && (
        <div class="buttons">
          <button type="button" aria-label="Earlier" onClick={() => show(moved({ from: v.from_us, to: v.to_us }, -0.5))}>←</button>
          <button type="button" aria-label="Later" onClick={() => show(moved({ from: v.from_us, to: v.to_us }, 0.5))}>→</button>
          <button type="button" aria-label="Longer" onClick={() => show(zoomed({ from: v.from_us, to: v.to_us }, 2))}>−</button>
          <button type="button" aria-label="Shorter" onClick={() => show(zoomed({ from: v.from_us, to: v.to_us }, 0.5, at ? v.from_us + at.start_ns / 1000 : undefined))}>+</button>
        </div>)}>
        {v && v.runs.length === 0 && <Empty>{v.oldest_us > 0 && v.to_us < v.oldest_us ? `Batches are known since ${clock(v.oldest_us)} only.` : 'No known batch ran in this time.'}</Empty>}
        {v && v.runs.length > 0 && <Lanes v={v} at={at} choose={choose} open={(r) => go(link('batches', String(r.id)))} show={show} of={of} />}
        {v && <Known v={v} />}
        <ul class="legend marks" aria-label="Colours"><li><i class="fill copies" />input</li><li><i class="fill compute" />compute</li><li><i class="fill encode" />output</li>
          <li class="dim hint">numbers are rows; drag over a part to enlarge it</li></ul>
      </Card>
      {v && at && <Chosen r={at} v={v} />}
    </Page>
  );
};

/** present is the latest interval, by the clock of the server. */
async function present(span: number): Promise<Partial<Interval>> {
  if (span === 10e6) return {}; // the default of the server
  const { now_us } = await api.server();
  return { from: now_us - span, to: now_us };
}

/** Known says which share of all executions the view has. */
const Known = ({ v }: { v: TimelineView }) => {
  const s = v.share, gone = v.oldest_us > v.from_us && v.runs.length > 0;
  return (
    <p class="note">
      {s && s.executed > 0 ? `${s.known.toLocaleString('en')} of ${plural(s.executed, 'execution')} (${percent(s.known / s.executed)}) from ${clock(s.from_us).slice(0, 8)} to ${clock(s.to_us).slice(0, 8)} are known${s.known < s.executed ? ': those with a request that was examined' : ''}.`
        : 'How many executions there were in this time is not known: they are counted once a second, and for a minute.'}
      {gone && ` Batches that ended before ${clock(v.oldest_us)} are not stored any more.`}
      {v.more > 0 && ` The oldest ${plural(v.more, 'batch', 'batches')} of this time are left out: choose a shorter one.`}
    </p>
  );
};

/** Chosen is the batch that was pressed, with its requests. */
const Chosen = ({ r, v }: { r: RunView; v: TimelineView }) => {
  const lane = v.lanes[r.lane]!;
  const { value: b, error } = useAsked(() => api.batch(String(r.id)), [r.id]);
  const { value: stored } = useAsked(() => (b ? Promise.all(b.traces.map((trace) => api.traces({ trace, limit: 1 }).then((l) => l.traces.length > 0))) : Promise.resolve(null)), [b]);
  return (
    <Card class="chosenrun" title={<><a href={link('batches', String(r.id))}>Batch {r.id}</a> <span class="dim">of <a href={link('pipeline', lane.model)}>{laneName(lane)}</a></span></>}>
      {r.failed && <p class="bad">The batch failed.</p>}
      <dl class="facts">
        <Fact name="began">{clock(v.from_us + r.start_ns / 1000)}</Fact><Fact name="duration">{dur(endOf(r) - r.start_ns)}</Fact>
        <Fact name="input, compute, output">{`${dur(r.input_ns)}, ${dur(r.infer_ns)}, ${dur(r.output_ns)}`}</Fact>
        <Fact name="rows">{r.rows}</Fact><Fact name="requests">{r.members}</Fact><Fact name="version">{lane.version}</Fact>
      </dl>
      {error !== null && (error instanceof Failure && error.status === 404 ? <p class="note">Its requests are not known any more: newer batches have replaced it.</p> : <Bad error={error} />)}
      {b && stored && <div><p>{b.traces.map((t, i) => stored[i] && <a key={t} class="chip mono" href={link('traces', t)}>{t.slice(0, 12)}</a>)}</p><p class="note">{storedText(stored.filter(Boolean).length, b.members)}</p></div>}
    </Card>
  );
};
