// Sending a request of the form, and finding its trace.
import { api, Failure, headers, type ModelMeta, type TraceView } from './api';
import { readEvents } from './events';
import { outputs } from './generate';
import { body, read, type Input, type Output } from './tensor';

/** Sent is a response with how long after the request it came, in nanoseconds. */
export interface Sent { outputs: Output[]; after: number }

const hex = (bytes: number): string => [...crypto.getRandomValues(new Uint8Array(bytes))].map((b) => b.toString(16).padStart(2, '0')).join('');

/** newTrace is the id of a trace that is not there yet. */
export const newTrace = (): string => hex(16);

/** traced are the headers that make a request part of a trace and have the server retain it. */
const traced = (trace: string): Record<string, string> => ({ traceparent: `00-${trace}-${hex(8)}-01`, tracestate: 'tutti=retain' });

const requestId = (): string => `try-${hex(6)}`;

const address = (m: ModelMeta, version: string): string => `../v2/models/${encodeURIComponent(m.name)}${version ? `/versions/${version}` : ''}`;

/** failure is what a response that is not 200 says. */
function failure(r: Response, text: string): Failure {
  try { text = (JSON.parse(text.replace(/^data: /, '')) as { error: string }).error; } catch { /* not JSON */ }
  return new Failure(r.status, text || `${r.status} ${r.statusText}`);
}

/** send sends one request and waits for its response. */
export async function send(m: ModelMeta, version: string, inputs: Input[], trace: string): Promise<Sent> {
  const b = body(requestId(), inputs, m.outputs.map((o) => o.name));
  const began = performance.now();
  const r = await fetch(`${address(m, version)}/infer`, {
    method: 'POST', body: b.body,
    headers: { ...headers(), ...traced(trace), 'Content-Type': 'application/octet-stream', 'Inference-Header-Content-Length': String(b.header) },
  });
  const data = new Uint8Array(await r.arrayBuffer());
  const after = (performance.now() - began) * 1e6;
  if (!r.ok) throw failure(r, new TextDecoder().decode(data));
  const header = Number(r.headers.get('Inference-Header-Content-Length') ?? data.length);
  return { outputs: read(data, header), after };
}

/** stream sends one request to a decoupled model, its inputs as JSON, and hands over each response as it comes. */
export async function stream(
  m: ModelMeta, version: string, members: Record<string, string>, trace: string, signal: AbortSignal, each: (s: Sent) => void,
): Promise<void> {
  const json = Object.entries({ id: JSON.stringify(requestId()), ...members }).map(([k, v]) => `${JSON.stringify(k)}:${v}`).join(',');
  const began = performance.now();
  const r = await fetch(`${address(m, version)}/generate_stream`, {
    method: 'POST', body: `{${json}}`, signal, headers: { ...headers(), ...traced(trace), 'Content-Type': 'application/json' },
  });
  if (!r.ok) throw failure(r, await r.text());
  await readEvents(r, (_name, data) => each({ outputs: outputs(m, data), after: (performance.now() - began) * 1e6 }));
}

/** find waits until a trace is stored; null when it is not. */
export async function find(trace: string): Promise<TraceView | null> {
  for (let n = 0; n < 10; n++) {
    try { return await api.trace(trace); } catch (e) {
      if (!(e instanceof Failure) || e.status !== 404) return null;
    }
    await new Promise((f) => setTimeout(f, 40 * (n + 1)));
  }
  return null;
}
