// Reading something again and again while it is seen.
import { useEffect, useState } from 'preact/hooks';

/** Polled is the last value, and the error of the last request if it failed. */
export interface Polled<T> { value: T | null; error: unknown; again: () => void; set: (v: T) => void }

/**
 * usePolled reads a value, anew when one of deps changes, and again after so many milliseconds as `after` returns for what was read; 0 ends it.
 * For a failed request it is called with null and the error. A page that is not seen reads nothing; it reads at once when it is seen again.
 */
export function usePolled<T>(f: () => Promise<T>, deps: unknown[], after: (v: T | null, error: unknown) => number): Polled<T> {
  const [s, set] = useState<{ value: T | null; error: unknown; of: string }>({ value: null, error: null, of: '' });
  const [turn, next] = useState(0);
  const of = JSON.stringify(deps);
  useEffect(() => {
    let over = false, timer = 0, due = true, running = false;
    const run = () => {
      if (running) return;
      if (document.visibilityState === 'hidden') { due = true; return; }
      due = false;
      running = true;
      clearTimeout(timer);
      const wait = (ms: number) => { running = false; if (!over && ms > 0) timer = setTimeout(run, ms); };
      f().then((value) => { if (over) return; set({ value, error: null, of }); wait(after(value, null)); },
        (error: unknown) => { if (over) return; set((o) => ({ value: o.of === of ? o.value : null, error, of })); wait(after(null, error)); });
    };
    const seen = () => { if (due && document.visibilityState === 'visible') run(); };
    document.addEventListener('visibilitychange', seen);
    run();
    return () => { over = true; clearTimeout(timer); document.removeEventListener('visibilitychange', seen); };
  }, [of, turn]);
  const current = s.of === of;
  return {
    value: current ? s.value : null, error: current ? s.error : null,
    again: () => next((n) => n + 1), set: (value) => set({ value, error: null, of }),
  };
}
