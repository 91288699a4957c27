// What the server tells by itself, once a second while the page is seen.
import { useEffect, useReducer } from 'preact/hooks';
import { api, headers, ref, type ModelView, type ServerView, type TraceSummary } from './api';
import { listen } from './events';

const keptNews = 60;
const keptLoad = 120;

/** Load is what the server used at a moment. */
export interface Load { at: number; cores: number; memory: number; tensors: number }

const keyOf = (m: ModelView): string => `${m.name}\n${m.version}`;

export class Live {
  state: 'connecting' | 'live' | 'disconnected' = 'connecting';
  server: ServerView | null = null;
  models: ModelView[] | null = null;
  /** error is why the stream ended, lostUs when, by the clock of the server. */
  error = '';
  lostUs = 0;
  /** skewMs is how far the clock of the server is ahead of that of the browser. */
  skewMs = 0;
  news: TraceSummary[] = [];
  load: Load[] = [];
  /** tick counts what came. */
  tick = 0;
  private readonly listeners = new Set<() => void>();
  private abort: AbortController | null = null;
  private pending = false;
  private at = 0;
  private readonly index = new Map<string, number>();

  /** now is the time by the clock of the server, in microseconds since 1970. */
  now(): number { return this.server ? this.server.now_us + (performance.now() - this.at) * 1000 : Date.now() * 1000; }

  start(): void {
    const follow = () => (document.visibilityState === 'visible' ? this.open() : this.close());
    document.addEventListener('visibilitychange', follow);
    follow();
    void api.traces({ limit: keptNews }).then((l) => { this.add(l.traces); this.changed(); }, () => undefined);
  }

  /** restart is for when other headers are to be sent. */
  restart(): void { this.close(); this.open(); }

  subscribe(f: () => void): () => void {
    this.listeners.add(f);
    return () => { this.listeners.delete(f); };
  }

  private close(): void { this.abort?.abort(); this.abort = null; }

  private open(): void {
    if (this.abort) return;
    const abort = (this.abort = new AbortController());
    const again = () => {
      if (abort.signal.aborted) return;
      listen('api/events', headers(), abort.signal, (name, data) => this.take(name, JSON.parse(data))).catch((e: unknown) => {
        if (abort.signal.aborted) return;
        if (this.state !== 'disconnected') this.lostUs = this.server?.now_us ?? 0;
        this.error = e instanceof Error && /^\d{3}/.test(e.message) ? e.message : '';
        this.state = 'disconnected';
        this.changed();
        setTimeout(again, 2000);
      });
    };
    again();
  }

  private take(name: string, v: unknown): void {
    this.state = 'live';
    if (name === 'server') this.update(v as ServerView);
    else if (name === 'models') this.set(v as ModelView[]);
    else if (name === 'changed') this.change(v as ModelView[]);
    else if (name === 'trace') this.add([v as TraceSummary]);
    this.changed();
  }

  private set(list: ModelView[]): void {
    this.models = list;
    this.index.clear();
    list.forEach((m, i) => this.index.set(keyOf(m), i));
  }

  /** change puts the models that are new or changed in their places. */
  private change(list: ModelView[]): void {
    const next = [...(this.models ?? [])];
    let added = false;
    for (const m of list) {
      const i = this.index.get(keyOf(m));
      if (i === undefined) { next.push(m); added = true; } else next[i] = m;
    }
    if (added) this.set(next.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : Number(a.version) - Number(b.version))));
    else this.models = next;
  }

  private update(s: ServerView): void {
    const was = this.server;
    this.server = s;
    this.at = performance.now();
    this.skewMs = s.now_us / 1000 - Date.now();
    if (was && s.now_us > was.now_us && s.cpu_seconds >= was.cpu_seconds) {
      const cores = ((s.cpu_seconds - was.cpu_seconds) * 1e6) / (s.now_us - was.now_us);
      this.load.push({ at: s.now_us / 1e6, cores, memory: s.memory_bytes, tensors: s.tensor_bytes });
      if (this.load.length > keptLoad) this.load.shift();
    }
  }

  private add(list: TraceSummary[]): void {
    const known = new Set(this.news.map(ref));
    this.news = [...list.filter((t) => !known.has(ref(t))), ...this.news].sort((a, b) => b.start_us - a.start_us).slice(0, keptNews);
  }

  /** changed has everybody drawn anew, once however much came together. */
  private changed(): void {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.tick++;
      document.body.classList.toggle('stale', this.state === 'disconnected');
      for (const f of this.listeners) f();
    });
  }
}

export const live = new Live();

/** useLive draws anew when something came. */
export function useLive(): Live {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => live.subscribe(() => draw(undefined)), []);
  return live;
}
