// What the pages of jobs share.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Failure } from '../api';
import { whole } from '../format';
import { missing, percents, shares, type JobView, type Rows } from '../jobs';
import { link } from '../route';
import { Bad, Card, Copy } from './bits';

const stateClass: Record<string, string> = { completed: 'good', failed: 'wrong', waiting: 'busy', running: 'active', checking: 'active' };

export const JobState = ({ job }: { job: JobView }) => (
  <span class={`state ${stateClass[job.state] ?? ''}`} title={job.reason ?? ''}>{job.state}</span>
);

/** progressText says how far the rows are, for those who do not see the bar. */
export const progressText = (r: Rows): string => (r.total === 0 ? 'rows are counted' : [
  `${whole(r.done + r.failed)} of ${whole(r.total)} rows`, r.failed > 0 ? `${whole(r.failed)} failed` : '', r.reused > 0 ? `${whole(r.reused)} reused` : '',
].filter(Boolean).join(', '));

/** Progress is a bar of the rows: reused, executed and failed ones. */
export const Progress = ({ job, big = false }: { job: JobView; big?: boolean }) => {
  const s = shares(job.rows);
  return (
    <div class={`progress ${job.state}${big ? ' tall' : ''}`} role="progressbar" aria-label={`Progress of job ${job.id}`} aria-valuemin={0} aria-valuemax={100}
      {...(job.rows.total > 0 ? { 'aria-valuenow': Math.floor(s.all * 100) } : {})} aria-valuetext={progressText(job.rows)} title={`${percents(s.all)}: ${progressText(job.rows)}`}>
      <i class="reused" style={{ width: `${s.reused * 100}%` }} /><i class="executed" style={{ width: `${s.executed * 100}%` }} /><i class="failed" style={{ width: `${s.failed * 100}%` }} />
    </div>
  );
};

/** Command is a command line to copy. */
export const Command = ({ text, label }: { text: string; label: string }) => (
  <div class="command"><pre class="blob" tabIndex={0} aria-label={label}>{text}</pre><Copy text={text} label={label} /></div>
);

/** Trouble says why jobs cannot be shown, and what to do. */
export const Trouble = ({ error }: { error: unknown }) => {
  if (missing(error)) return (
    <Card title="This server runs no jobs">
      <div class="stack">
        <p>A job runs a model or an ensemble over every row of a dataset, and goes on after crashes and restarts. Start the server with <code>--jobs</code>:</p>
        <Command text="tutti serve --model-repository=/models --jobs --data-dir=/data" label="the command" />
        <p class="note"><code>--data-dir</code> is where jobs are kept. For several machines, name a Temporal cluster with <code>--temporal-address</code>.</p>
      </div>
    </Card>
  );
  return (
    <>
      <Bad error={error} />
      {error instanceof Failure && error.status === 403 && <p class="note">Enter the header that opens jobs in the <a href={link('settings')}>settings</a>.</p>}
    </>
  );
};

/** Confirm asks before something that cannot be undone. */
export const Confirm = ({ title, yes, no, run, close, children }: {
  title: string; yes: string; no: string; run: () => void; close: () => void; children: ComponentChildren;
}) => {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="confirm" aria-labelledby="confirm" onClose={close} onClick={(e) => { if (e.target === e.currentTarget) e.currentTarget.close(); }}>
      <div class="stack">
        <h2 id="confirm">{title}</h2>
        <p>{children}</p>
        <div class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>{no}</button>
          <button type="button" class="danger" onClick={() => { dialog.current?.close(); run(); }}>{yes}</button>
        </div>
      </div>
    </dialog>
  );
};
