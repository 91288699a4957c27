// The banner of what does not work as configured, on every page.
import { ago, clock, plural } from '../format';
import { useLive } from '../live';
import { link } from '../route';
import type { DegradedView } from '../api';

const shown = 4;

const Part = ({ d, now }: { d: DegradedView; now: number }) => (
  <li>
    <b>{d.what} {d.name && (d.what === 'model' ? <a href={link('pipeline', d.name)}>{d.name}</a> : d.name)}{d.version && ` v${d.version}`}</b>
    <span class="dim" title={clock(d.since_us)}>for {ago(Math.max(0, now - d.since_us))}</span>
    <span class="why">{d.reason}</span>
  </li>
);

/** Degraded lists each part with its name, the cause and since when; nothing of a sound server. */
export const Degraded = () => {
  const s = useLive().server, list = s?.degraded ?? [];
  if (!s || list.length === 0) return null;
  const one = (d: DegradedView) => <Part key={[d.what, d.name, d.version].join('/')} d={d} now={s.now_us} />;
  return (
    <section class="degraded" aria-label="Degraded parts of the server">
      <ul>{list.slice(0, shown).map(one)}</ul>
      {list.length > shown && <details><summary>{plural(list.length - shown + (s.degraded_more ?? 0), 'more part')}</summary><ul>{list.slice(shown).map(one)}</ul></details>}
    </section>
  );
};
