// Addresses within the page stand after the #, so they work below any path.
import { useEffect, useState } from 'preact/hooks';

export interface Route { page: string; arg: string; query: Record<string, string> }

/** parse reads the part after the #. */
export function parse(hash: string): Route {
  const [path = '', q = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [page = '', ...rest] = path.split('/');
  let arg = rest.join('/');
  try { arg = decodeURIComponent(arg); } catch { /* stays as it was written */ }
  return { page, arg, query: Object.fromEntries(new URLSearchParams(q)) };
}

/** link writes an address. */
export function link(page: string, arg = '', query: Record<string, string | number | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== '') q.set(k, String(v));
  const s = q.toString();
  return `#/${page}${arg === '' ? '' : `/${encodeURIComponent(arg)}`}${s && `?${s}`}`;
}

/** go opens an address; in place of the present one when it only refines it. */
export function go(to: string, replace = false): void {
  if (!replace) { location.hash = to; return; }
  history.replaceState(null, '', to);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute(): Route {
  const [r, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const f = () => set(parse(location.hash));
    addEventListener('hashchange', f);
    return () => removeEventListener('hashchange', f);
  }, []);
  return r;
}
