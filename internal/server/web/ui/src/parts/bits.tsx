// Small things that pages are made of.
import { Component, type ComponentChildren, type FunctionComponent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

/** memo draws anew only when a property is another. */
export function memo<P extends object>(F: (p: P) => ComponentChildren): FunctionComponent<P> {
  class Kept extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const was = this.props as unknown as Record<string, unknown>, now = next as Record<string, unknown>;
      return Object.keys({ ...was, ...now }).some((k) => was[k] !== now[k]);
    }
    override render() { return <Inner {...(this.props as P)} />; }
  }
  const Inner = F as FunctionComponent<P>;
  return Kept as unknown as FunctionComponent<P>;
}

export const Page = ({ title, actions, children }: { title: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) => (
  <main id="main" tabIndex={-1}>
    <div class="head"><h1>{title}</h1>{actions && <div class="actions">{actions}</div>}</div>
    {children}
  </main>
);

export const Card = ({ title, actions, children, class: c = '' }: {
  title?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; class?: string;
}) => (
  <section class={`card ${c}`}>
    {title !== undefined && <div class="cardhead"><h2>{title}</h2>{actions}</div>}
    {children}
  </section>
);

export const Empty = ({ children }: { children: ComponentChildren }) => <p class="empty">{children}</p>;

export const Bad = ({ error }: { error: unknown }) => (
  <p class="bad" role="alert">{error instanceof Error ? error.message : String(error)}</p>
);

export const Status = ({ status }: { status: string }) => (
  <span class={`status ${status === 'ok' ? 'good' : 'wrong'}`}>{status.replaceAll('_', ' ')}</span>
);

const stateClass: Record<string, string> = { READY: 'good', LOADING: 'busy', UNLOADING: 'busy' };

export const State = ({ state, reason }: { state: string; reason?: string }) => (
  <span class={`state ${stateClass[state] ?? 'wrong'}`} title={reason ?? ''}>{(state || 'not loaded').toLowerCase()}</span>
);

/** Spark draws a small line of rates. */
export const Spark = ({ values, width = 96, height = 22 }: { values: number[]; width?: number; height?: number }) => {
  const most = Math.max(...values, 1e-9), n = Math.max(values.length - 1, 59);
  const x = (i: number) => ((n - values.length + 1 + i) / n) * (width - 2) + 1;
  const points = values.map((v, i) => `${x(i).toFixed(1)},${(height - 2 - (v / most) * (height - 4)).toFixed(1)}`).join(' ');
  return (
    <svg class="spark" width={width} height={height} aria-hidden="true">
      {values.length > 1 && <polygon points={`${x(0).toFixed(1)},${height - 1} ${points} ${width - 1},${height - 1}`} />}
      {values.length > 1 && <polyline points={points} />}
    </svg>
  );
};

/** Ratio is two parts of a whole beside each other, queue and compute. */
export const Ratio = ({ queue, compute }: { queue: number; compute: number }) => {
  const all = queue + compute;
  return (
    <span class="ratio" aria-hidden="true">
      {all > 0 && <i class="fill queue" style={{ width: `${(queue / all) * 100}%` }} />}
      {all > 0 && <i class="fill compute" style={{ width: `${(compute / all) * 100}%` }} />}
    </span>
  );
};

/** useAsked asks the server again when one of deps changes, and every so many milliseconds while the page is seen. */
export function useAsked<T>(f: () => Promise<T>, deps: unknown[], every = 0): { value: T | null; error: unknown; again: () => void } {
  const [s, set] = useState<{ value: T | null; error: unknown }>({ value: null, error: null });
  const [turn, next] = useState(0);
  const last = useRef<unknown[]>(deps);
  useEffect(() => {
    let over = false, timer = 0;
    if (last.current.some((d, i) => d !== deps[i])) { last.current = deps; set({ value: null, error: null }); }
    const run = () => {
      if (document.visibilityState === 'hidden' && every > 0) { timer = setTimeout(run, every); return; }
      f().then((value) => { if (!over) set({ value, error: null }); }, (error: unknown) => { if (!over) set((o) => ({ ...o, error })); })
        .finally(() => { if (!over && every > 0) timer = setTimeout(run, every); });
    };
    run();
    return () => { over = true; clearTimeout(timer); };
  }, [...deps, turn]);
  return { ...s, again: () => next((n) => n + 1) };
}

/** useWidth follows the width of an element. */
export function useWidth<E extends Element>(): [{ current: E | null }, number] {
  const ref = useRef<E>(null);
  const [width, set] = useState(0);
  useEffect(() => {
    const e = ref.current;
    if (!e) return;
    const o = new ResizeObserver((list) => set(Math.floor(list[0]?.contentRect.width ?? 0)));
    o.observe(e);
    return () => o.disconnect();
  }, []);
  return [ref, width];
}

/** Copy puts a text on the clipboard. */
export const Copy = ({ text, label }: { text: string; label: string }) => {
  const [done, set] = useState(false);
  return (
    <button type="button" class="quiet" title={`Copy ${label}`} onClick={() => {
      void navigator.clipboard?.writeText(text).then(() => { set(true); setTimeout(() => set(false), 1200); }, () => undefined);
    }}>{done ? 'copied' : 'copy'}</button>
  );
};

/** Fact is a name with its value. */
export const Fact = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div class="fact"><dt>{name}</dt><dd>{children}</dd></div>
);
