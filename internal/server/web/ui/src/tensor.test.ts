import { expect, test } from 'vitest';
import { body, decode, encodeBlobs, encodeNumbers, fromHalf, guess, parseNumbers, parseShape, picture, read, toHalf, topK, written } from './tensor';

test.each([
  ['BOOL', ['true', '0'], [true, false]], ['UINT8', ['0', '255'], [0, 255]], ['INT8', ['-1', '5'], [-1, 5]],
  ['INT16', ['-300', '7'], [-300, 7]], ['UINT16', ['65535', '7'], [65535, 7]], ['INT32', ['-70000', '7'], [-70000, 7]],
  ['UINT32', ['4294967295', '7'], [4294967295, 7]], ['INT64', ['-9007199254740993', '7'], [-9007199254740993n, 7n]],
  ['UINT64', ['18446744073709551615', '7'], [18446744073709551615n, 7n]], ['FP16', ['0.5', '-2'], [0.5, -2]],
  ['BF16', ['0.5', '-2'], [0.5, -2]], ['FP32', ['0.5', '-2'], [0.5, -2]], ['FP64', ['0.1', 'NaN'], [0.1, NaN]],
])('%s there and back', (type, texts, want) => {
  expect(decode('x', type, [2], encodeNumbers(type, texts, [2])).values).toEqual(want);
});

test('every half precision number comes back', () => {
  const wrong: number[] = [];
  for (let h = 0; h < 65536; h++) {
    const n = fromHalf(h);
    if (!Number.isNaN(n) && toHalf(n) !== h) wrong.push(h);
  }
  expect(wrong).toEqual([]);
});

test('one number fills a shape, a wrong count is refused', () => {
  expect(decode('x', 'FP32', [3], encodeNumbers('FP32', ['2'], [3])).values).toEqual([2, 2, 2]);
  expect(() => encodeNumbers('FP32', ['1', '2'], [3])).toThrow('expected 3 numbers');
  expect(() => encodeNumbers('FP32', ['a'], [1])).toThrow("'a' is not a number");
  expect(() => encodeNumbers('FP32', ['1'], [1e9])).toThrow('too many');
});

test('shapes and numbers are read leniently', () => {
  expect(parseShape('1, 3x224 224')).toEqual([1, 3, 224, 224]);
  expect(parseShape('')).toEqual([]);
  expect(() => parseShape('1,-1')).toThrow('invalid shape');
  expect(parseNumbers('[1, 2; 3]')).toEqual(['1', '2', '3']);
  expect(guess({ name: 'x', datatype: 'FP32', shape: [-1, 4] })).toEqual([1, 4]);
});

const utf8 = (s: string) => new TextEncoder().encode(s);

test('an answer with bytes behind its header', () => {
  const label = encodeBlobs([utf8('cat'), utf8('dog')]), prob = encodeNumbers('FP32', ['0.75', '0.25'], [2]);
  const header = utf8(JSON.stringify({ outputs: [
    { name: 'labels', datatype: 'BYTES', shape: [2], parameters: { binary_data_size: label.length } },
    { name: 'n', datatype: 'INT32', shape: [1, 2], data: [[5, 6]] },
    { name: 'probabilities', datatype: 'FP32', shape: [2], parameters: { binary_data_size: prob.length } },
  ] }));
  const all = new Uint8Array([...header, ...label, ...prob]);
  const outputs = read(all, header.length);
  expect(outputs.map((o) => o.values.length || o.blobs.length)).toEqual([2, 2, 2]);
  expect(topK(outputs)).toEqual([{ label: 'cat', value: 0.75 }, { label: 'dog', value: 0.25 }]);
});

test('an element beyond its tensor is refused', () => {
  expect(() => decode('x', 'BYTES', [1], new Uint8Array([9, 0, 0, 0, 1]))).toThrow('ends within');
});

test('a request has its tensors behind its header', async () => {
  const b = body('id', [{ name: 'A', datatype: 'BYTES', shape: [1], data: encodeBlobs([utf8('x')]) }], ['B']);
  const raw = new Uint8Array(await b.body.arrayBuffer());
  const h = JSON.parse(new TextDecoder().decode(raw.subarray(0, b.header)));
  expect(h.inputs[0].parameters.binary_data_size).toBe(raw.length - b.header);
  expect(h.outputs).toEqual([{ name: 'B', parameters: { binary_data: true } }]);
});

test('pictures and texts are told apart', () => {
  expect(picture(new Uint8Array([0xff, 0xd8, 0xff, 1]))).toBe('image/jpeg');
  expect(picture(utf8('hello'))).toBe('');
  expect(written(new Uint8Array([0xff]))).toBe('1 bytes');
});
