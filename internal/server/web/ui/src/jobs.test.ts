import { expect, test } from 'vitest';
import { Failure } from './api';
import { moment } from './format';
import { changes, command, final, missing, pairs, percents, pollAfter, quote, refused, shares, words, type JobView } from './jobs';

const job = (state: string): JobView => ({
  id: 'j', spec: { model: 'm', input: { uri: 'in.jsonl' }, output: { uri: 'out' } }, state, created: '2026-11-23T01:02:03Z',
  rows: { total: 0, done: 0, failed: 0, reused: 0 }, chunks: 0, chunks_done: 0, retries: 0,
});

test('the parts of the rows add up', () => {
  expect(shares({ total: 200, done: 120, failed: 20, reused: 100 })).toEqual({ reused: 0.5, executed: 0.1, failed: 0.1, all: 0.7 });
  expect(shares({ total: 0, done: 0, failed: 0, reused: 0 })).toEqual({ reused: 0, executed: 0, failed: 0, all: 0 });
  expect([0, 0.999, 0.9999999, 1].map(percents)).toEqual(['0 %', '99 %', '99 %', '100 %']);
});

test('what may be done with a job', () => {
  expect(changes('running')).toEqual(['pause', 'cancel']);
  expect(changes('waiting')).toEqual(['pause', 'cancel']);
  expect(changes('paused')).toEqual(['resume', 'cancel']);
  for (const s of ['completed', 'failed', 'cancelled']) expect([final(s), changes(s)]).toEqual([true, ['retry']]);
  expect(pollAfter([job('completed'), job('paused')])).toBeLessThan(pollAfter([job('completed')]));
  expect(missing(new Failure(501, 'no jobs'))).toBe(true);
  expect([404, 501, 503, 500].map((n) => [missing(new Failure(n, '')), refused(new Failure(n, ''))])).toEqual([[false, true], [true, true], [false, false], [false, false]]);
});

test('columns and words of the form', () => {
  expect(pairs(' SCORES=scores, A = b=c ')).toEqual({ SCORES: 'scores', A: 'b=c' });
  expect(pairs(' , ')).toBeUndefined();
  expect(() => pairs('SCORES')).toThrow(/'SCORES'.*INPUT=COLUMN/);
  expect(() => pairs('=x')).toThrow(/INPUT=COLUMN/);
  expect(words('id, name,,')).toEqual(['id', 'name']);
});

test('the command line says the same as the form', () => {
  expect(command({
    id: 'a', model: 'rank', input: { uri: 'in *.jsonl', format: 'jsonl' }, output: { uri: "it's" }, columns: { SCORES: 'scores' }, keep: ['id'], max_failed: 0, overwrite: true,
  }, 'http://h:8000')).toBe("tutti jobs submit --url http://h:8000 --id a --model rank --input 'in *.jsonl' --input-format jsonl --output 'it'\\''s' --column SCORES=scores --keep id --max-failed 0 --overwrite");
  expect(command({ model: '', input: { uri: '' }, output: { uri: '' } }, 'http://h')).toBe('tutti jobs submit --url http://h --model MODEL --input INPUT --output OUTPUT');
  expect(['s3://b/x.jsonl', '', '$HOME', 'a*'].map(quote)).toEqual(['s3://b/x.jsonl', "''", "'$HOME'", "'a*'"]);
});

test('a moment of another day has its date', () => {
  const d = new Date(2026, 10, 23, 1, 2, 3);
  expect(moment(d.toISOString(), new Date(2026, 10, 23, 23))).toBe('01:02:03');
  expect(moment(d.toISOString(), new Date(2026, 10, 24))).toBe('2026-11-23 01:02:03');
});
