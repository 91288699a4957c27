// How figures are written.

const digits = (v: number): string => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));

/** dur writes nanoseconds. */
export function dur(ns: number): string {
  const a = Math.abs(ns);
  if (a === 0) return '0';
  const sign = ns < 0 ? '−' : '';
  if (a < 1e3) return `${sign}${a.toFixed(0)} ns`;
  if (a < 999.5e3) return `${sign}${digits(a / 1e3)} µs`;
  if (a < 999.5e6) return `${sign}${digits(a / 1e6)} ms`;
  if (a < 120e9) return `${sign}${digits(a / 1e9)} s`;
  return `${sign}${digits(a / 60e9)} min`;
}

/** bytes writes a size. */
export function bytes(n: number): string {
  if (n < 1000) return `${Math.round(n)} B`;
  for (const unit of ['kB', 'MB', 'GB']) {
    n /= 1000;
    if (n < 999.5) return `${digits(n)} ${unit}`;
  }
  return `${digits(n / 1000)} TB`;
}

/** count writes a number with few digits. */
export function count(n: number): string {
  if (n === 0) return '0';
  if (n < 0.01) return '<0.01';
  if (n < 1000) return Number.isInteger(n) ? String(n) : digits(n);
  if (n < 999.5e3) return `${digits(n / 1e3)}k`;
  return `${digits(n / 1e6)}M`;
}

/** percent writes a share. */
export const percent = (share: number): string => (share > 0 && share < 0.001 ? '<0.1 %' : `${(share * 100).toFixed(1)} %`);

/** clock writes the time of day of microseconds since 1970. */
export function clock(us: number): string {
  const d = new Date(us / 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

/** moment writes a date and time of day as they are here; the date only when it is not today's. */
export function moment(iso: string, now = new Date()): string {
  const d = new Date(iso);
  const two = (n: number) => String(n).padStart(2, '0');
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} `;
  return `${d.toDateString() === now.toDateString() ? '' : day}${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** ago writes how long something has been. */
export function ago(us: number): string {
  const s = us / 1e6;
  if (s < 60) return `${Math.max(0, Math.floor(s))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** whole writes a number with all its digits, in groups. */
export const whole = (n: number): string => n.toLocaleString('en');

/** shape writes a shape, with * for what is not fixed. */
export const shape = (s: number[] | null): string => (s?.length ? s.map((d) => (d < 0 ? '*' : d)).join('×') : 'scalar');

/** shorten cuts the middle out of a text. */
export const shorten = (s: string, n: number): string =>
  s.length <= n ? s : `${s.slice(0, Math.ceil((n - 1) * 0.6))}…${s.slice(s.length - Math.floor((n - 1) * 0.4))}`;

/** plural writes a number with what it counts. */
export const plural = (n: number, one: string, many = `${one}s`): string => `${n.toLocaleString('en')} ${n === 1 ? one : many}`;

/** storedText says of how many requests of a batch the traces are stored. */
export const storedText = (stored: number, all: number): string => {
  if (stored >= all) return all === 1 ? 'The trace of its only request is stored.' : `The traces of all ${all} requests are stored.`;
  if (stored === 0) return all === 1 ? 'The trace of its only request is not stored.' : `None of the traces of its ${all} requests is stored.`;
  return `The traces of ${stored} of ${all} requests are stored.`;
};
