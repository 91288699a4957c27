import { expect, test } from 'vitest';
import type { ModelMeta } from './api';
import { fit, member, outputs } from './generate';

test('values get the shape that the server gives them', () => {
  expect(fit([-1], 3)).toEqual([3]);
  expect(fit([-1, -1], 3)).toEqual([1, 3]);
  expect(fit([-1, 2], 6)).toEqual([3, 2]);
  expect(fit([1], 1)).toEqual([1]);
  expect(fit([], 1)).toEqual([]);
  expect(fit([-1, 2], 3)).toBeNull();
  expect(fit([2], 4)).toBeNull();
  expect(fit([-1, 0], 0)).not.toBeNull();
});

test('an input is written as JSON', () => {
  const m = (datatype: string, shape = [-1]) => ({ name: 'X', datatype, shape });
  expect(member(m('INT64'), [2], ['9007199254740993', '-1'])).toBe('[9007199254740993,-1]');
  expect(member(m('FP32'), [3], ['1.5'])).toBe('[1.5,1.5,1.5]');
  expect(member(m('BOOL'), [2], ['true', '0'])).toBe('[true,false]');
  expect(member(m('BYTES', [1]), [1], [new TextEncoder().encode('a "b"')])).toBe('["a \\"b\\""]');
  expect(() => member(m('BYTES', [1]), [1], [Uint8Array.of(0xff, 0xd8)])).toThrow(/not text/);
  expect(() => member(m('FP16'), [1], ['1'])).toThrow(/no JSON form/);
  expect(() => member(m('FP32'), [1], ['nan'])).toThrow(/no JSON form/);
  expect(() => member(m('INT32'), [3], ['1', '2'])).toThrow(/takes 3 values/);
  expect(() => member(m('INT32', [-1, -1]), [2, 1], ['1', '2'])).toThrow(/gets shape \[1, 2\]/);
});

test('a response is read, and a failure thrown', () => {
  const m: ModelMeta = { name: 'm', versions: ['1'], platform: '', inputs: [], outputs: [{ name: 'OUT', datatype: 'INT32', shape: [-1, 2] }, { name: 'TEXT', datatype: 'BYTES', shape: [1] }] };
  const list = outputs(m, '{"model_name":"m","OUT":[1,2,3,4],"TEXT":"hello"}');
  expect(list.map((o) => [o.name, o.shape])).toEqual([['OUT', [2, 2]], ['TEXT', [1]]]);
  expect(list[0]!.values).toEqual([1, 2, 3, 4]);
  expect(new TextDecoder().decode(list[1]!.blobs[0])).toBe('hello');
  expect(() => outputs(m, '{"error":"gone"}')).toThrow('gone');
});
