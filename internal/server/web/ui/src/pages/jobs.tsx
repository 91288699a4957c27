import { useMemo, useState } from 'preact/hooks';
import { ago, count, moment, whole } from '../format';
import { command, final, fresh, jobs, missing, pairs, pollAfter, refused, serverURL, words, type JobView, type Spec } from '../jobs';
import { useLive } from '../live';
import { usePolled } from '../poll';
import { go, link } from '../route';
import { Bad, Card, Empty, Page } from '../parts/bits';
import { Command, JobState, Progress, Trouble } from '../parts/jobs';

const pageSize = 50;

/** pollList is the number of milliseconds after which the list is read again: not at all once the server has refused. */
const pollList = (list: JobView[] | undefined, error: unknown): number => {
  if (refused(error)) return 0;
  return error !== null ? 5000 : pollAfter(list ?? []);
};

export const Jobs = ({ query }: { query: Record<string, string> }) => {
  const after = query['after'] ?? '';
  const { value, error } = usePolled(() => fresh(pageSize, after), [after], (v, e) => pollList(v?.jobs, e));
  const open = query['submit'] === '1';
  const toggle = () => go(link('jobs', '', { after, submit: open ? undefined : 1 }), true);
  if (missing(error)) return <Page title="Jobs"><Trouble error={error} /></Page>;
  return (
    <Page title="Jobs" actions={<button type="button" class={open ? '' : 'primary'} aria-expanded={open} onClick={toggle}>{open ? 'Close the form' : 'Submit a job'}</button>}>
      {open && <Submit />}
      {error !== null && <Trouble error={error} />}
      {value && (
        <Card title={after ? 'Older jobs' : 'Latest jobs'} actions={value.jobs.length > 0 && <span class="dim hint">{summary(value.jobs)}</span>}>
          {value.jobs.length === 0 ? <Empty>{after ? 'There are no older jobs.' : 'No job was submitted yet. A job runs a model over every row of a dataset.'}</Empty> : <List list={value.jobs} />}
          {(after || value.next) && (
            <nav class="paging" aria-label="Pages of jobs">
              {after ? <a class="button" href={link('jobs')}>Latest</a> : <span />}
              {value.next && <a class="button" href={link('jobs', '', { after: value.next })}>Older</a>}
            </nav>
          )}
        </Card>
      )}
      {!value && error === null && <Empty>Reading the jobs…</Empty>}
    </Page>
  );
};

/** summary counts the jobs of a page by their state. */
export function summary(list: JobView[]): string {
  const n = (f: (j: JobView) => boolean) => list.filter(f).length;
  const parts: [number, string][] = [
    [n((j) => j.state === 'waiting'), 'waiting'], [n((j) => !final(j.state) && j.state !== 'waiting'), 'in progress'], [n((j) => j.state === 'failed'), 'failed'],
  ];
  return parts.filter(([k]) => k > 0).map(([k, what]) => `${k} ${what}`).join(' · ');
}

const List = ({ list }: { list: JobView[] }) => (
  <table class="jobs">
    <thead><tr><th>Job</th><th>State</th><th>Rows</th><th class="num">Rate</th><th class="num">Time left</th><th class="num">Created</th></tr></thead>
    <tbody>{list.map((j) => <JobRow key={j.id} j={j} />)}</tbody>
  </table>
);

const JobRow = ({ j }: { j: JobView }) => (
  <tr>
    <td class="mname"><a class="clip stretch" href={link('jobs', j.id)} title={j.id}>{j.id}</a><small class="dim clip">{j.spec.model}</small></td>
    <td><JobState job={j} /></td>
    <td><Progress job={j} /><small class="dim rowcount">
      <span>{j.rows.total > 0 ? <>{whole(j.rows.done + j.rows.failed)} <span class="hint">of {whole(j.rows.total)}</span></> : final(j.state) ? '–' : 'counting'}</span>
      {j.rows.failed > 0 && <span class="wrong">{whole(j.rows.failed)} failed</span>}
      {j.rows.reused > 0 && <span class="hint">{whole(j.rows.reused)} reused</span>}
    </small></td>
    <td class="num">{j.rows_per_second && j.state === 'running' ? `${count(j.rows_per_second)}/s` : '–'}</td>
    <td class="num">{j.seconds_left && j.state === 'running' ? ago(j.seconds_left * 1e6) : '–'}</td>
    <td class="num"><time dateTime={j.created}>{moment(j.created)}</time></td>
  </tr>
);

/** blank is a job before anything is filled in. */
const blank = { model: '', input: '', inputFormat: '', output: '', outputFormat: '', id: '', columns: '', results: '', keep: '', maxFailed: '', overwrite: false };

/** specOf makes a job of the form. It throws when a field cannot be read. */
export function specOf(f: typeof blank): Spec {
  const place = (uri: string, format: string) => ({ uri: uri.trim(), ...(format ? { format } : {}) });
  const columns = pairs(f.columns), results = pairs(f.results), keep = words(f.keep);
  return {
    ...(f.id.trim() ? { id: f.id.trim() } : {}), model: f.model.trim(), input: place(f.input, f.inputFormat), output: place(f.output, f.outputFormat),
    ...(columns ? { columns } : {}), ...(results ? { results } : {}), ...(keep ? { keep } : {}),
    ...(f.maxFailed !== '' ? { max_failed: Number(f.maxFailed) } : {}), ...(f.overwrite ? { overwrite: true } : {}),
  };
}

const Submit = () => {
  const l = useLive();
  const names = useMemo(() => [...new Set((l.models ?? []).map((m) => m.name))], [l.models?.length]);
  const [f, setForm] = useState(blank);
  const [failed, fail] = useState<unknown>(null);
  const set = (v: typeof blank) => { setForm(v); fail(null); };
  const [busy, setBusy] = useState(false);
  const field = (name: keyof typeof blank, label: string, more: Record<string, unknown> = {}) => (
    <label>{label}<input spellcheck={false} autocomplete="off" value={String(f[name])} onInput={(e) => set({ ...f, [name]: e.currentTarget.value })} {...more} /></label>
  );
  const formats = (name: 'inputFormat' | 'outputFormat', label: string, first: string, list: string[]) => (
    <label>{label}<select value={f[name]} onChange={(e) => set({ ...f, [name]: e.currentTarget.value })}>
      <option value="">{first}</option>{list.map((v) => <option key={v}>{v}</option>)}
    </select></label>
  );
  const submit = async () => {
    setBusy(true);
    fail(null);
    try { go(link('jobs', (await jobs.submit(specOf(f))).id)); } catch (e) { fail(e); setBusy(false); }
  };
  let line = '';
  try { line = command(specOf(f), serverURL()); } catch { /* said when the form is sent */ }
  return (
    <Card title="Submit a job">
      <form class="stack" onSubmit={(e) => { e.preventDefault(); void submit(); }}>
        <div class="fields">
          {field('model', 'Model or ensemble', { required: true, list: 'models' })}<datalist id="models">{names.map((n) => <option key={n} value={n} />)}</datalist>
          {field('input', 'Input: a file, a folder or a bucket', { required: true, placeholder: '/data/texts/*.jsonl' })}
          {field('output', 'Output: a folder', { required: true, placeholder: 's3://bucket/results' })}
        </div>
        <details><summary>more</summary><div class="fields">
          {field('columns', 'Columns of inputs', { placeholder: 'INPUT=COLUMN, …' })}
          {field('results', 'Columns of outputs', { placeholder: 'OUTPUT=COLUMN, …' })}
          {field('keep', 'Columns to copy to the output', { placeholder: 'id, …' })}
          {formats('inputFormat', 'Format of the input', 'by the names of the files', ['jsonl', 'csv', 'parquet', 'npz', 'images', 'texts'])}
          {formats('outputFormat', 'Format of the output', 'jsonl', ['csv', 'parquet', 'npz'])}
          {field('id', 'Name of the job', { placeholder: 'chosen by the server', pattern: '[A-Za-z0-9][A-Za-z0-9_\\-]{0,127}' })}
          {field('maxFailed', 'End it when more rows fail than', { type: 'number', min: 0, step: 1, placeholder: 'no limit' })}
          <label class="check"><input type="checkbox" checked={f.overwrite} onChange={(e) => set({ ...f, overwrite: e.currentTarget.checked })} />Discard what the output has</label>
        </div></details>
        <p class="note">Paths are those of the server. Results of an earlier job in the same output are reused.</p>
        {failed !== null && <Bad error={failed} />}
        <div class="buttons"><button type="submit" class="primary" disabled={busy}>{busy ? 'Submitting…' : 'Submit'}</button></div>
        {line && <Command text={line} label="the command line" />}
      </form>
    </Card>
  );
};
