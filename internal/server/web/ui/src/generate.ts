// Requests of decoupled models, over generate_stream: JSON by the names of tensors, and each response as an event.
import type { ModelMeta, TensorMeta } from './api';
import { decode, encodeBlobs, encodeNumbers, type Output } from './tensor';

const product = (s: number[]): number => s.reduce((a, b) => a * b, 1);

/** fit is the shape that the server gives to n values: the innermost extent that is not fixed takes what the others leave; null when none fits. */
export function fit(want: number[], n: number): number[] | null {
  const known = product(want.filter((d) => d >= 0));
  if (known === 0 ? n !== 0 : n % known !== 0) return null;
  let rest = known === 0 ? 1 : n / known;
  const shape = [...want].reverse().map((d) => {
    if (d >= 0) return d;
    const own = rest;
    rest = 1;
    return own;
  }).reverse();
  return rest === 1 ? shape : null;
}

/** number writes what was typed as JSON, digit by digit: 64 bits are more than a number of this language has. */
export function number(datatype: string, text: string): string {
  if (datatype === 'BOOL') return /^(true|1)$/i.test(text) ? 'true' : 'false';
  if (/^(U?INT)/.test(datatype)) return BigInt(text).toString();
  const v = Number(text);
  if (!Number.isFinite(v)) throw new Error(`'${text}' has no JSON form`);
  return String(v);
}

/** member writes an input as JSON. Its shape follows from the number of values, so another one is refused. */
export function member(m: TensorMeta, shape: number[], values: string[] | Uint8Array[]): string {
  if (m.datatype === 'FP16' || m.datatype === 'BF16') throw new Error(`input '${m.name}' of ${m.datatype} has no JSON form, which decoupled models take here: use tutti infer --url grpc://HOST:PORT`);
  const n = product(shape);
  const one = values.length === 1 && n > 1 && m.datatype !== 'BYTES' ? Array<string>(n).fill(values[0] as string) : values;
  if (one.length !== n) throw new Error(`input '${m.name}' takes ${n} values for shape [${shape.join(', ')}], found ${one.length}`);
  const given = fit(m.shape, n);
  if (!given || given.join() !== shape.join()) throw new Error(`input '${m.name}' of a decoupled model gets shape [${given?.join(', ') ?? 'none'}] for ${n} values, found [${shape.join(', ')}]`);
  return `[${one.map((v) => (typeof v === 'string' ? number(m.datatype, v) : text(m, v))).join(',')}]`;
}

function text(m: TensorMeta, b: Uint8Array): string {
  try { return JSON.stringify(new TextDecoder('utf-8', { fatal: true }).decode(b)); } catch {
    throw new Error(`input '${m.name}' is not text, and decoupled models take no other bytes here: use tutti infer --url grpc://HOST:PORT`);
  }
}

/** outputs reads one response. A failure is thrown. */
export function outputs(m: ModelMeta, data: string): Output[] {
  const v = JSON.parse(data) as Record<string, unknown>;
  if (typeof v['error'] === 'string' && !m.outputs.some((o) => o.name === 'error')) throw new Error(v['error']);
  return m.outputs.filter((o) => v[o.name] !== undefined).map((o) => {
    const list = [v[o.name]].flat(Infinity) as (string | number | boolean)[];
    const raw = o.datatype === 'BYTES'
      ? encodeBlobs(list.map((x) => new TextEncoder().encode(String(x))))
      : encodeNumbers(o.datatype, list.map(String), [list.length]);
    return decode(o.name, o.datatype, fit(o.shape, list.length) ?? [list.length], raw);
  });
}
