import { useEffect, useMemo, useState } from 'preact/hooks';
import { api, headers, ref, type ModelMeta, type TensorMeta, type TraceView } from '../api';
import { dur } from '../format';
import { useLive } from '../live';
import { go, link } from '../route';
import { Bad, Card, Empty, Page, useAsked } from '../parts/bits';
import { Answer } from '../parts/answer';
import { body, encodeBlobs, encodeNumbers, guess, parseNumbers, parseShape, read, type Input, type Output } from '../tensor';
import { TraceBody } from './trace';

/** Field is what was filled in for an input. */
interface Field { shape: string; text: string; files: File[]; mode: 'text' | 'file' | 'lines' }

const looksLikeFile = (m: TensorMeta) => /image|picture|photo|jpeg|png|audio|file/i.test(m.name);

/** fresh is a field as it is first shown. */
export function fresh(m: TensorMeta): Field {
  return { shape: guess(m).join(', '), text: m.datatype === 'BYTES' ? '' : '0', files: [], mode: m.datatype === 'BYTES' && looksLikeFile(m) ? 'file' : 'text' };
}

/** encode makes the tensor of a field. */
export async function encode(m: TensorMeta, f: Field): Promise<Input> {
  const shape = parseShape(f.shape);
  if (m.datatype !== 'BYTES') return { name: m.name, datatype: m.datatype, shape, data: encodeNumbers(m.datatype, parseNumbers(f.text), shape) };
  const utf8 = new TextEncoder();
  const list = f.mode === 'file'
    ? await Promise.all(f.files.map(async (x) => new Uint8Array(await x.arrayBuffer())))
    : (f.mode === 'lines' ? f.text.split('\n') : [f.text]).map((t) => utf8.encode(t));
  const n = shape.reduce((a, b) => a * b, 1);
  if (list.length !== n) throw new Error(`input '${m.name}' takes ${n} ${f.mode === 'file' ? 'files' : 'texts'} for shape [${shape.join(', ')}], found ${list.length}`);
  return { name: m.name, datatype: m.datatype, shape, data: encodeBlobs(list) };
}

interface Done { outputs: Output[]; took: number; id: string }

async function send(m: ModelMeta, version: string, inputs: Input[]): Promise<Done> {
  const id = `try-${crypto.getRandomValues(new Uint32Array(2)).reduce((s, n) => s + n.toString(36), '')}`;
  const b = body(id, inputs, m.outputs.map((o) => o.name));
  const began = performance.now();
  const path = `../v2/models/${encodeURIComponent(m.name)}${version ? `/versions/${version}` : ''}/infer`;
  const r = await fetch(path, {
    method: 'POST', body: b.body,
    headers: { ...headers(), 'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': String(b.header) },
  });
  const data = new Uint8Array(await r.arrayBuffer());
  const took = (performance.now() - began) * 1e6;
  if (!r.ok) {
    let text = new TextDecoder().decode(data);
    try { text = (JSON.parse(text) as { error: string }).error; } catch { /* not JSON */ }
    throw Object.assign(new Error(text || `${r.status} ${r.statusText}`), { id });
  }
  const header = Number(r.headers.get('Inference-Header-Content-Length') ?? data.length);
  return { outputs: read(data, header), took, id };
}

/** find waits until the trace of a request is stored. */
async function find(id: string): Promise<TraceView | null> {
  for (let n = 0; n < 8; n++) {
    const { traces } = await api.traces({ request: id, limit: 1 });
    if (traces[0]) return api.trace(ref(traces[0]));
    await new Promise((f) => setTimeout(f, 60 * (n + 1)));
  }
  return null;
}

export const Try = ({ model, query }: { model: string; query: Record<string, string> }) => {
  const l = useLive();
  const ready = useMemo(() => (l.models ?? []).filter((m) => m.state === 'READY'), [l.models]);
  const names = [...new Set([...ready.filter((m) => m.ensemble), ...ready.filter((m) => !m.ensemble)].map((m) => m.name))];
  useEffect(() => { if (!model && names[0]) go(link('try', names[0]), true); }, [model, names[0]]);
  return (
    <Page title={<span class="pick">Try <select aria-label="Model" value={model} onChange={(e) => go(link('try', e.currentTarget.value))}>
      {model && !names.includes(model) && <option>{model}</option>}{names.map((n) => <option key={n}>{n}</option>)}
    </select></span>} actions={model && <a class="button" href={link('pipeline', model)}>Pipeline</a>}>
      {model ? <One key={model} model={model} version={query['version'] ?? ''} /> : <Empty>Waiting for the server…</Empty>}
    </Page>
  );
};

const One = ({ model, version }: { model: string; version: string }) => {
  const meta = useAsked(() => api.meta(model), [model]);
  const [fields, set] = useState<Record<string, Field>>({});
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState<Done | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [trace, setTrace] = useState<TraceView | 'none' | null>(null);
  useEffect(() => { if (meta.value) set(Object.fromEntries(meta.value.inputs.map((i) => [i.name, fresh(i)]))); }, [meta.value]);
  const m = meta.value;
  if (meta.error !== null) return <Bad error={meta.error} />;
  if (!m) return <Empty>Reading the inputs…</Empty>;
  const run = async () => {
    setBusy(true); setError(null); setDone(null); setTrace(null);
    let id = '';
    try {
      const d = await send(m, version, await Promise.all(m.inputs.map((i) => encode(i, fields[i.name] ?? fresh(i)))));
      id = d.id;
      setDone(d);
    } catch (e) {
      setError(e);
      id = (e as { id?: string }).id ?? '';
    }
    setBusy(false);
    if (id) setTrace(await find(id).catch(() => null) ?? 'none');
  };
  return (
    <>
      <div class="columns even">
        <Card title="Request">
          <form class="stack" onSubmit={(e) => { e.preventDefault(); void run(); }}>
            {m.inputs.map((i) => <InputField key={i.name} m={i} f={fields[i.name] ?? fresh(i)} set={(f) => set((all) => ({ ...all, [i.name]: f }))} />)}
            <div class="buttons"><button type="submit" class="primary" disabled={busy}>{busy ? 'Sending…' : 'Send'}</button></div>
          </form>
        </Card>
        <Card title="Answer" actions={done && <span class="dim">{dur(done.took)} seen from here</span>}>
          <div role="status">{busy && <Empty>Waiting for the answer…</Empty>}</div>
          {error !== null && <Bad error={error} />}
          {done ? <Answer outputs={done.outputs} /> : !busy && error === null && <Empty>The answer will be here, and what its time went into below.</Empty>}
        </Card>
      </div>
      {trace === 'none' && <p class="note">The trace of this request was not stored.</p>}
      {trace !== null && trace !== 'none' && <>
        <h2 class="between"><a href={link('traces', ref(trace))}>Trace {trace.id.slice(0, 8)}</a> <span class="dim">{dur(trace.duration_ns)} in the server</span></h2>
        <TraceBody t={trace} />
      </>}
    </>
  );
};

const InputField = ({ m, f, set }: { m: TensorMeta; f: Field; set: (f: Field) => void }) => {
  const url = useMemo(() => (f.files[0]?.type.startsWith('image/') ? URL.createObjectURL(f.files[0]) : ''), [f.files]);
  useEffect(() => () => { if (url) URL.revokeObjectURL(url); }, [url]);
  const bytes = m.datatype === 'BYTES';
  const many = m.shape.length > 0 && m.shape.some((d) => d !== 1);
  return (
    <fieldset class="input">
      <legend>{m.name} <span class="dim">{m.datatype} [{m.shape.join(', ')}]</span></legend>
      {bytes && (
        <div class="tabs" role="group" aria-label={`How ${m.name} is given`}>
          {(['text', ...(many ? ['lines'] : []), 'file'] as Field['mode'][]).map((k) => (
            <button type="button" key={k} aria-pressed={f.mode === k} onClick={() => set({ ...f, mode: k })}>{k === 'lines' ? 'text by line' : k}</button>
          ))}
        </div>
      )}
      {bytes && f.mode === 'file'
        ? <label>File<input type="file" multiple={many} required onChange={(e) => set({ ...f, files: [...(e.currentTarget.files ?? [])] })} /></label>
        : <label>{bytes ? 'Text' : 'Numbers; one alone fills the shape'}
          <textarea rows={bytes ? 3 : 2} value={f.text} spellcheck={bytes} onInput={(e) => set({ ...f, text: e.currentTarget.value })} /></label>}
      {url && <img class="preview" src={url} alt={`The file chosen for ${m.name}`} />}
      <label class="short">Shape<input value={f.shape} inputMode="numeric" onInput={(e) => set({ ...f, shape: e.currentTarget.value })} /></label>
    </fieldset>
  );
};
