// A request of the form as a command or a program that sends the same.
import type { ModelMeta, TensorMeta } from './api';
import { blobs, type Field } from './field';
import { number } from './generate';
import { parseNumbers, parseShape } from './tensor';

/** Part is an input: its elements as JSON texts, or the files that have them. */
export interface Part { m: TensorMeta; shape: number[]; values: string[]; files: { name: string; size: number }[] }

/** Request is what the snippets are made from. Url is that of the model. The headers are names of secrets, which no snippet has. */
export interface Request { url: string; origin: string; model: string; version: string; decoupled: boolean; token: boolean; header: string; parts: Part[] }

const mostElements = 100_000;

/** parts reads the fields of a form. What a text cannot say is an error. */
export async function parts(m: ModelMeta, fields: Record<string, Field>, decoupled: boolean): Promise<Part[]> {
  return Promise.all(m.inputs.map(async (i): Promise<Part> => {
    const f = fields[i.name]!, shape = parseShape(f.shape), n = shape.reduce((a, b) => a * b, 1);
    if (n > mostElements) throw new Error(`input '${i.name}' has ${n.toLocaleString('en')} elements, which are too many for a text`);
    if (i.datatype === 'FP16' || i.datatype === 'BF16') throw new Error(`input '${i.name}' of ${i.datatype} has no text form: use a client with binary tensors`);
    if (i.datatype !== 'BYTES') {
      const texts = parseNumbers(f.text), all = texts.length === 1 ? Array<string>(n).fill(texts[0]!) : texts;
      return { m: i, shape, values: counted(i, shape, n, all.map((t) => number(i.datatype, t))), files: [] };
    }
    if (f.mode === 'file' && !decoupled) {
      const files = f.files.map((x) => ({ name: x.name, size: x.size }));
      return { m: i, shape, values: [], files: counted(i, shape, n, files) };
    }
    const texts = (await blobs(f)).map((b) => { try { return new TextDecoder('utf-8', { fatal: true }).decode(b); } catch { throw new Error(`input '${i.name}' is no text, which decoupled models take here`); } });
    return { m: i, shape, values: counted(i, shape, n, texts.map((t) => JSON.stringify(t))), files: [] };
  }));
}

function counted<T>(m: TensorMeta, shape: number[], n: number, list: T[]): T[] {
  if (list.length !== n) throw new Error(`input '${m.name}' takes ${n} elements for shape [${shape.join(', ')}], found ${list.length}`);
  return list;
}

const json = JSON.stringify;

/** tensor is an input in the JSON of a request. */
const tensor = (p: Part): string => `{"name":${json(p.m.name)},"datatype":${json(p.m.datatype)},"shape":[${p.shape.join(',')}],` +
  (p.files.length ? `"parameters":{"binary_data_size":${size(p)}}}` : `"data":[${p.values.join(',')}]}`);

const size = (p: Part): number => p.files.reduce((n, f) => n + 4 + f.size, 0);

/** body is the JSON of a request, or its header where tensors follow. */
export const body = (q: Request): string => (q.decoupled ? `{${q.parts.map((p) => `${json(p.m.name)}:[${p.values.join(',')}]`).join(',')}}` : `{"inputs":[${q.parts.map(tensor).join(',')}]}`);

const path = (q: Request): string => `${q.url}${q.version ? `/versions/${q.version}` : ''}/${q.decoupled ? 'generate_stream' : 'infer'}`;

const utf8 = (s: string): number => new TextEncoder().encode(s).length;

/** quoted is a text as a word of a shell. */
export const quoted = (s: string): string => `'${s.replaceAll("'", "'\\''")}'`;

/** file is the name of a file as a word of a shell that no command takes for an option. */
const file = (name: string): string => quoted(`./${name}`);

/** le32 is a length in four bytes, as printf writes them. */
const le32 = (n: number): string => [0, 8, 16, 24].map((s) => `\\${((n >>> s) & 255).toString(8).padStart(3, '0')}`).join('');

/** curl sends the request with curl. */
export function curl(q: Request): string {
  const secrets = `${q.token ? ' \\\n  -H "Authorization: Bearer $TUTTI_TOKEN"' : ''}${q.header ? ` \\\n  -H ${quoted(`${q.header}: `)}"$TUTTI_HEADER"` : ''}`;
  const text = body(q), files = q.parts.flatMap((p) => p.files);
  if (files.length === 0) {
    return `curl -sS${q.decoupled ? 'N' : ''} ${quoted(path(q))} \\\n  -H 'Content-Type: application/json'${secrets} \\\n  --data-binary @- <<'END'\n${text}\nEND`;
  }
  const tail = files.map((f) => `  printf '${le32(f.size)}'; cat ${file(f.name)}`).join('\n');
  return `{ cat <<'END' | tr -d '\\n'\n${text}\nEND\n${tail}\n} | curl -sS ${quoted(path(q))} \\\n  -H 'Content-Type: application/octet-stream' -H 'Inference-Header-Content-Length: ${utf8(text)}'${secrets} \\\n  --data-binary @-`;
}

/** string is a text as Python writes it: what JSON escapes, Python does. */
const string = (s: string): string => json(s).replace(/[\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16)}`);

/** literal is a JSON element in Python. */
const literal = (v: string): string => (v === 'true' ? 'True' : v === 'false' ? 'False' : v);

/** list is the elements of a tensor; of many equal ones it has one. */
const list = (v: string[]): string => (v.length > 8 && v.every((x) => x === v[0]) ? `[${literal(v[0]!)}] * ${v.length}` : `[${v.map(literal).join(', ')}]`);

/** python sends the request with what Python has. */
export function python(q: Request): string {
  const binary = q.parts.some((p) => p.files.length > 0);
  const heads = [
    binary ? '"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))' : '"Content-Type": "application/json"',
    ...(q.token ? ['"Authorization": "Bearer " + os.environ["TUTTI_TOKEN"]'] : []), ...(q.header ? [`${string(q.header)}: os.environ["TUTTI_HEADER"]`] : []),
  ].join(', ');
  const lines = ['import json', ...(q.token || q.header ? ['import os'] : []), ...(binary ? ['import struct'] : []), 'import urllib.error', 'import urllib.request', ''];
  if (binary) {
    lines.push('def elements(*files):', '    parts = [open(f, "rb").read() for f in files]', '    return b"".join(struct.pack("<I", len(p)) + p for p in parts)', '', 'tail = b""', 'inputs = []');
    for (const p of q.parts) {
      const head = `"name": ${string(p.m.name)}, "datatype": ${string(p.m.datatype)}, "shape": [${p.shape.join(', ')}]`;
      if (p.files.length) lines.push(`tensor = elements(${p.files.map((f) => string(f.name)).join(', ')})`, 'tail += tensor', `inputs.append({${head}, "parameters": {"binary_data_size": len(tensor)}})`);
      else lines.push(`inputs.append({${head}, "data": ${list(p.values)}})`);
    }
    lines.push('header = json.dumps({"inputs": inputs}).encode()', 'body = header + tail');
  } else if (q.decoupled) {
    lines.push('body = json.dumps({', ...q.parts.map((p) => `    ${string(p.m.name)}: ${list(p.values)},`), '}).encode()');
  } else {
    lines.push('body = json.dumps({"inputs": [', ...q.parts.map((p) => `    {"name": ${string(p.m.name)}, "datatype": ${string(p.m.datatype)}, "shape": [${p.shape.join(', ')}], "data": ${list(p.values)}},`), ']}).encode()');
  }
  lines.push(`request = urllib.request.Request(${string(path(q))}, body, {${heads}})`, 'try:', '    with urllib.request.urlopen(request) as response:');
  if (q.decoupled) lines.push('        for line in response:', '            if line.startswith(b"data: "):', '                print(json.loads(line[6:]))');
  else lines.push('        for output in json.load(response)["outputs"]:', '            print(output["name"], output["shape"], output["data"])');
  lines.push('except urllib.error.HTTPError as error:', '    raise SystemExit(error.read().decode())');
  return lines.join('\n');
}

/** nested writes elements as arrays in arrays, as a shape says. */
export function nested(values: string[], shape: number[]): string {
  if (shape.length <= 1) return `[${values.join(',')}]`;
  const [n, ...rest] = shape as [number, ...number[]], each = rest.reduce((a, b) => a * b, 1);
  return `[${Array.from({ length: n }, (_, i) => nested(values.slice(i * each, (i + 1) * each), rest)).join(',')}]`;
}

/** infer sends the request with tutti infer, to a decoupled model over gRPC: the pages do not know its port. */
export function infer(q: Request): string {
  const args = q.parts.map((p) => {
    if (p.files.length > 1) throw new Error(`input '${p.m.name}' has several files, of which tutti infer takes one`);
    const [f] = p.files;
    return `  --input ${quoted(`${p.m.name}=${f ? `@./${f.name}` : nested(p.values, p.shape)}`)}`;
  });
  const token = q.token ? ' --token "$TUTTI_TOKEN"' : '', header = q.header ? ` --header ${quoted(`${q.header}: `)}"$TUTTI_HEADER"` : '';
  const url = q.decoupled ? `"\${TUTTI_GRPC:-grpc://${new URL(q.origin).hostname}:8001}"` : quoted(q.origin);
  return [`tutti infer --url ${url}${token}${header} ${quoted(q.model)}${q.version ? ` --version ${q.version}` : ''}`, ...args].join(' \\\n');
}
