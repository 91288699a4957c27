// What a form has for each input of a model, and the tensors that are made from it.
import type { TensorMeta } from './api';
import { member } from './generate';
import { decode, encodeBlobs, encodeNumbers, guess, parseNumbers, parseShape, type Input } from './tensor';

/** Field is what was filled in for an input. */
export interface Field { shape: string; text: string; files: File[]; mode: 'text' | 'file' | 'lines' }

const looksLikeFile = (m: TensorMeta) => /image|picture|photo|jpeg|png|audio|file/i.test(m.name);

/** sample is what a text input is filled with when the model has no examples. */
const sample = 'An example text.';

/** fresh is a field as it is first shown. */
export function fresh(m: TensorMeta): Field {
  return { shape: guess(m).join(', '), text: m.datatype === 'BYTES' ? sample : '0', files: [], mode: m.datatype === 'BYTES' && looksLikeFile(m) ? 'file' : 'text' };
}

/** encode makes the tensor of a field. */
export async function encode(m: TensorMeta, f: Field): Promise<Input> {
  const shape = parseShape(f.shape);
  if (m.datatype !== 'BYTES') return { name: m.name, datatype: m.datatype, shape, data: encodeNumbers(m.datatype, parseNumbers(f.text), shape) };
  const list = await blobs(f);
  const n = shape.reduce((a, b) => a * b, 1);
  if (list.length !== n) throw new Error(`input '${m.name}' takes ${n} ${f.mode === 'file' ? 'files' : 'texts'} for shape [${shape.join(', ')}], found ${list.length}`);
  return { name: m.name, datatype: m.datatype, shape, data: encodeBlobs(list) };
}

/** encodeJSON makes the JSON of a field, for a decoupled model. */
export async function encodeJSON(m: TensorMeta, f: Field): Promise<string> {
  return member(m, parseShape(f.shape), m.datatype === 'BYTES' ? await blobs(f) : parseNumbers(f.text));
}

/** blobs are the elements of a field of type BYTES. */
export const blobs = (f: Field): Promise<Uint8Array[]> => Promise.all(f.mode === 'file'
  ? f.files.map(async (x) => new Uint8Array(await x.arrayBuffer()))
  : (f.mode === 'lines' ? f.text.split('\n') : [f.text]).map((t) => new TextEncoder().encode(t)));

/** ExampleTensor is an input of a golden request: its elements are those of a binary tensor, as base64. */
export interface ExampleTensor { name: string; datatype: string; shape: number[]; raw: string | null }
export interface Example { name: string; inputs: ExampleTensor[] }

/** short writes a number of 32 bits with as few digits as tell it apart. */
const short = (v: number): string => {
  for (let n = 6; n < 9; n++) if (Math.fround(Number(v.toPrecision(n))) === v) return String(Number(v.toPrecision(n)));
  return String(v);
};

/** fromExample fills a field: numbers and texts as text, other bytes as files. */
export function fromExample(x: ExampleTensor): Field {
  const raw = Uint8Array.from(atob(x.raw ?? ''), (c) => c.charCodeAt(0)), shape = x.shape.join(', ');
  const v = decode(x.name, x.datatype, x.shape, raw, Infinity);
  if (x.datatype !== 'BYTES') return { shape, mode: 'text', files: [], text: v.values.map((n) => (x.datatype === 'FP32' ? short(Number(n)) : String(n))).join(' ') };
  try {
    const texts = v.blobs.map((b) => new TextDecoder('utf-8', { fatal: true }).decode(b));
    if (texts.length === 1) return { shape, mode: 'text', files: [], text: texts[0]! };
    if (texts.every((t) => !t.includes('\n'))) return { shape, mode: 'lines', files: [], text: texts.join('\n') };
  } catch { /* they are no texts */ }
  return { shape, mode: 'file', text: '', files: v.blobs.map((b, i) => new File([b as BlobPart], v.blobs.length > 1 ? `${x.name}-${i}` : x.name)) };
}
