import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { api, Failure, ref, type TensorMeta, type TraceView } from '../api';
import { encode, encodeJSON, fresh, fromExample, type Field } from '../field';
import { dur, plural } from '../format';
import { useLive, type Live } from '../live';
import { go, link } from '../route';
import { Bad, Card, Empty, Page, useAsked } from '../parts/bits';
import { Answer } from '../parts/answer';
import { CopyAs } from '../parts/copyas';
import { InputField } from '../parts/inputfield';
import { find, newTrace, send, stream, type Sent } from '../send';
import { TraceBody } from './trace';

/** isDecoupled reports whether a model sends any number of responses to a request. */
const isDecoupled = (config: Record<string, unknown>): boolean =>
  (config['model_transaction_policy'] as { decoupled?: boolean } | undefined)?.decoupled === true;

export const Try = ({ model, query }: { model: string; query: Record<string, string> }) => {
  const l = useLive();
  const ready = useMemo(() => (l.models ?? []).filter((m) => m.state === 'READY'), [l.models]);
  const names = [...new Set([...ready.filter((m) => m.ensemble), ...ready.filter((m) => !m.ensemble)].map((m) => m.name))];
  const down = ready.some((m) => m.name === model) ? undefined : l.models?.find((m) => m.name === model && m.reason);
  useEffect(() => { if (!model && names[0]) go(link('try', names[0]), true); }, [model, names[0]]);
  return (
    <Page title={<span class="pick">Try {(model || names.length > 0) && <select aria-label="Model" value={model} onChange={(e) => go(link('try', e.currentTarget.value))}>
      {model && !names.includes(model) && <option>{model}</option>}{names.map((n) => <option key={n}>{n}</option>)}
    </select>}</span>} actions={model && <a class="button" href={link('pipeline', model)}>Pipeline</a>}>
      {down ? <Bad error={`${model} is ${down.state.toLowerCase()}: ${down.reason}`} /> : model ? <One key={model} model={model} version={query['version'] ?? ''} /> : <NoModel l={l} />}
    </Page>
  );
};

/** NoModel says what to do when there is nothing to try. */
const NoModel = ({ l }: { l: Live }) => {
  if (l.models === null) {
    return <Empty>{l.server && l.tick > 2 ? <>The list of models is restricted: enter its header in the <a href={link('settings')}>settings</a>.</> : 'Waiting for the server…'}</Empty>;
  }
  if (l.models.length === 0) return <Empty>No models: start the server with --model-repository DIR, or load one with tutti repo load URL MODEL.</Empty>;
  return <Empty>No model is ready. The <a href={link('')}>overview</a> says why.</Empty>;
};

/** shownResponses is how many of a stream's responses are shown, the last ones. */
const shownResponses = 50;

const One = ({ model, version }: { model: string; version: string }) => {
  const meta = useAsked(() => api.meta(model), [model]);
  const config = useAsked(() => api.config(model), [model]);
  const decoupled = config.value !== null && isDecoupled(config.value);
  const [fields, set] = useState<Record<string, Field>>({});
  const [busy, setBusy] = useState(false);
  const [responses, respond] = useState<Sent[]>([]);
  const [count, setCount] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const [trace, setTrace] = useState<TraceView | 'none' | null>(null);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const examples = useAsked(() => api.examples(model).catch(() => []), [model]);
  const [example, choose] = useState('');
  const m = meta.value;
  const fill = (name: string) => {
    const x = examples.value?.find((e) => e.name === name);
    choose(x ? name : '');
    set(Object.fromEntries((m?.inputs ?? []).map((i) => { const given = x?.inputs.find((t) => t.name === i.name); return [i.name, given ? fromExample(given) : fresh(i)]; })));
  };
  useEffect(() => { if (m && examples.value) fill(examples.value[0]?.name ?? ''); }, [m, examples.value]);
  if (meta.error !== null) return <Bad error={meta.error} />;
  if (!m) return <Empty>Reading the inputs…</Empty>;
  const field = (i: TensorMeta): Field => fields[i.name] ?? fresh(i);
  const come = (s: Sent) => { respond((list) => [...list, s].slice(-shownResponses)); setCount((n) => n + 1); };
  const run = async () => {
    setBusy(true); setError(null); respond([]); setCount(0); setTrace(null);
    const id = newTrace(), stop = (abort.current = new AbortController());
    let asked = false;
    try {
      if (decoupled) {
        const members = Object.fromEntries(await Promise.all(m.inputs.map(async (i) => [i.name, await encodeJSON(i, field(i))] as const)));
        asked = true;
        await stream(m, version, members, id, stop.signal, come);
      } else {
        const inputs = await Promise.all(m.inputs.map((i) => encode(i, field(i))));
        asked = true;
        come(await send(m, version, inputs, id));
      }
    } catch (e) {
      if (!stop.signal.aborted) setError(e);
    }
    setBusy(false);
    if (asked) setTrace(await find(id) ?? 'none');
  };
  return (
    <>
      <div class="columns even">
        <Card title="Request">
          {!!examples.value?.length && <label class="inline examples">Example <select value={example} onChange={(e) => fill(e.currentTarget.value)}>
            {examples.value.map((x) => <option key={x.name} value={x.name}>{x.name}</option>)}<option value="">made from the inputs</option>
          </select></label>}
          <form class="stack" onSubmit={(e) => { e.preventDefault(); void run(); }}>
            {m.inputs.map((i) => <InputField key={i.name} m={i} f={field(i)} set={(f) => set((all) => ({ ...all, [i.name]: f }))} />)}
            <div class="buttons"><button type="submit" class="primary" disabled={busy || (config.value === null && config.error === null)}>{busy ? 'Sending…' : 'Send'}</button>
              {busy && decoupled && <button type="button" onClick={() => abort.current?.abort()}>Stop</button>}</div>
            <CopyAs m={m} version={version} decoupled={decoupled} fields={Object.fromEntries(m.inputs.map((i) => [i.name, field(i)]))} />
            {decoupled && <p class="note">The model is decoupled: it sends any number of responses, which are shown as they come (generate_stream).</p>}
          </form>
        </Card>
        <Card title={decoupled ? 'Responses' : 'Response'} actions={count > 0 && <span class="dim">{decoupled ? plural(count, 'response') : `${dur(responses[0]!.after)} seen from here`}</span>}>
          <div role="status">{busy && count === 0 && <Empty>Waiting for the response…</Empty>}</div>
          {decoupled ? <Responses list={responses} count={count} /> : responses.map((s, i) => <Answer key={i} outputs={s.outputs} />)}
          {error !== null && <Bad error={error} />}
          {error instanceof Failure && (error.status === 401 || error.status === 403) && <p class="note">The server wants other credentials: enter the token, or the header that opens this interface, in the <a href={link('settings')}>settings</a>.</p>}
          {count === 0 && !busy && error === null && <Empty>{trace !== null ? 'The model sent no response.' : 'The response will be here, and what its time went into below.'}</Empty>}
        </Card>
      </div>
      {trace === 'none' && <p class="note">The trace of this request is not stored.</p>}
      {trace !== null && trace !== 'none' && <>
        <h2 class="between"><a href={link('traces', ref(trace))}>Trace {trace.id.slice(0, 8)}</a> <span class="dim">{dur(trace.duration_ns)} in the server</span></h2>
        <TraceBody t={trace} />
      </>}
    </>
  );
};

/** Responses are those of a decoupled model, the last ones of many. */
const Responses = ({ list, count }: { list: Sent[]; count: number }) => (
  <ol class="responses" aria-label="Responses">
    {list.map((s, i) => (
      <li key={count - list.length + i}>
        <div class="dim">{count - list.length + i + 1}. after {dur(s.after)}</div>
        <Answer outputs={s.outputs} />
      </li>
    ))}
  </ol>
);
