// The JSON of the server, as doc.go of package web and the types of package infer say.

import type { Example } from './field';

export interface RingStats { retained: string; bytes: number; used_bytes: number; traces: number; oldest_us: number }

/** GPUView is a GPU; what it does not tell is null. */
export interface GPUView { uuid: string; utilization: number | null; memory_total_bytes: number | null; memory_used_bytes: number | null; power_watts: number | null }

export interface DegradedView { what: string; name?: string; version?: string; reason: string; since_us: number }

/** A series has null where nothing is known. */
export type Values = (number | null)[];

export interface ModelSeries {
  name: string; ensemble: boolean; rate: Values; error_rate: Values; p50_ns: Values; p99_ns: Values; queue: Values; batch_rows: Values; queue_ns: Values; compute_ns: Values;
}

export interface HistoryView {
  from_us: number; step_us: number; steps: number; now_us: number; oldest_us: number; stored: boolean;
  cores: Values; memory_bytes: Values; tensor_bytes: Values; gpus: { uuid: string; utilization: Values; memory_used_bytes: Values }[];
  total: ModelSeries | null; models: ModelSeries[]; more: number;
}

export interface InstanceView { name: string; kind: string; place: string; count: number; passive?: boolean; process?: boolean; alive?: boolean; memory_bytes?: number }

export interface VersionDetail {
  version: string; state: string; reason?: string; queued: number; running: number; utilization: number; instances: InstanceView[] | null;
}

export interface LoadEvent { at_us: number; what: string; versions: string[]; took_ns?: number; cause: string; reason?: string }

export interface ModelDetail {
  name: string; ensemble: boolean; dir: string; served: Record<string, unknown> | null; written: Record<string, unknown> | null; written_error?: string;
  override?: boolean; changed?: boolean; used_by: string[]; versions: VersionDetail[]; loads: LoadEvent[];
}

/** ModelStats are the statistics of the inference protocol. */
export interface ModelStats {
  version: string; last_inference: number; inference_count: number; execution_count: number;
  inference_stats: Record<string, { count: number; ns: number }>;
  batch_stats: { batch_size: number; compute_infer: { count: number; ns: number } }[];
}

export interface ServerView {
  name: string; version: string; started_us: number; now_us: number; ready: boolean;
  cpu_seconds: number; cores: number; memory_bytes: number; tensor_bytes: number;
  gpus: GPUView[] | null;
  degraded: DegradedView[] | null; degraded_more?: number;
  store: { bytes: number; rings: RingStats[] } | null;
}

export interface ModelView {
  name: string; version: string; state: string; reason?: string; platform: string; ensemble: boolean;
  rate: number; error_rate: number; p50_ns: number; p99_ns: number; queue: number; batch_rows: number;
  queue_ns: number; compute_ns: number; requests: number; failures: number; copied_bytes: number; rates: number[];
  due?: OutcomesView; refused?: Record<string, number>;
}

/** OutcomesView are the rates of requests with deadlines, by how they ended. */
export interface OutcomesView { in_time: number; late: number; refused: number; failed: number; in_times: number[] }

export interface NodeView {
  node: number; name: string; model: string; version: number; platform: string; places: string[] | null; lost: string[] | null; site: string;
  ensembles: string[] | null; stream: number; max_inflight: number; max_batch: number; instances: number; precision?: string; in_flight: number; live: ModelView | null;
  kind?: string; fallback_of?: string; within?: number[]; rows?: RowsView; items?: ItemsView; share?: ShareView; shadow?: ShadowView; fault?: FaultView;
}

/** What a node has decided since the ensemble was loaded first. */
export interface RowsView { step: string; held: number; failed: number }
export interface ItemsView { divided: number; items: number; groups: number }
export interface ShareView { step: string; kind: string; alternative: string; share: number; succeeded: number; failed: number; mean_ns: number }
export interface ShadowView { step: string; model: string; share: number; equal: number; different: number; failed: number; dropped: number }
export interface FaultView { rules: string; fallback?: string; absorbed: boolean; used: number }

export interface CarriedView { place: string; bytes: number; rate: number }

export interface CopyView { direction: string; copies: number; bytes: number }

export interface EdgeView {
  from: number; to: number; tensor: string; input: string; datatype: string; shape: number[] | null;
  at: string; why: string; place?: string; copy?: string; copied_bytes: number; copies: number; made: CopyView[] | null;
  carried: CarriedView[] | null;
}

export interface GraphView { model: string; version: number; nodes: NodeView[]; edges: EdgeView[] }

export interface TraceSummary {
  id: string; span_id: string; captured?: boolean; request_id?: string; model: string; version: number; ensemble: boolean; start_us: number;
  duration_ns: number; status: string; error?: string; retained: string; steps: number;
}

export interface TraceList { traces: TraceSummary[]; next: number; newest: number }

export interface StepView {
  span_id: string; node: number; after: number; sub_run: number; model: string; version: number; critical: boolean;
  cached: boolean; native: boolean; status: string; ready_ns: number; enqueued_ns: number; start_ns: number;
  input_end_ns: number; infer_end_ns: number; end_ns: number; done_ns: number; device_start_ns?: number; device_end_ns?: number; batch: number; rows: number;
  batch_rows: number; members: number; elements: number; padding: number; instance: number; place: string; before: number; precision?: string;
}

export interface EventView {
  kind: string; ns: number; node: number; tensor?: string; bytes?: number; duration_ns?: number; from?: string; to?: string; reason?: string;
}

export interface PartView { kind: string; node: number; model?: string; batch?: number; start_ns: number; ns: number; text: string }

export interface BatchSummary { id: number; model: string; version: number; rows: number; members: number; traces: string[] }

export interface BatchView extends BatchSummary {
  start_us: number; input_ns: number; infer_ns: number; output_ns: number; instance: number; place: string;
  elements: number; padding: number; before: number; before_end_us: number; failed: boolean;
}

/** LaneView is an instance; RunView a batch that it executed, from start_ns on after the begin of the view. */
export interface LaneView { model: string; version: number; instance: number; place: string }
export interface RunView {
  id: number; lane: number; start_ns: number; input_ns: number; infer_ns: number; output_ns: number; rows: number; members: number; failed?: boolean;
}
export interface TimelineView {
  from_us: number; to_us: number; now_us: number; oldest_us: number; lanes: LaneView[]; runs: RunView[]; more: number;
  share: { from_us: number; to_us: number; executed: number; known: number } | null;
}

export interface TraceView extends TraceSummary {
  parent_span_id?: string; params: { key: string; value: string }[];
  moments: { name: string; ns: number }[]; spans: StepView[]; events: EventView[]; split: PartView[]; batches: BatchSummary[];
  due?: DueView; reason?: string; step?: string; predicted_finish_ms?: number;
  /** links are the addresses of the trace in other programs. */
  links?: { name: string; url: string }[];
}

/** DueView is a deadline, with what was predicted as the request arrived. */
export interface DueView { deadline_ns: number; predicted_ns?: number; end_ns: number; steps: ForecastView[] }
export interface ForecastView { node: number; step: string; predicted_ns: number; end_ns?: number }

export interface CaptureRule { model?: string; request?: string; trace?: string; every?: number; count?: number; seconds?: number }

export interface CaptureView {
  id: number; rule: CaptureRule; active: boolean; ends_us: number; matched: number; taken: number; pending: number;
  dropped: number; missed: number; snapshots: { trace_id: string; span_id: string; request_id?: string; model: string }[] | null;
}

export interface CaptureList { captures: CaptureView[] | null; bytes: number; used_bytes: number }

export interface PreviewView {
  kind: string; values?: string[]; more?: number; min?: string; max?: string; mean?: string; odd?: number;
  top?: { index: number; value: string }[]; png?: string; width?: number; height?: number;
}

export interface TensorView {
  n: number; name: string; step: string; tensor: string; node: number; wave: number; readers: string[] | null; datatype: string;
  shape: number[] | null; bytes: number; place: string; kept: boolean; why?: string; preview?: PreviewView;
}

export interface TensorList { list: TensorView[] | null; more?: number }

export interface Sampling { failed: boolean; slow: boolean; every: number }

export interface Session { token: boolean; admitted: boolean }

export interface TensorMeta { name: string; datatype: string; shape: number[] }

export interface ModelMeta { name: string; versions: string[]; platform: string; inputs: TensorMeta[]; outputs: TensorMeta[] }

/** Failure is an answer of the server that is none. */
export class Failure extends Error {
  constructor(readonly status: number, text: string) { super(text); }
}

const tokenKey = 'tutti-token';
const headerKey = 'tutti-header';

export const token = {
  get: () => sessionStorage.getItem(tokenKey) ?? '',
  set: (v: string) => (v ? sessionStorage.setItem(tokenKey, v) : sessionStorage.removeItem(tokenKey)),
};

/** extra is the header, "name: value", that opens restricted categories of the API. */
export const extra = {
  get: () => sessionStorage.getItem(headerKey) ?? '',
  set: (v: string) => (v ? sessionStorage.setItem(headerKey, v) : sessionStorage.removeItem(headerKey)),
};

/** headers are what every request of this page carries. */
export function headers(): Record<string, string> {
  const h: Record<string, string> = {};
  if (token.get()) h['Authorization'] = `Bearer ${token.get()}`;
  const [name, ...rest] = extra.get().split(':');
  if (name?.trim() && rest.length) h[name.trim()] = rest.join(':').trim();
  return h;
}

/** save asks for a file, which takes the token, and hands it to the person. */
export async function save(path: string, name: string): Promise<void> {
  const r = await fetch(path, { headers: headers() });
  if (!r.ok) throw new Failure(r.status, ((await r.json().catch(() => ({}))) as { error?: string }).error ?? `${r.status} ${r.statusText}`);
  const url = URL.createObjectURL(await r.blob());
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** ask sends a request and reads its response, JSON. */
export async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  const r = await fetch(path, { ...init, headers: { ...headers(), ...(init.headers as Record<string, string>) } });
  const text = await r.text();
  let v: unknown;
  try { v = JSON.parse(text); } catch { throw new Failure(r.status, `${r.status} ${r.statusText}`); }
  if (!r.ok) throw new Failure(r.status, (v as { error?: string }).error ?? `${r.status} ${r.statusText}`);
  return v as T;
}

/** ref names a request: its trace, and its span because others may be of the same trace. */
export const ref = (t: { id: string; span_id?: string }): string => (t.span_id ? `${t.id}-${t.span_id}` : t.id);

const seg = encodeURIComponent;

/** query writes the parameters that are not empty. */
export function query(v: Record<string, string | number | undefined>): string {
  const q = new URLSearchParams();
  for (const [k, x] of Object.entries(v)) if (x !== undefined && x !== '' && x !== 0) q.set(k, String(x));
  const s = q.toString();
  return s && `?${s}`;
}

export const api = {
  session: () => ask<Session>('api/session'),
  server: () => ask<ServerView>('api/server'),
  models: () => ask<{ models: ModelView[] }>('api/models').then((v) => v.models),
  history: (seconds: number, steps: number, model?: string) => ask<HistoryView>(`api/history${query({ seconds, steps, model })}`),
  detail: (model: string) => ask<ModelDetail>(`api/models/${seg(model)}`),
  stats: (model: string) => ask<{ model_stats: ModelStats[] }>(`../v2/models/${seg(model)}/stats`).then((v) => v.model_stats),
  graph: (model: string, version = 0) => ask<GraphView>(`api/graph/${seg(model)}${query({ version })}`),
  traces: (q: Record<string, string | number | undefined>, signal?: AbortSignal) =>
    ask<TraceList>(`api/traces${query(q)}`, { signal: signal ?? null }),
  trace: (id: string) => ask<TraceView>(`api/traces/${seg(id)}`),
  batch: (id: string) => ask<BatchView>(`api/batches/${seg(id)}`),
  timeline: (i: { from?: number; to?: number }, models: string[]) =>
    ask<TimelineView>(`api/timeline${query({ from_us: i.from, to_us: i.to, limit: 4096 })}${models.map((m) => `&model=${seg(m)}`).join('')}`),
  sampling: () => ask<Sampling>('api/sampling'),
  setSampling: (s: Sampling) => ask<Sampling>('api/sampling', { method: 'PUT', body: JSON.stringify(s) }),
  captures: () => ask<CaptureList>('api/captures'),
  capture: (rule: CaptureRule) => ask<CaptureView>('api/captures', { method: 'POST', body: JSON.stringify(rule) }),
  stopCapture: (id: number) => ask<CaptureView>(`api/captures/${id}`, { method: 'DELETE' }),
  tensors: (trace: string) => ask<TensorList>(`api/traces/${seg(trace)}/tensors`),
  load: (model: string, config?: string) =>
    ask<object>(`api/models/${seg(model)}/load`, { method: 'POST', body: config ? JSON.stringify({ config }) : null }),
  unload: (model: string) => ask<object>(`api/models/${seg(model)}/unload`, { method: 'POST' }),
  meta: (model: string) => ask<ModelMeta>(`../v2/models/${seg(model)}`),
  examples: (model: string) => ask<{ examples: Example[] }>(`api/models/${seg(model)}/examples`).then((v) => v.examples),
  config: (model: string) => ask<Record<string, unknown>>(`../v2/models/${seg(model)}/config`),
};
