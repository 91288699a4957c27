// Plays back what a server responded once: the pages with the same data each time.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { extname, join, normalize } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';

const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.txt': 'text/plain' };

/** Recording is the responses of a server by address, its first events, the time, and the addresses of the pages. */
export const read = (file) => JSON.parse(gunzipSync(readFileSync(file)).toString());
export const written = (recording) => gzipSync(Buffer.from(JSON.stringify(recording)), { level: 9 });

/** eventsOf returns the first events of a server: those about it and its models. */
export const eventsOf = (port) => new Promise((done, fail) => {
  const q = http.get(`http://127.0.0.1:${port}/ui/api/events`, (r) => {
    let text = '';
    r.on('data', (chunk) => {
      text += chunk;
      const blocks = text.split('\n\n').slice(0, -1), first = ['server', 'models'].map((name) => blocks.find((b) => b.startsWith(`event: ${name}\n`)));
      if (!first.every(Boolean)) return;
      done(first.map((b) => `${b}\n\n`).join(''));
      q.destroy();
    });
    r.on('error', () => undefined); // of the end that is made above
  });
  q.on('error', fail);
});

/**
 * play serves the built pages and a recording. What the recording lacks comes from upstream, a port, and is added to it; without upstream it
 * is not found, and is in missing. The stream of events stays open and has no news.
 */
export async function play(recording, dist, upstream = 0) {
  const missing = new Set();
  const server = http.createServer((req, res) => {
    const path = new URL(req.url, 'http://localhost').pathname;
    if (path === '/ui/api/events') {
      res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      res.write(recording.events);
      return;
    }
    if (path.startsWith('/ui/') && !path.startsWith('/ui/api/')) {
      const file = join(dist, normalize(path.slice(4)) === '.' ? 'index.html' : normalize(path.slice(4)));
      try { res.writeHead(200, { 'Content-Type': types[extname(file)] ?? 'application/octet-stream' }).end(readFileSync(file)); } catch { res.writeHead(404).end(); }
      return;
    }
    const give = ({ status, body }) => res.writeHead(status, { 'Content-Type': 'application/json' }).end(body);
    const known = recording.responses[req.url];
    if (known) { give(known); return; }
    if (!upstream) { missing.add(req.url); res.writeHead(404).end('{"error":"this was not recorded"}'); return; }
    fetch(`http://127.0.0.1:${upstream}${req.url}`).then(async (r) => {
      recording.responses[req.url] = { status: r.status, body: await r.text() };
      give(recording.responses[req.url]);
    }, () => res.destroy());
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { base: `http://127.0.0.1:${server.address().port}/ui/`, missing, close: () => { server.closeAllConnections(); server.close(); } };
}
