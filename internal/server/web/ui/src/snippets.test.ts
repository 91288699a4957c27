import { expect, test } from 'vitest';
import type { ModelMeta } from './api';
import { fresh, fromExample, type Field } from './field';
import { body, curl, infer, nested, parts, python, quoted, type Request } from './snippets';
import { encodeBlobs, encodeNumbers } from './tensor';

const meta: ModelMeta = { name: "it's", versions: ['1'], platform: '', inputs: [{ name: 'X', datatype: 'INT64', shape: [-1, 2] }, { name: 'T', datatype: 'BYTES', shape: [1] }], outputs: [] };
const fields: Record<string, Field> = { X: { shape: '2, 2', text: '9007199254740993', files: [], mode: 'text' }, T: { shape: '1', text: 'a "b" \'c\'\n$HOME', files: [], mode: 'text' } };
const request = async (v: Partial<Request> = {}, f = fields): Promise<Request> =>
  ({ url: 'http://h/v2/models/m', origin: 'http://h', model: meta.name, version: '', decoupled: false, token: false, header: '', parts: await parts(meta, f, v.decoupled ?? false), ...v });
const base64 = (b: Uint8Array) => btoa(String.fromCharCode(...b));

test('the JSON has every digit and every character', async () => {
  expect(body(await request())).toBe('{"inputs":[{"name":"X","datatype":"INT64","shape":[2,2],"data":[9007199254740993,9007199254740993,9007199254740993,9007199254740993]},' +
    '{"name":"T","datatype":"BYTES","shape":[1],"data":["a \\"b\\" \'c\'\\n$HOME"]}]}');
  expect(body(await request({ decoupled: true }))).toMatch(/^\{"X":\[9007199254740993,.*"T":\["a/);
});

test('shell words cannot be broken', async () => {
  expect(quoted("it's")).toBe("'it'\\''s'");
  expect(infer(await request({ token: true, header: 'key', version: '3' }))).toBe(
    "tutti infer --url 'http://h' --token \"$TUTTI_TOKEN\" --header 'key: '\"$TUTTI_HEADER\" 'it'\\''s' --version 3 \\\n" +
    "  --input 'X=[[9007199254740993,9007199254740993],[9007199254740993,9007199254740993]]' \\\n  --input 'T=[\"a \\\"b\\\" '\\''c'\\''\\n$HOME\"]'");
  expect(curl(await request({ token: true }))).toContain("<<'END'\n{\"inputs\"");
  expect(python(await request({ header: 'key' }))).toContain('"key": os.environ["TUTTI_HEADER"]');
});

test('a decoupled model is called over gRPC', async () => {
  expect(infer(await request({ decoupled: true }))).toContain('tutti infer --url "${TUTTI_GRPC:-grpc://h:8001}" ');
  expect(curl(await request({ decoupled: true }))).toContain("curl -sSN 'http://h/v2/models/m/generate_stream'");
});

test('files are sent by their names and lengths', async () => {
  const f = { ...fields, T: { shape: '1', text: '', files: [new File([new Uint8Array(300)], '-rf $x.png')], mode: 'file' as const } };
  const q = await request({}, f);
  expect(curl(q)).toContain("printf '\\054\\001\\000\\000'; cat './-rf $x.png'");
  expect(curl(q)).toContain(`Inference-Header-Content-Length: ${body(q).length}'`);
  expect(python(q)).toContain('tensor = elements("-rf $x.png")');
  expect(infer(q)).toContain("--input 'T=@./-rf $x.png'");
});

test('what no text can say is refused with a reason', async () => {
  await expect(request({}, { ...fields, X: { ...fields['X']!, shape: '1000, 2000' } })).rejects.toThrow('2,000,000 elements, which are too many');
  await expect(request({}, { ...fields, X: { ...fields['X']!, text: '1 2 3' } })).rejects.toThrow("input 'X' takes 4 elements for shape [2, 2], found 3");
  expect(nested(['1', '2', '3', '4'], [2, 1, 2])).toBe('[[[1,2]],[[3,4]]]');
  expect(nested([], [0])).toBe('[]');
});

test('an example fills the fields', () => {
  const example = (datatype: string, shape: number[], raw: Uint8Array) => fromExample({ name: 'X', datatype, shape, raw: base64(raw) });
  expect(example('FP32', [1, 2], encodeNumbers('FP32', ['0.1', '2'], [1, 2]))).toMatchObject({ shape: '1, 2', mode: 'text', text: '0.1 2' });
  expect(example('INT64', [1], encodeNumbers('INT64', ['9007199254740993'], [1])).text).toBe('9007199254740993');
  const bytes = (...l: string[]) => encodeBlobs(l.map((t) => new TextEncoder().encode(t)));
  expect(example('BYTES', [1], bytes('two\nlines'))).toMatchObject({ mode: 'text', text: 'two\nlines' });
  expect(example('BYTES', [2], bytes('a', 'b'))).toMatchObject({ mode: 'lines', text: 'a\nb' });
  const file = example('BYTES', [1], encodeBlobs([new Uint8Array([255, 216, 255])]));
  expect([file.mode, file.files.map((f) => [f.name, f.size])]).toEqual(['file', [['X', 3]]]);
  expect(fresh({ name: 'T', datatype: 'BYTES', shape: [1] }).text).not.toBe('');
});
