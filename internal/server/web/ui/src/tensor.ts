// Requests of the protocol with tensors as bytes, and their answers.
import type { TensorMeta } from './api';

const sizes: Record<string, number> = {
  BOOL: 1, UINT8: 1, UINT16: 2, UINT32: 4, UINT64: 8, INT8: 1, INT16: 2, INT32: 4, INT64: 8, FP16: 2, BF16: 2, FP32: 4, FP64: 8,
};

export interface Input { name: string; datatype: string; shape: number[]; data: Uint8Array }
export interface Output { name: string; datatype: string; shape: number[]; values: (number | bigint | boolean)[]; blobs: Uint8Array[] }

const product = (s: number[]): number => s.reduce((a, b) => a * b, 1);

/** guess fills the dimensions that are not fixed. */
export const guess = (m: TensorMeta): number[] => m.shape.map((d) => (d < 0 ? 1 : d));

/** parseShape reads "1, 3, 224" or "1x3x224". */
export function parseShape(text: string): number[] {
  const parts = text.split(/[\s,x×*]+/).filter(Boolean);
  const list = parts.map(Number);
  if (list.some((d) => !Number.isInteger(d) || d < 0)) throw new Error(`invalid shape '${text}', expected whole numbers`);
  return list;
}

/** parseNumbers reads numbers apart by spaces, commas or brackets. */
export function parseNumbers(text: string): string[] { return text.split(/[\s,;[\]()]+/).filter(Boolean); }

/** encodeBlobs writes elements of type BYTES. */
export function encodeBlobs(list: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(list.reduce((n, b) => n + 4 + b.length, 0));
  const view = new DataView(out.buffer);
  let at = 0;
  for (const b of list) {
    view.setUint32(at, b.length, true);
    out.set(b, at + 4);
    at += 4 + b.length;
  }
  return out;
}

/** encodeNumbers writes numbers as elements of a type; one number fills the whole shape. */
export function encodeNumbers(datatype: string, texts: string[], shape: number[]): Uint8Array {
  const size = sizes[datatype];
  const n = product(shape);
  if (!size) throw new Error(`type '${datatype}' cannot be typed in`);
  if (n > 1 << 24) throw new Error(`${n} elements are too many for a form`);
  if (texts.length === 1 && n > 1) texts = Array<string>(n).fill(texts[0]!);
  if (texts.length !== n) throw new Error(`expected ${n} numbers for shape [${shape.join(', ')}], found ${texts.length}`);
  const out = new Uint8Array(n * size);
  const view = new DataView(out.buffer);
  texts.forEach((t, i) => put(view, datatype, i * size, t));
  return out;
}

function put(v: DataView, datatype: string, at: number, text: string): void {
  if (datatype === 'BOOL') {
    v.setUint8(at, /^(true|1)$/i.test(text) ? 1 : 0);
    return;
  }
  if (datatype === 'INT64' || datatype === 'UINT64') {
    v.setBigInt64(at, BigInt(text), true);
    return;
  }
  const n = Number(text);
  if (Number.isNaN(n) && !/^nan$/i.test(text)) throw new Error(`'${text}' is not a number`);
  switch (datatype) {
    case 'UINT8': case 'INT8': v.setInt8(at, n); break;
    case 'UINT16': case 'INT16': v.setInt16(at, n, true); break;
    case 'UINT32': case 'INT32': v.setInt32(at, n, true); break;
    case 'FP16': v.setUint16(at, toHalf(n), true); break;
    case 'BF16': v.setUint16(at, toBrain(n), true); break;
    case 'FP32': v.setFloat32(at, n, true); break;
    default: v.setFloat64(at, n, true);
  }
}

const scratch = new DataView(new ArrayBuffer(4));

function toBrain(n: number): number {
  scratch.setFloat32(0, n);
  const bits = scratch.getUint32(0);
  if (Number.isNaN(n)) return 0x7fc0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** toHalf rounds to the nearest number of 16 bits, ties to even. */
export function toHalf(n: number): number {
  const sign = n < 0 || Object.is(n, -0) ? 0x8000 : 0, a = Math.abs(n);
  if (Number.isNaN(n)) return 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  const exponent = a < 2 ** -14 ? -14 : Math.floor(Math.log2(a));
  const scaled = a / 2 ** (exponent - 10), whole = Math.floor(scaled), rest = scaled - whole;
  const mantissa = whole + (rest > 0.5 || (rest === 0.5 && whole % 2 === 1) ? 1 : 0);
  return sign | (exponent === -14 && mantissa < 1024 ? mantissa : ((exponent + 15) << 10) + mantissa - 1024);
}

/** fromHalf reads a number of 16 bits. */
export function fromHalf(h: number): number {
  const sign = h & 0x8000 ? -1 : 1, e = (h >> 10) & 31, m = h & 1023;
  if (e === 31) return m ? NaN : sign * Infinity;
  return sign * (e ? (1 + m / 1024) * 2 ** (e - 15) : m * 2 ** -24);
}

function get(v: DataView, datatype: string, at: number): number | bigint | boolean {
  switch (datatype) {
    case 'BOOL': return v.getUint8(at) !== 0;
    case 'UINT8': return v.getUint8(at);
    case 'INT8': return v.getInt8(at);
    case 'UINT16': return v.getUint16(at, true);
    case 'INT16': return v.getInt16(at, true);
    case 'UINT32': return v.getUint32(at, true);
    case 'INT32': return v.getInt32(at, true);
    case 'UINT64': return v.getBigUint64(at, true);
    case 'INT64': return v.getBigInt64(at, true);
    case 'FP16': return fromHalf(v.getUint16(at, true));
    case 'BF16': scratch.setUint32(0, v.getUint16(at, true) << 16); return scratch.getFloat32(0);
    case 'FP32': return v.getFloat32(at, true);
    default: return v.getFloat64(at, true);
  }
}

/** shownValues bounds the elements that are decoded for a person to read. */
const shownValues = 4096;

/** decode reads the elements of an output. */
export function decode(name: string, datatype: string, shape: number[], data: Uint8Array, most = shownValues): Output {
  const out: Output = { name, datatype, shape, values: [], blobs: [] };
  const v = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (datatype === 'BYTES') {
    for (let at = 0; at + 4 <= data.length && out.blobs.length < most; ) {
      const n = v.getUint32(at, true);
      if (at + 4 + n > data.length) throw new Error(`output '${name}' ends within an element`);
      out.blobs.push(data.subarray(at + 4, at + 4 + n));
      at += 4 + n;
    }
    return out;
  }
  const size = sizes[datatype];
  if (!size) throw new Error(`output '${name}' has unknown type '${datatype}'`);
  const n = Math.min(most, Math.floor(data.length / size));
  for (let i = 0; i < n; i++) out.values.push(get(v, datatype, i * size));
  return out;
}

/** body writes a request with all tensors behind its header; it returns the header's length too. */
export function body(id: string, inputs: Input[], outputs: string[]): { body: Blob; header: number } {
  const header = new TextEncoder().encode(JSON.stringify({
    id,
    inputs: inputs.map((i) => ({ name: i.name, datatype: i.datatype, shape: i.shape, parameters: { binary_data_size: i.data.length } })),
    outputs: outputs.map((name) => ({ name, parameters: { binary_data: true } })),
  }));
  return { body: new Blob([header, ...inputs.map((i) => i.data as BlobPart)]), header: header.length };
}

interface AnswerHeader {
  outputs?: { name: string; datatype: string; shape: number[]; parameters?: { binary_data_size?: number }; data?: unknown[] }[];
}

/** read reads an answer, of which the header takes so many bytes. */
export function read(data: Uint8Array, header: number): Output[] {
  const h = JSON.parse(new TextDecoder().decode(data.subarray(0, header))) as AnswerHeader;
  let at = header;
  return (h.outputs ?? []).map((o) => {
    const size = o.parameters?.binary_data_size;
    if (size === undefined) {
      const texts = (o.data ?? []).flat(Infinity) as (string | number | boolean)[];
      const raw = o.datatype === 'BYTES'
        ? encodeBlobs(texts.map((t) => new TextEncoder().encode(String(t))))
        : encodeNumbers(o.datatype, texts.map(String), [texts.length]);
      return decode(o.name, o.datatype, o.shape, raw);
    }
    const part = data.subarray(at, at + size);
    at += size;
    return decode(o.name, o.datatype, o.shape, part);
  });
}

/** picture tells the kind of image that bytes are, empty for none. */
export function picture(b: Uint8Array): string {
  const starts = (...x: number[]) => x.every((v, i) => b[i] === v);
  if (starts(0x89, 0x50, 0x4e, 0x47)) return 'image/png';
  if (starts(0xff, 0xd8, 0xff)) return 'image/jpeg';
  if (starts(0x47, 0x49, 0x46, 0x38)) return 'image/gif';
  if (starts(0x52, 0x49, 0x46, 0x46) && b[8] === 0x57 && b[9] === 0x45) return 'image/webp';
  return '';
}

/** written is bytes as text where they are text. */
export function written(b: Uint8Array): string {
  try { return new TextDecoder('utf-8', { fatal: true }).decode(b); } catch { return `${b.length} bytes`; }
}

/** topK pairs labels with the numbers that rank them, where an answer has such. */
export function topK(list: Output[]): { label: string; value: number }[] {
  const labels = list.find((o) => /label|class/i.test(o.name) && o.datatype === 'BYTES' && o.blobs.length > 0);
  const n = labels?.blobs.length ?? 0;
  const ranks = list.find((o) => /^(FP|BF)/.test(o.datatype) && o.values.length === n && /prob|score|conf/i.test(o.name));
  if (!labels || !ranks || n < 2) return [];
  return labels.blobs.map((b, i) => ({ label: written(b), value: Number(ranks.values[i]) }));
}
