// Durable jobs: the JSON of /v2/jobs, as /v2/jobs/openapi.json describes it, and what the pages make of it.
import { ask, Failure, query } from './api';

export interface Place { uri: string; format?: string }

export interface Spec {
  id?: string; model: string; version?: number; input: Place; output: Place; columns?: Record<string, string>; results?: Record<string, string>;
  keep?: string[]; max_failed?: number; chunk_rows?: number; chunks?: number; overwrite?: boolean; other_model?: string; priority?: number; group?: string;
}

export interface Rows { total: number; done: number; failed: number; reused: number }

export interface Problem { chunk: number; attempt: number; worker?: string; error: string; next?: string }

export interface JobView {
  id: string; spec: Spec; state: string; reason?: string; created: string; ended?: string; rows: Rows; chunks: number; chunks_done: number;
  rows_per_second?: number; seconds_left?: number; retries: number; problems?: Problem[]; fingerprint?: string; manifest?: string;
}

export interface JobList { jobs: JobView[]; next?: string }

export interface FailedRow { row: number; place: string; error: string; status: string; reason?: string; retryable?: boolean }

export interface Failures { rows: FailedRow[]; next?: number }

export interface Part { path: string; first_row: number; rows: number; failed: number; errors?: string; bytes: number; sha256: string }

export interface Manifest { job: string; model: string; version: number; fingerprint: string; format: string; rows: Rows; parts: Part[]; sha256: string }

export type Change = 'pause' | 'resume' | 'cancel' | 'retry';

const at = (id: string, what = '') => `../v2/jobs/${encodeURIComponent(id)}${what}`;

export const jobs = {
  list: (limit: number, after: string) => ask<JobList>(`../v2/jobs${query({ limit, after })}`),
  show: (id: string) => ask<JobView>(at(id)),
  failures: (id: string, row: number, limit: number) => ask<Failures>(`${at(id, '/failures')}${query({ row, limit })}`),
  result: (id: string) => ask<Manifest>(at(id, '/result')),
  change: (id: string, what: Change) => ask<JobView>(at(id, `/${what}`), { method: 'POST' }),
  submit: (spec: Spec) => ask<JobView>('../v2/jobs', { method: 'POST', body: JSON.stringify(spec), headers: { 'Content-Type': 'application/json' } }),
};

/** final reports whether a job has ended. */
export const final = (state: string): boolean => ['completed', 'failed', 'cancelled'].includes(state);

/** changes are what may be done with a job in a state. */
export function changes(state: string): Change[] {
  if (final(state)) return ['retry'];
  return state === 'paused' ? ['resume', 'cancel'] : ['pause', 'cancel'];
}

const freshJobs = 8;

/** fresh lists a page of jobs. The list of the server may be ten seconds old, so the latest jobs that have not ended are read one by one. */
export async function fresh(limit: number, after: string): Promise<JobList> {
  const page = await jobs.list(limit, after);
  const going = page.jobs.filter((j) => !final(j.state)).slice(0, freshJobs);
  const now = new Map((await Promise.all(going.map((j) => jobs.show(j.id).catch(() => j)))).map((j) => [j.id, j]));
  return { ...page, jobs: page.jobs.map((j) => now.get(j.id) ?? j) };
}

/** shares are the parts of a job's rows, from 0 to 1: reused, executed, failed, and all of these together. */
export function shares({ total, done, failed, reused }: Rows): { reused: number; executed: number; failed: number; all: number } {
  const of = (n: number) => (total > 0 ? Math.max(0, Math.min(1, n / total)) : 0);
  return { reused: of(reused), executed: of(done - reused), failed: of(failed), all: of(done + failed) };
}

/** whole percents: 100 only when nothing is left. */
export const percents = (share: number): string => `${share >= 1 ? 100 : Math.min(99, Math.floor(share * 100))} %`;

/** pollAfter is the number of milliseconds after which a list of jobs is read again. */
export const pollAfter = (list: JobView[]): number => (list.some((j) => !final(j.state)) ? 2000 : 10_000);

/** refused reports whether a failure lasts: it is of no use to ask again. */
export const refused = (error: unknown): boolean => error instanceof Failure && [400, 401, 403, 404, 501].includes(error.status);

/** missing reports whether a failure says that the server was started without --jobs. */
export const missing = (error: unknown): boolean => error instanceof Failure && error.status === 501;

/** pairs reads "INPUT=COLUMN, INPUT=COLUMN". It throws when a part has no name or no column. */
export function pairs(text: string): Record<string, string> | undefined {
  const list = words(text);
  if (!list) return undefined;
  return Object.fromEntries(list.map((part) => {
    const [name = '', ...rest] = part.split('=');
    const value = rest.join('=').trim();
    if (!name.trim() || !value) throw new Error(`'${part}' is no column of an input: expected INPUT=COLUMN, for example SCORES=scores`);
    return [name.trim(), value];
  }));
}

/** words reads names that commas separate; undefined for none. */
export function words(text: string): string[] | undefined {
  const list = text.split(',').map((w) => w.trim()).filter(Boolean);
  return list.length ? list : undefined;
}

/** quote writes a word for a shell. */
export const quote = (s: string): string => (/^[\w@%+=:,./*-]+$/.test(s) && !s.includes('*') ? s : `'${s.replaceAll("'", `'\\''`)}'`);

/** command is the command line that submits a job to a server. */
export function command(s: Spec, server: string): string {
  const list: [string, string | number | undefined][] = [
    ['url', server], ['id', s.id], ['model', s.model || 'MODEL'], ['model-version', s.version], ['input', s.input.uri || 'INPUT'], ['input-format', s.input.format],
    ['output', s.output.uri || 'OUTPUT'], ['output-format', s.output.format],
    ...Object.entries(s.columns ?? {}).map(([k, v]): [string, string] => ['column', `${k}=${v}`]),
    ...Object.entries(s.results ?? {}).map(([k, v]): [string, string] => ['result', `${k}=${v}`]),
    ...(s.keep ?? []).map((k): [string, string] => ['keep', k]),
    ['chunk-rows', s.chunk_rows], ['chunks', s.chunks], ['other-model', s.other_model], ['priority', s.priority], ['group', s.group],
  ];
  const flags = list.filter(([, v]) => v !== undefined && v !== '' && v !== 0).map(([k, v]) => `--${k} ${quote(String(v))}`);
  if (s.max_failed !== undefined) flags.push(`--max-failed ${s.max_failed}`);
  if (s.overwrite) flags.push('--overwrite');
  return ['tutti jobs submit', ...flags].join(' ');
}

/** serverURL is the address of the server as a command line names it. */
export const serverURL = (): string => new URL('..', location.href.replace(/[?#].*$/s, '')).href.replace(/\/$/, '');
