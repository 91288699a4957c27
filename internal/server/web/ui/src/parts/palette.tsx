// What / and ctrl-k open: a way to everything by keyboard.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { live } from '../live';
import { go, link } from '../route';
import { flipTheme } from '../theme';

export interface Entry { text: string; hint: string; to: string | (() => void) }

const pages: Entry[] = [
  { text: 'Overview', hint: 'page', to: link('') },
  { text: 'Pipelines', hint: 'page', to: link('pipelines') },
  { text: 'Models', hint: 'page', to: link('models') },
  { text: 'Traces', hint: 'page', to: link('traces') },
  { text: 'Timeline of instances', hint: 'page', to: link('timeline') },
  { text: 'Failed requests', hint: 'traces', to: link('traces', '', { status: 'failed' }) },
  { text: 'Slow requests', hint: 'traces', to: link('traces', '', { retained: 'slow' }) },
  { text: 'Jobs', hint: 'page', to: link('jobs') },
  { text: 'Submit a job', hint: 'jobs', to: link('jobs', '', { submit: 1 }) },
  { text: 'Try it', hint: 'page', to: link('try') },
  { text: 'Compare', hint: 'page', to: link('compare') },
  { text: 'Settings', hint: 'page', to: link('settings') },
  { text: 'Dark or light', hint: 'colours', to: flipTheme },
];

/** score says how well a text fits what was typed: 0 not at all, more is better. */
export function score(text: string, typed: string): number {
  const t = text.toLowerCase(), q = typed.toLowerCase().trim();
  if (!q) return 1;
  const at = t.indexOf(q);
  if (at >= 0) return 100 - at - t.length / 100;
  let i = 0;
  for (const c of t) if (c === q[i]) i++;
  return i === q.length ? 10 - t.length / 100 : 0;
}

const shown = 12;

/** entries are what fits, best first. */
export function entries(typed: string, models: string[]): Entry[] {
  const q = typed.trim();
  const list = [...pages, ...models.map((m) => ({ text: m, hint: 'pipeline', to: link('pipeline', m) })),
    ...(q ? models.map((m) => ({ text: `Try ${m}`, hint: 'try it', to: link('try', m) })) : [])];
  const found = list.map((e) => ({ e, s: score(e.text, q) })).filter((x) => x.s > 0).sort((a, b) => b.s - a.s).map((x) => x.e).slice(0, shown);
  if (/^[0-9a-f]{32}(-[0-9a-f]{16})?$/i.test(q)) found.unshift({ text: q, hint: 'trace', to: link('traces', q.toLowerCase()) });
  if (/^\d+$/.test(q)) found.push({ text: `Batch ${q}`, hint: 'batch', to: link('batches', q) });
  if (q) found.push({ text: `Requests with id ${q}`, hint: 'search', to: link('traces', '', { request: q }) });
  return found;
}

export const Palette = ({ close }: { close: () => void }) => {
  const [typed, type] = useState('');
  const [at, set] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  const models = useMemo(() => [...new Set((live.models ?? []).map((m) => m.name))], []);
  const list = entries(typed, models);
  useEffect(() => {
    dialog.current?.showModal();
    dialog.current?.querySelector('input')?.focus();
  }, []);
  const open = (e: Entry | undefined) => {
    if (!e) return;
    close();
    if (typeof e.to === 'string') go(e.to); else e.to();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Search" onClose={close} onClick={(e) => { if (e.target === dialog.current) close(); }}>
      <input type="text" spellcheck={false} role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={`found-${at}`} list={undefined}
        aria-label="Model, page, request id or trace id" placeholder="Model, page, request id or trace id" value={typed}
        onInput={(e) => { type(e.currentTarget.value); set(0); }}
        onKeyDown={(e) => {
          if (e.key === 'ArrowDown') set(Math.min(list.length - 1, at + 1));
          else if (e.key === 'ArrowUp') set(Math.max(0, at - 1));
          else if (e.key === 'Enter') open(list[at]);
          else return;
          e.preventDefault();
        }} />
      <ul id="found" role="listbox" aria-label="Found">
        {list.map((e, i) => (
          <li key={`${e.hint} ${e.text}`} id={`found-${i}`} role="option" aria-selected={i === at} onPointerMove={() => set(i)} onClick={() => open(e)}>
            <span class="clip">{e.text}</span><small class="dim">{e.hint}</small>
          </li>
        ))}
      </ul>
    </dialog>
  );
};
