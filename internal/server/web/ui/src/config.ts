// A configuration as people read it: what was written, and what the server filled in.

/** Line is a line of a configuration; filled says that the server added it, or changed its value. */
export interface Line { text: string; filled: boolean }

const plain = (v: unknown): v is Record<string, unknown> => typeof v === 'object' && v !== null && !Array.isArray(v);

/** linesOf writes a configuration as JSON, and compares it with what was written; null when that is not known. */
export function linesOf(served: Record<string, unknown>, written: Record<string, unknown> | null): Line[] {
  const lines: Line[] = [];
  const add = (v: unknown, was: unknown, depth: number, before: string, after: string, known: boolean) => {
    const pad = '  '.repeat(depth), filled = known && was === undefined;
    if (Array.isArray(v) ? v.some((x) => typeof x === 'object') : plain(v)) {
      const open = Array.isArray(v) ? '[' : '{', close = Array.isArray(v) ? ']' : '}';
      const entries = Array.isArray(v) ? v.map((x, i) => ['', x, Array.isArray(was) ? was[i] as unknown : undefined] as const)
        : Object.entries(v as object).map(([k, x]) => [`${JSON.stringify(k)}: `, x as unknown, plain(was) ? was[k] : undefined] as const);
      lines.push({ text: `${pad}${before}${open}`, filled });
      entries.forEach(([name, x, old], i) => { add(x, old, depth + 1, name, i < entries.length - 1 ? ',' : '', known); });
      lines.push({ text: `${pad}${close}${after}`, filled });
      return;
    }
    lines.push({ text: `${pad}${before}${JSON.stringify(v)}${after}`, filled: known && JSON.stringify(was) !== JSON.stringify(v) });
  };
  add(trim(served), trim(written ?? {}), 0, '', '', written !== null);
  return lines;
}

/** trim leaves out what a configuration does not set. */
export function trim(v: unknown): unknown {
  if (Array.isArray(v)) return v.map(trim);
  if (typeof v !== 'object' || v === null) return v;
  const kept = Object.entries(v).map(([k, x]) => [k, trim(x)] as const).filter(([, x]) =>
    !(x === '' || x === false || x === null || x === 0 || (typeof x === 'string' && /^(0|FORMAT_NONE)$/.test(x)) ||
      (typeof x === 'object' && Object.keys(x as object).length === 0)));
  return Object.fromEntries(kept);
}
