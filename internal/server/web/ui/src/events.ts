// Server-sent events over fetch, which unlike EventSource can send headers.

/** Feed takes text as it comes and calls back for every event that is whole. */
export class Feed {
  private rest = '';
  constructor(private readonly on: (name: string, data: string) => void) {}

  push(text: string): void {
    this.rest += text;
    for (let at; (at = this.rest.indexOf('\n\n')) >= 0; ) {
      const block = this.rest.slice(0, at);
      this.rest = this.rest.slice(at + 2);
      let name = 'message';
      const data: string[] = [];
      for (const line of block.split('\n')) {
        if (line.startsWith('event: ')) name = line.slice(7);
        else if (line.startsWith('data: ')) data.push(line.slice(6));
      }
      if (data.length) this.on(name, data.join('\n'));
    }
  }
}

/** readEvents reads the events of a response until it ends. */
export async function readEvents(r: Response, on: (name: string, data: string) => void): Promise<void> {
  if (!r.body) return;
  const feed = new Feed(on);
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    feed.push(value);
  }
}

/** listen reads events until the signal; it throws when the stream ends. */
export async function listen(
  path: string, headers: Record<string, string>, signal: AbortSignal, on: (name: string, data: string) => void,
): Promise<void> {
  const r = await fetch(path, { headers, signal });
  if (!r.ok) throw new Error(`${r.status} ${r.statusText}`);
  await readEvents(r, on);
  throw new Error('the stream has ended');
}
