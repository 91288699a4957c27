// The captures: which requests have their tensors recorded.
import { useState } from 'preact/hooks';
import { api, type CaptureRule, type CaptureView } from '../api';
import { bytes, clock } from '../format';
import { link } from '../route';
import { Bad, Card, Empty, useAsked } from './bits';

export const Captures = ({ may }: { may: boolean }) => {
  const { value, error, again } = useAsked(() => api.captures(), [may], 2000);
  const [failed, fail] = useState<unknown>(null);
  const run = (f: Promise<unknown>) => { fail(null); f.then(again, fail); };
  return (
    <Card title="Capture tensors" actions={value && <span class="dim">{bytes(value.used_bytes)} of {bytes(value.bytes)}</span>}>
      {error !== null ? <p class="note">{error instanceof Error ? error.message : 'unavailable'}</p> : (
        <div class="stack">
          <form class="filters" onSubmit={(e) => {
            e.preventDefault();
            const d = new FormData(e.currentTarget), text = (k: string) => String(d.get(k) ?? '').trim();
            const rule: CaptureRule = { model: text('model'), request: text('request'), count: Number(text('count')), seconds: Number(text('seconds')) };
            run(api.capture(rule));
          }}>
            <label>Model<input name="model" placeholder="*" disabled={!may} /></label>
            <label>Request id<input name="request" placeholder="*" disabled={!may} /></label>
            <label class="short">Requests<input name="count" type="number" min="0" defaultValue="10" disabled={!may} /></label>
            <label class="short">Seconds<input name="seconds" type="number" min="0" defaultValue="60" disabled={!may} /></label>
            <button type="submit" disabled={!may}>Start</button>
          </form>
          {failed !== null && <Bad error={failed} />}
          {(value?.captures ?? []).length === 0 ? <Empty>No tensors are captured.</Empty> : (
            <ul class="stack">{value!.captures!.map((c) => <One key={c.id} c={c} stop={may && c.active ? () => run(api.stopCapture(c.id)) : null} />)}</ul>
          )}
        </div>
      )}
    </Card>
  );
};

const One = ({ c, stop }: { c: CaptureView; stop: (() => void) | null }) => (
  <li>
    <b>{c.rule.model || 'every model'}</b> {c.rule.request && <span class="mono">{c.rule.request}</span>}{' '}
    <span class="dim">{c.active ? `until ${clock(c.ends_us).slice(0, 8)}` : 'ended'}, {c.taken} captured of {c.matched} that fit{c.missed > 0 && `, no room for ${c.missed}`}</span>{' '}
    {stop && <button type="button" class="quiet" onClick={stop}>stop</button>}
    <div>{(c.snapshots ?? []).slice(-12).map((s) => (
      <a key={`${s.trace_id}-${s.span_id}`} class="chip mono" href={link('traces', `${s.trace_id}-${s.span_id}`)}>{s.request_id ? s.request_id.slice(0, 16) : s.trace_id.slice(0, 8)}</a>
    ))}</div>
  </li>
);
