import { api, type BatchView } from '../api';
import { clock, dur, percent, storedText } from '../format';
import { link } from '../route';
import { timelineLink } from './timeline';
import { Bad, Card, Empty, Fact, Page, useAsked } from '../parts/bits';

/** Members are the requests of a batch: links to those whose traces are stored. */
const Members = ({ b }: { b: BatchView }) => {
  const { value } = useAsked(() => Promise.all(b.traces.map((trace) => api.traces({ trace, limit: 1 }).then((l) => l.traces.length > 0))), [b.id]);
  if (!value) return <Empty>Looking for their traces…</Empty>;
  const stored = b.traces.filter((_, i) => value[i]);
  return (
    <>
      {stored.length > 0 && <p>{stored.map((t) => <a key={t} class="chip mono" href={link('traces', t)}>{t.slice(0, 12)}</a>)}</p>}
      <p class="note">{storedText(stored.length, b.members)}</p>
    </>
  );
};

export const Batch = ({ id }: { id: string }) => {
  const { value: b, error } = useAsked(() => api.batch(id), [id]);
  if (error !== null) return <Page title={`Batch ${id}`}><Bad error={error} /></Page>;
  if (!b) return <Page title={`Batch ${id}`}><Empty>Reading the batch…</Empty></Page>;
  const total = b.input_ns + b.infer_ns + b.output_ns;
  return (
    <Page title={<>Batch {b.id} <span class="dim">of {b.model} v{b.version}</span></>} actions={<a class="button" href={timelineLink(b.start_us - 2 * total / 1000, b.start_us + 3 * total / 1000)}>Timeline</a>}>
      {b.failed && <p class="bad">The batch failed.</p>}
      <Card title={dur(total)}>
        <div class="split"><div class="bar" role="img" aria-label={`input ${dur(b.input_ns)}, compute ${dur(b.infer_ns)}, output ${dur(b.output_ns)}`}>
          {([['copies', b.input_ns], ['compute', b.infer_ns], ['encode', b.output_ns]] as const).filter(([, ns]) => ns > 0).map(([k, ns]) => <i key={k} class={`fill ${k}`} style={{ width: `${(ns / Math.max(total, 1)) * 100}%` }} />)}
        </div></div>
        <dl class="facts">
          <Fact name="began">{clock(b.start_us)}</Fact><Fact name="rows">{b.rows}</Fact><Fact name="requests">{b.members}</Fact>
          <Fact name="input">{dur(b.input_ns)}</Fact><Fact name="compute">{dur(b.infer_ns)}</Fact><Fact name="output">{dur(b.output_ns)}</Fact>
          <Fact name="instance">{`${b.instance} on ${b.place}`}</Fact>
          <Fact name="padding">{percent(b.elements > 0 ? b.padding / b.elements : 0)}</Fact>
          {b.before > 0 && <Fact name="before it"><a href={link('batches', String(b.before))}>batch {b.before}</a> until {clock(b.before_end_us)}</Fact>}
        </dl>
      </Card>
      <Card title="Requests of the batch">
        <Members b={b} />
      </Card>
    </Page>
  );
};
