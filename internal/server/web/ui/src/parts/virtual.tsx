// A list of which only the rows that are seen exist.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

const beyond = 6;

/** windowOf says which rows of n are seen, with some before and after them. */
export function windowOf(top: number, height: number, row: number, n: number, more = beyond): [number, number] {
  const first = Math.max(0, Math.min(Math.floor(top / row) - more, n));
  return [first, Math.max(first, Math.min(n, Math.ceil((top + height) / row) + more))];
}

export function Virtual<T>({ list, row, label, columns, render }: {
  list: T[]; row: number; label: string; columns: ComponentChildren; render: (v: T, i: number) => ComponentChildren;
}) {
  const ref = useRef<HTMLDivElement>(null);
  const [view, set] = useState<[number, number]>([0, 600]);
  useEffect(() => {
    const e = ref.current;
    if (!e) return;
    const see = () => set((old) => (old[0] === e.scrollTop && old[1] === e.clientHeight ? old : [e.scrollTop, e.clientHeight]));
    see();
    e.addEventListener('scroll', see, { passive: true });
    const o = new ResizeObserver(see);
    o.observe(e);
    return () => { e.removeEventListener('scroll', see); o.disconnect(); };
  }, []);
  const [first, last] = windowOf(view[0], view[1], row, list.length);
  return (
    <div class="virtual" ref={ref} tabIndex={0} role="table" aria-label={label} aria-rowcount={list.length + 1}>
      <div class="vhead" role="rowgroup">{columns}</div>
      <div role="rowgroup" class="vbody" style={{ height: `${list.length * row}px` }}>
        {list.slice(first, last).map((v, i) => (
          <div class="vslot" key={first + i} role="presentation" style={{ transform: `translateY(${(first + i) * row}px)`, height: `${row}px` }}>
            {render(v, first + i)}
          </div>
        ))}
      </div>
    </div>
  );
}
