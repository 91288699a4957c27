// Draws docs/dashboard.webp: the dashboard of a server under load, from the overview to the time of one request.
//
//   make picture
//
// It needs Debian's chromium and img2webp (Debian: webp), and writes at most 1 MB.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';
import { full, Load, serve } from './server.mjs';

const root = resolve(import.meta.dirname, '../../../../..');
const out = join(root, 'docs/dashboard.webp');
const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => existsSync(p));
if (!executablePath || spawnSync('img2webp', ['-version']).status !== 0) {
  console.error('the animation needs chromium and img2webp: apt-get install chromium webp');
  process.exit(2);
}

const scratch = mkdtempSync(join(tmpdir(), 'tutti-animation-'));
const server = await serve(root, [], full);
const load = new Load(root, server);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const frames = []; // arguments of img2webp
try {
  await load.send(2000, 8);
  load.start(4);
  const page = await browser.newPage({ viewport: { width: 1120, height: 600 }, colorScheme: 'dark' });
  const base = `http://127.0.0.1:${server.port}/ui/`;
  const frame = async (ms) => {
    const path = join(scratch, `${frames.length}.png`);
    await page.screenshot({ path });
    frames.push('-d', String(ms), path);
  };
  // scene opens a view and shows it n times, with the changes of a second between.
  const scene = async (hash, selector, n) => {
    await page.goto(base + hash);
    await page.waitForSelector(selector);
    await page.waitForTimeout(1500);
    for (let i = 0; i < n; i++) {
      await frame(i === n - 1 ? 1400 : 700);
      await page.waitForTimeout(1000);
    }
  };
  await scene('#/', '.vslot .mrow', 3);
  await scene('#/pipeline/detection', 'g.node .fig', 4);
  const list = await (await fetch(`${base}api/traces?model=detection&status=ok&limit=200`)).json();
  const traces = (list.traces ?? list).sort((a, b) => a.duration_ns - b.duration_ns);
  await scene(`#/traces/${traces[traces.length >> 1].id}`, '.wrow', 2);
} finally {
  await load.stop();
  await browser.close();
  await server.stop();
}
const made = spawnSync('img2webp', ['-loop', '0', '-lossy', '-q', '75', '-m', '6', ...frames, '-o', out], { encoding: 'utf8' });
rmSync(scratch, { recursive: true, force: true });
if (made.status !== 0) throw new Error(`img2webp: ${made.stderr}`);
const size = statSync(out).size;
if (size > 1e6) throw new Error(`${out} has ${size} bytes, expected at most 1,000,000`);
console.log(`${out}: ${frames.length / 3} frames, ${size} bytes`);
