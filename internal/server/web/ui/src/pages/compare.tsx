import { useState } from 'preact/hooks';
import { api, type TraceView } from '../api';
import { clock, dur, plural } from '../format';
import { link } from '../route';
import { Bad, Card, Empty, Page, Status, useAsked } from '../parts/bits';
import { Split } from '../parts/waterfall';
import { kinds, totals } from '../waterfall';

/** Side is a request, or the mean of several. */
interface Side { title: string; href: string; total: number; parts: { kind: string; ns: number }[]; steps: Map<string, number>; of: number; view: TraceView | null }

/** side makes a side of traces; its figures are means. */
export function side(title: string, href: string, list: TraceView[]): Side {
  const n = Math.max(list.length, 1), steps = new Map<string, number>();
  for (const t of list) for (const s of t.spans) {
    const from = s.ready_ns || s.enqueued_ns;
    steps.set(s.model, (steps.get(s.model) ?? 0) + Math.max(0, s.done_ns - from) / n);
  }
  return {
    title, href, of: list.length, steps, view: list.length === 1 ? list[0]! : null,
    total: list.reduce((a, t) => a + t.duration_ns, 0) / n,
    parts: totals(list.flatMap((t) => t.split)).map((p) => ({ kind: p.kind, ns: p.ns / n })),
  };
}

const sampleSize = 20;

/** versionSide averages the latest stored traces of a version that ended well. */
async function versionSide(model: string, version: string): Promise<Side> {
  const list = (await api.traces({ model, status: 'ok', limit: 1000 })).traces.filter((t) => String(t.version) === version).slice(0, sampleSize);
  const views = await Promise.all(list.map((t) => api.trace(t.id).catch(() => null)));
  return side(`${model} v${version}`, link('traces', '', { model }), views.filter((v) => v !== null));
}

const one = async (id: string): Promise<Side> => {
  const t = await api.trace(id);
  return side(`${t.model} v${t.version}`, link('traces', id), [t]);
};

export const Compare = ({ query }: { query: Record<string, string> }) => {
  const { a = '', b = '', model = '', va = '', vb = '' } = query;
  const byVersion = model !== '' && va !== '' && vb !== '';
  const asked = useAsked(() => (byVersion
    ? Promise.all([versionSide(model, va), versionSide(model, vb)])
    : a && b ? Promise.all([one(a), one(b)]) : Promise.resolve(null)), [a, b, model, va, vb]);
  const [x, y] = asked.value ?? [];
  return (
    <Page title="Compare" actions={a && b && <a class="button" href={link('compare', '', { a: b, b: a })}>Swap</a>}>
      <Choose query={query} />
      {asked.error !== null && <Bad error={asked.error} />}
      {!x || !y ? asked.error === null && (a || model ? <Empty>Reading the traces…</Empty> : null) : <Both x={x} y={y} />}
    </Page>
  );
};

const Choose = ({ query }: { query: Record<string, string> }) => {
  const [f, set] = useState(query);
  const field = (name: string, label: string) => (
    <label>{label}<input value={f[name] ?? ''} onInput={(e) => set({ ...f, [name]: e.currentTarget.value.trim() })} /></label>
  );
  const pick = (names: string[]) => Object.fromEntries(names.map((n) => [n, f[n]]));
  return (
    <details class="filters" open={!(query['a'] || query['model'])}><summary>What to compare</summary><div>
      <form onSubmit={(e) => { e.preventDefault(); location.hash = link('compare', '', pick(['a', 'b'])); }}>
        {field('a', 'Trace id')}{field('b', 'Trace id to compare it with')}<button type="submit">Two requests</button>
      </form>
      <form onSubmit={(e) => { e.preventDefault(); location.hash = link('compare', '', pick(['model', 'va', 'vb'])); }}>
        {field('model', 'Model')}{field('va', 'Version')}{field('vb', 'Version to compare it with')}<button type="submit">Two versions</button>
      </form>
    </div></details>
  );
};

const Both = ({ x, y }: { x: Side; y: Side }) => {
  const order = Object.keys(kinds);
  const names = order.filter((k) => x.parts.some((p) => p.kind === k) || y.parts.some((p) => p.kind === k));
  const of = (s: Side, k: string) => s.parts.find((p) => p.kind === k)?.ns ?? 0;
  const steps = [...new Set([...x.steps.keys(), ...y.steps.keys()])];
  return (
    <>
      <div class="columns even">{[x, y].map((s, i) => (
        <Card key={i} title={<><span class="badge">{'AB'[i]}</span> <a href={s.href}>{s.title}</a></>} actions={s.view ? <Status status={s.view.status} /> : <span class="dim">mean of {plural(s.of, 'trace')}</span>}>
          <p class="big">{dur(s.total)} {s.view && <small class="dim">{clock(s.view.start_us)} {s.view.request_id}</small>}</p>
          <Split total={s.total} parts={s.parts.map((p) => ({ ...p, node: -1, start_ns: 0, text: kinds[p.kind] ?? p.kind }))} />
        </Card>
      ))}</div>
      <Card title="What differs">
        <div class="scroll" tabIndex={0} role="region" aria-label="What differs"><table class="diff">
          <thead><tr><th>Part</th><th class="num">A</th><th class="num">B</th><th class="num">B − A</th><th aria-hidden="true" /></tr></thead>
          <tbody>
            <Line name="all" a={x.total} b={y.total} most={Math.max(x.total, y.total)} strong />
            {names.map((k) => <Line key={k} name={kinds[k]!} kind={k} a={of(x, k)} b={of(y, k)} most={Math.max(x.total, y.total)} />)}
          </tbody>
          <thead><tr><th>Step</th><th class="num">A</th><th class="num">B</th><th class="num">B − A</th><th aria-hidden="true" /></tr></thead>
          <tbody>{steps.map((k) => <Line key={k} name={k} a={x.steps.get(k) ?? 0} b={y.steps.get(k) ?? 0} most={Math.max(x.total, y.total)} />)}</tbody>
        </table></div>
      </Card>
    </>
  );
};

const Line = ({ name, kind = '', a, b, most, strong = false }: { name: string; kind?: string; a: number; b: number; most: number; strong?: boolean }) => {
  const d = b - a, share = Math.min(50, (Math.abs(d) / Math.max(most, 1)) * 50);
  return (
    <tr class={strong ? 'strong' : ''}>
      <td>{kind && <i class={`fill ${kind} dot`} />}{name}</td><td class="num">{dur(a)}</td><td class="num">{dur(b)}</td>
      <td class={`num ${d > 0 ? 'wrong' : d < 0 ? 'good' : ''}`}>{d > 0 ? '+' : ''}{dur(d)}</td>
      <td class="delta" aria-hidden="true"><i class={d > 0 ? 'more' : 'less'} style={{ width: `${share}%`, left: d > 0 ? '50%' : `${50 - share}%` }} /></td>
    </tr>
  );
};
