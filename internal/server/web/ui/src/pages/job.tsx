import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { save } from '../api';
import { ago, bytes, count, moment, plural, whole } from '../format';
import { changes, command, final, jobs, percents, refused, serverURL, shares, type Change, type FailedRow, type JobView, type Manifest } from '../jobs';
import { usePolled } from '../poll';
import { live } from '../live';
import { go, link } from '../route';
import { Bad, Card, Copy, Empty, Fact, Page, useAsked } from '../parts/bits';
import { Command, Confirm, JobState, Progress, Trouble } from '../parts/jobs';

const pollMs = 1500;
const pageRows = 50;

/** pollJob is the number of milliseconds after which a job is read again: not at all once it has ended or the server has refused. */
const pollJob = (j: JobView | null, error: unknown): number => {
  if (error !== null) return refused(error) ? 0 : 5000;
  return j && final(j.state) ? 0 : pollMs;
};

export const Job = ({ id, query }: { id: string; query: Record<string, string> }) => {
  const { value: j, error, set } = usePolled(() => jobs.show(id), [id], pollJob);
  if (!j) return <Page title={id}>{error !== null ? <Trouble error={error} /> : <Empty>Reading the job…</Empty>}<p><a href={link('jobs')}>All jobs</a></p></Page>;
  return (
    <Page title={<><a class="crumb" href={link('jobs')}>Jobs</a> <span class="wrap">{j.id}</span> <JobState job={j} /></>} actions={<Buttons j={j} done={set} />}>
      <p class="sr" role="status">{`Job ${j.id} is ${j.state}${final(j.state) || j.rows.total === 0 ? '' : `, ${Math.floor(shares(j.rows).all * 10) * 10} percent`}`}</p>
      {error !== null && <Trouble error={error} />}
      {j.reason && (j.state === 'failed' ? <p class="bad">{j.reason}</p> : <p class="waits"><b>{j.state === 'waiting' ? 'Waiting: ' : ''}</b>{j.reason}</p>)}
      <Rows j={j} />
      <div class="columns wide job">
        <div class="stack">
          {(j.problems ?? []).length > 0 && <Problems j={j} />}
          {j.state === 'completed' && <Result j={j} />}
          {j.rows.failed > 0 && <Failed j={j} first={Number(query['row'] ?? 0) || 0} />}
          {!(j.problems ?? []).length && j.rows.failed === 0 && j.state !== 'completed' && (
            <Card title="Problems"><Empty>{final(j.state) ? 'No row has failed.' : 'No chunk is tried again, and no row has failed.'}</Empty></Card>
          )}
        </div>
        <Specification j={j} />
      </div>
    </Page>
  );
};

const labels: Record<Change, string> = { pause: 'Pause', resume: 'Resume', cancel: 'Cancel', retry: 'Retry' };

const hints: Record<Change, string> = {
  pause: 'Chunks in execution end, no other starts', resume: 'Chunks are executed again', cancel: 'End the job; results so far are kept', retry: 'Submit it again: only rows without a result are executed',
};

/** Buttons change the job. */
const Buttons = ({ j, done }: { j: JobView; done: (j: JobView) => void }) => {
  const [busy, setBusy] = useState('');
  const [failed, fail] = useState<unknown>(null);
  const [sure, ask] = useState(false);
  const run = async (what: Change) => {
    setBusy(what);
    fail(null);
    try {
      const now = await jobs.change(j.id, what);
      if (what === 'retry') go(link('jobs', now.id)); else done(now);
    } catch (e) { fail(e); }
    setBusy('');
  };
  return (
    <>
      {changes(j.state).map((what) => (
        <button key={what} type="button" class={what === 'cancel' ? 'danger' : what === 'resume' ? 'primary' : ''} title={hints[what]} disabled={busy !== ''}
          onClick={() => { if (what === 'cancel') ask(true); else void run(what); }}>{busy === what ? `${labels[what]}…` : labels[what]}</button>
      ))}
      {sure && (
        <Confirm title={`Cancel job ${j.id}?`} yes="Cancel the job" no="Keep it" close={() => ask(false)} run={() => void run('cancel')}>
          Chunks in execution are abandoned. Results so far are kept, and Retry continues from them.
        </Confirm>
      )}
      {failed !== null && <Bad error={failed} />}
    </>
  );
};

/** Rows is how far the job is. */
const Rows = ({ j }: { j: JobView }) => {
  const s = shares(j.rows), r = j.rows;
  const parts: [string, string, number][] = [['executed', 'Executed', Math.max(0, r.done - r.reused)], ['reused', 'Reused', r.reused], ['failed', 'Failed', r.failed], ['rest', 'To do', Math.max(0, r.total - r.done - r.failed)]];
  const lasted = (Date.parse(j.ended ?? '') || live.now() / 1000) - Date.parse(j.created);
  return (
    <Card>
      <div class="howfar">
        <p><b class="big">{r.total > 0 ? percents(s.all) : '–'}</b> <span class="dim">{r.total > 0 ? `${whole(r.done + r.failed)} of ${whole(r.total)} rows` : final(j.state) ? 'no row was counted' : 'rows are counted'}</span></p>
        <Progress job={j} big />
        {r.total > 0 && <ul class="legend">{parts.filter(([kind, , n]) => n > 0 || kind === 'failed').map(([kind, name, n]) => (
          <li key={kind}><i class={`key ${kind}`} />{name} <b class={kind === 'failed' && n > 0 ? 'wrong' : ''}>{whole(n)}</b></li>
        ))}</ul>}
      </div>
      <dl class="facts figures">
        <Figure name="Rate">{j.rows_per_second && j.state === 'running' ? `${count(j.rows_per_second)} rows/s` : '–'}</Figure>
        <Figure name="Time left">{j.seconds_left && j.state === 'running' ? ago(j.seconds_left * 1e6) : '–'}</Figure>
        <Figure name="Chunks">{j.chunks > 0 ? <>{whole(j.chunks_done)} <small class="dim">of {whole(j.chunks)}</small></> : '–'}</Figure>
        <Figure name="Retries"><span class={j.retries > 0 && !final(j.state) ? 'busy' : ''}>{whole(j.retries)}</span></Figure>
        <Figure name="Created"><time dateTime={j.created}>{moment(j.created)}</time></Figure>
        <Figure name={j.ended ? 'Ended' : 'So far'}>{j.ended ? <><time dateTime={j.ended}>{moment(j.ended)}</time> <small class="dim">after {lasted < 1000 ? '<1 s' : ago(lasted * 1000)}</small></> : ago(lasted * 1000)}</Figure>
      </dl>
    </Card>
  );
};

const Figure = ({ name, children }: { name: string; children: ComponentChildren }) => <Fact name={name}><span class="figure">{children}</span></Fact>;

const Problems = ({ j }: { j: JobView }) => (
  <Card title={<>Problems <span class="dim">tried again until they succeed</span></>}>
    <div class="scroll" tabIndex={0} role="region" aria-label="Problems"><table>
      <thead><tr><th class="num">Chunk</th><th class="num">Attempt</th><th>Error</th><th class="num">Again</th></tr></thead>
      <tbody>{j.problems!.map((p, i) => (
        <tr key={i}><td class="num">{p.chunk < 0 ? 'all' : p.chunk}</td><td class="num">{p.attempt}</td><td class="error">{p.error}{p.worker && <small class="dim">worker {p.worker}</small>}</td>
          <td class="num">{p.next && Date.parse(p.next) > live.now() / 1000 ? moment(p.next) : 'now'}</td></tr>
      ))}</tbody>
    </table></div>
  </Card>
);

/** Failed are the rows without a result, page by page. */
const Failed = ({ j, first }: { j: JobView; first: number }) => {
  const over = final(j.state);
  const { value, error } = usePolled(() => jobs.failures(j.id, first, pageRows), [j.id, first, over], () => (over ? 0 : 5000));
  const rows: FailedRow[] = value?.rows ?? [];
  return (
    <Card title={<>Failed rows <span class="dim">{whole(j.rows.failed)}</span></>} actions={over && <span class="dim hint">correct them, then Retry runs only these</span>}>
      {error !== null && <Bad error={error} />}
      {!value ? error === null && <Empty>Reading the rows…</Empty> : rows.length === 0 ? <Empty>{first > 0 ? 'No row failed from here on.' : 'The rows are listed when their chunk has ended.'}</Empty> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Failed rows"><table class="failures">
          <thead><tr><th class="num">Row</th><th>Place</th><th>Status</th><th>Error</th></tr></thead>
          <tbody>{rows.map((r) => (
            <tr key={r.row}><td class="num">{whole(r.row)}</td><td class="mono place">{r.place}</td><td><span class="status wrong" title={r.reason && r.reason !== r.status ? r.status : undefined}>{(r.reason || r.status).replaceAll('_', ' ').toLowerCase()}</span></td><td class="error">{r.error}</td></tr>
          ))}</tbody>
        </table></div>
      )}
      {(first > 0 || value?.next !== undefined) && (
        <nav class="paging" aria-label="Pages of failed rows">
          {first > 0 ? <a class="button" href={link('jobs', j.id)}>First</a> : <span />}
          {value?.next !== undefined && <a class="button" href={link('jobs', j.id, { row: value.next })}>Next</a>}
        </nav>
      )}
    </Card>
  );
};

const shownParts = 100;

/** Result is the manifest: which file has which rows. */
const Result = ({ j }: { j: JobView }) => {
  const { value: m, error } = useAsked(() => jobs.result(j.id), [j.id]);
  const [failed, fail] = useState<unknown>(null);
  return (
    <Card title="Result" actions={m && <button type="button" onClick={() => { fail(null); save(`../v2/jobs/${encodeURIComponent(j.id)}/result`, `${j.id}.manifest.json`).catch(fail); }}>Save the manifest</button>}>
      {error !== null && <Bad error={error} />}
      {failed !== null && <Bad error={failed} />}
      {m ? <Parts j={j} m={m} /> : error === null && <Empty>Reading the manifest…</Empty>}
    </Card>
  );
};

const Parts = ({ j, m }: { j: JobView; m: Manifest }) => (
  <div class="stack">
    <dl class="facts line">
      <Fact name="manifest"><span class="mono wrap">{j.manifest}</span> {j.manifest && <Copy text={j.manifest} label="the place of the manifest" />}</Fact>
      <Fact name="format">{m.format}</Fact>
      <Fact name="sha256 of all results"><span class="mono" title={m.sha256}>{m.sha256.slice(0, 16)}…</span> <Copy text={m.sha256} label="the checksum" /></Fact>
    </dl>
    <div class="scroll" tabIndex={0} role="region" aria-label="Parts of the result"><table>
      <thead><tr><th>Part</th><th class="num">First row</th><th class="num">Rows</th><th class="num">Failed</th><th class="num">Size</th></tr></thead>
      <tbody>{m.parts.slice(0, shownParts).map((p) => (
        <tr key={p.path}><td class="mono wrap">{p.path}</td><td class="num">{whole(p.first_row)}</td><td class="num">{whole(p.rows)}</td><td class={`num ${p.failed ? 'wrong' : 'dim'}`}>{whole(p.failed)}</td><td class="num">{bytes(p.bytes)}</td></tr>
      ))}</tbody>
    </table></div>
    {m.parts.length > shownParts && <p class="note">{plural(m.parts.length - shownParts, 'more part')} in the manifest.</p>}
  </div>
);

const mapping = (v: Record<string, string> | undefined) => Object.entries(v ?? {}).map(([k, c]) => <span key={k} class="chip mono">{k} = {c}</span>);

const Specification = ({ j }: { j: JobView }) => {
  const s = j.spec;
  const { id: _, ...again } = s;
  return (
    <Card title="Specification">
      <dl class="facts spec">
        <Fact name="model"><a href={link('pipeline', s.model)}>{s.model}</a>{s.version ? ` version ${s.version}` : ''}</Fact>
        <Fact name="input"><span class="mono">{s.input.uri}</span>{s.input.format && <span class="dim"> {s.input.format}</span>}</Fact>
        <Fact name="output"><span class="mono">{s.output.uri}</span>{s.output.format && <span class="dim"> {s.output.format}</span>}</Fact>
        {s.columns && <Fact name="columns of inputs">{mapping(s.columns)}</Fact>}
        {s.results && <Fact name="columns of outputs">{mapping(s.results)}</Fact>}
        {s.keep && s.keep.length > 0 && <Fact name="copied columns">{s.keep.map((k) => <span key={k} class="chip mono">{k}</span>)}</Fact>}
        {s.max_failed !== undefined && <Fact name="limit of failed rows">{whole(s.max_failed)}</Fact>}
        {!!s.chunk_rows && <Fact name="rows of a chunk">{whole(s.chunk_rows)}</Fact>}
        {!!s.chunks && <Fact name="chunks at a time">{s.chunks}</Fact>}
        {!!s.priority && <Fact name="priority">{s.priority}</Fact>}
        {s.group && <Fact name="group">{s.group}</Fact>}
        {s.other_model && <Fact name="another model content">{s.other_model}</Fact>}
        {s.overwrite && <Fact name="output">was discarded at the start</Fact>}
        {j.fingerprint && <Fact name="content of the model"><span class="mono" title={j.fingerprint}>{j.fingerprint.slice(0, 16)}…</span> <Copy text={j.fingerprint} label="the fingerprint" /></Fact>}
      </dl>
      <details class="inorder"><summary>Command line</summary><Command text={command(again, serverURL())} label="the command line" /></details>
    </Card>
  );
};
