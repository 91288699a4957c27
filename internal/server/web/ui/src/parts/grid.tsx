// A grid of cards in the page, of which only those that are seen exist.
import type { ComponentChildren } from 'preact';
import { useSeen } from '../seen';
import { useWidth } from './bits';
import { windowOf } from './virtual';

const beyond = 1; // rows above and below those that are seen

/** Grid draws cards of one height, as many beside each other as fit. */
export function Grid<T>({ list, least, height, gap, label, name, render }: {
  list: T[]; least: number; height: number; gap: number; label: string; name: (v: T) => string; render: (v: T) => ComponentChildren;
}) {
  const [box, width] = useWidth<HTMLUListElement>();
  const view = useSeen(box);
  const columns = Math.max(1, Math.floor((width + gap) / (least + gap))), rows = Math.ceil(list.length / columns), row = height + gap;
  const [first, last] = windowOf(view[0], view[1], row, rows, beyond);
  const cell = (width - (columns - 1) * gap) / columns;
  return (
    <ul class="grid" ref={box} aria-label={label} style={{ height: `${Math.max(0, rows * row - gap)}px` }}>
      {width > 0 && list.slice(first * columns, last * columns).map((v, i) => {
        const at = first * columns + i;
        return (
          <li key={name(v)} aria-setsize={list.length} aria-posinset={at + 1}
            style={{ width: `${cell}px`, height: `${height}px`, transform: `translate(${(at % columns) * (cell + gap)}px, ${Math.floor(at / columns) * row}px)` }}>
            {render(v)}
          </li>
        );
      })}
    </ul>
  );
}
