// A trace as a file for other programs, and its address there.
import { useState } from 'preact/hooks';
import { ref, save, type TraceView } from '../api';
import { Bad } from './bits';

const forms = [
  { as: 'otlp', text: 'OTLP JSON', title: 'The spans for an OpenTelemetry collector, Jaeger or Tempo' },
  { as: 'perfetto', text: 'Perfetto', title: 'A file that ui.perfetto.dev opens' },
];

/** Export saves a trace as a file; links lead to it in programs that the server was told of. */
export const Export = ({ t }: { t: TraceView }) => {
  const [error, set] = useState<unknown>(null);
  const store = (as: string) => {
    set(null);
    save(`api/traces/${encodeURIComponent(ref(t))}?as=${as}`, `${t.id}.${as}.json`).catch(set);
  };
  return (
    <>
      {forms.map((f) => <button type="button" key={f.as} title={f.title} onClick={() => store(f.as)}>Save as {f.text}</button>)}
      {t.links?.map((l) => <a key={l.name} class="button" href={l.url} target="_blank" rel="noreferrer">{l.name}<span class="sr"> (opens another program)</span> ↗</a>)}
      {error !== null && <Bad error={error} />}
    </>
  );
};
