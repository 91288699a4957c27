// Lists of traces.
import { ref, type TraceSummary } from '../api';
import { clock, dur, shorten } from '../format';
import { link } from '../route';
import { Status } from './bits';

export const traceColumns = (
  <div class="trow thead" role="row">
    <span role="columnheader">Time</span><span role="columnheader">Model</span><span role="columnheader">Request</span>
    <span role="columnheader" class="num">Duration</span><span role="columnheader">Status</span><span role="columnheader">Retained</span>
  </div>
);

/** TraceRow is a line about a trace; most is the duration that fills its bar. */
export const TraceRow = ({ t, most }: { t: TraceSummary; most: number }) => (
  <div class="trow" role="row" title={t.error ?? ''}>
    <span role="cell" class="mono"><a class="stretch" href={link('traces', ref(t))}>{clock(t.start_us)}</a></span>
    <span role="cell" class="clip">{t.model}<span class="dim"> {t.version}</span></span>
    <span role="cell" class="mono clip">{t.request_id ? shorten(t.request_id, 28) : <span class="dim">{t.id.slice(0, 8)}</span>}</span>
    <span role="cell" class="num bar"><i style={{ width: `${Math.min(100, (t.duration_ns / Math.max(most, 1)) * 100)}%` }} /><b>{dur(t.duration_ns)}</b></span>
    <span role="cell"><Status status={t.status} /></span>
    <span role="cell" class="dim">{t.retained}</span>
  </div>
);
