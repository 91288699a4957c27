// Compares every page with a stored picture of it. The pages show what a real server responded once, so that they are the same each time.
//
//   node browser/pictures.mjs          compares; what differs is in bin/ui as picture-*-new, -stored and -difference.png
//   node browser/pictures.mjs update   records a server again, and stores the pictures
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';
import { tool } from './compare.mjs';
import { phone, wide } from './look.mjs';
import { eventsOf, play, read, written } from './player.mjs';
import { full, Load, serve, writeBig } from './server.mjs';

const root = resolve(import.meta.dirname, '../../../../..');
const folder = join(import.meta.dirname, 'pictures'), dist = join(root, 'internal/server/web/dist'), screenshots = join(root, 'bin/ui');
const mostBytes = 1.5e6; // of all stored pictures
const looks = [['dark', wide, 'dark'], ['light', wide, 'light'], ['dark', phone, 'phone-dark'], ['light', phone, 'phone-light']];

/** What is recorded: a server with all examples that has served many requests, and one with one example that has served one. */
const sets = { much: { dirs: undefined, big: true, requests: 600, looks }, little: { dirs: ['digits'], big: false, requests: 1, looks: [looks[1], looks[2]] } };

/** pagesOf are the addresses of the pages of a server, with what is there once they are drawn. */
async function pagesOf(port, name) {
  const get = async (path) => (await fetch(`http://127.0.0.1:${port}/ui/api/${path}`)).json();
  const model = name === 'much' ? 'detection' : 'digits';
  const { traces } = await get(`traces?model=${model}&status=ok&limit=50`);
  const one = traces.sort((a, b) => a.duration_ns - b.duration_ns)[traces.length >> 1];
  const { spans } = await get(`traces/${one.id}`);
  const pages = {
    overview: ['#/', '.vslot .mrow', '.news li'], pipelines: ['#/pipelines', '.mini rect'], pipeline: [`#/pipeline/${model}`, 'g.node .fig'],
    traces: ['#/traces', '.vslot .trow'], request: [`#/traces/${one.id}-${one.span_id}`, '.wrow'], batch: [`#/batches/${spans.find((s) => s.batch).batch}`, '.facts'],
    models: ['#/models', '.vslot .mrow'], model: [`#/model/${name === 'much' ? 'shapes_cnn' : 'digits_cnn'}`, '.loads tbody tr', '.past canvas'],
    timeline: [`#/timeline?from_us=${one.start_us - 100_000}&to_us=${one.start_us + 200_000}`, '.lanes .run'], try: [`#/try/${model}`, '.input'], jobs: ['#/jobs', 'main'], settings: ['#/settings', 'fieldset, .bad'],
  };
  if (name === 'much') {
    Object.assign(pages, { compare: [`#/compare?a=${traces[0].id}&b=${traces.at(-1).id}`, '.diff'], step: [`#/pipeline/${model}?node=1`, '.step .facts'], graph: ['#/pipeline/parallel_nested', 'g.node'] });
  }
  return pages;
}

/** shot opens a page and returns a screenshot of it once it has stopped changing. */
async function shot(browser, base, now, [hash, ...ready], theme, viewport) {
  const context = await browser.newContext({ viewport, colorScheme: theme, reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-GB' });
  try {
    const page = await context.newPage();
    await page.clock.setFixedTime(now);
    await page.goto(base + hash);
    for (const selector of ['.link.live', ...ready]) await page.waitForSelector(selector);
    let last = null;
    for (let n = 0; n < 40; n++) {
      await page.waitForTimeout(200);
      const next = await page.screenshot({ fullPage: true, animations: 'disabled', caret: 'hide' });
      if (last && next.equals(last)) return next;
      last = next;
    }
    throw new Error('the page does not stop changing');
  } finally {
    await context.close();
  }
}

/** record reads every page of a real server, and returns its responses. */
async function record(browser, name, set, scratch) {
  const dirs = set.dirs?.map((d) => join(root, 'examples/ensembles', d));
  const server = await serve(root, set.big ? [join(scratch, 'big')] : [], full, dirs);
  const load = new Load(root, server);
  try {
    await load.send(set.requests, 4);
    for (let serving = false; !serving;) { // the figures are read once a second
      const { models } = await (await fetch(`http://127.0.0.1:${server.port}/ui/api/models`)).json();
      serving = models.some((m) => m.ensemble && m.rate > 0 && m.p99_ns > 0);
    }
    const recording = { now: Date.now(), events: await eventsOf(server.port), pages: await pagesOf(server.port, name), responses: {} };
    const player = await play(recording, dist, server.port);
    for (const page of Object.values(recording.pages)) await shot(browser, player.base, recording.now, page, 'dark', wide);
    player.close();
    const text = JSON.stringify(recording).replaceAll(root, '/srv');
    for (const own of [root, scratch, tmpdir()]) if (text.includes(own)) throw new Error(`the recording '${name}' has the path ${own} of this machine`);
    return JSON.parse(text);
  } finally {
    await load.stop();
    await server.stop();
  }
}

/** each calls f with every page as it looks with a recording. */
async function each(browser, name, recording, f) {
  const player = await play(recording, dist);
  for (const [theme, viewport, tag] of sets[name].looks) {
    for (const [page, where] of Object.entries(recording.pages)) await f(`${name}-${page}-${tag}`, await shot(browser, player.base, recording.now, where, theme, viewport));
  }
  player.close();
  assert.deepEqual([...player.missing], [], `the pages request what was not recorded in '${name}': make test-ui PICTURES=update`);
}

/** update records the servers again and stores the pictures. */
async function update(browser) {
  const scratch = mkdtempSync(join(tmpdir(), 'tutti-pictures-')), t = await tool(browser);
  writeBig(join(scratch, 'big'));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    for (const [name, set] of Object.entries(sets)) {
      const recording = await record(browser, name, set, scratch);
      writeFileSync(join(folder, `${name}.json.gz`), written(recording));
      await each(browser, name, recording, async (picture, png) => writeFileSync(join(folder, `${picture}.webp`), await t.small(png)));
    }
    const size = readdirSync(folder).reduce((n, f) => n + statSync(join(folder, f)).size, 0);
    console.log(`${readdirSync(folder).length} files of ${size} bytes together, drawn by chromium ${browser.version()}`);
    assert.ok(size < mostBytes, `the pictures have ${size} bytes, expected less than ${mostBytes}`);
  } finally {
    await t.close();
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** pictures compares every page with its stored picture. */
export async function pictures({ browser }) {
  const t = await tool(browser), wrong = [], seen = new Set();
  const noFiles = (picture) => ['new', 'stored', 'difference'].map((k) => join(screenshots, `picture-${picture}-${k}.png`));
  for (const name of Object.keys(sets)) {
    await each(browser, name, read(join(folder, `${name}.json.gz`)), async (picture, png) => {
      const file = join(folder, `${picture}.webp`), [now, was, where] = noFiles(picture);
      seen.add(`${picture}.webp`);
      for (const f of [now, was, where]) rmSync(f, { force: true });
      if (!existsSync(file)) { wrong.push(`${picture}: there is no stored picture`); return; }
      const stored = readFileSync(file), d = await t.differs(png, stored);
      if (seen.size === 1) assert.ok(await t.differs(png, stored, [40, 40, 60, 8]), 'a painted spot is not seen'); // the comparison itself
      if (!d) return;
      writeFileSync(now, png);
      writeFileSync(was, await t.png(stored));
      if (d.difference) writeFileSync(where, d.difference);
      wrong.push(`${picture}: ${d.why}; see bin/ui/picture-${picture}-*.png`);
    });
  }
  await t.close();
  const gone = readdirSync(folder).filter((f) => f.endsWith('.webp') && !seen.has(f));
  assert.deepEqual([...wrong, ...gone.map((f) => `${f}: there is no such page`)], [], `pages look otherwise than stored (drawn by chromium ${browser.version()}); if they should: make test-ui PICTURES=update`);
  console.log(`      ${seen.size} pictures are as stored`);
}

if (process.argv[1] === import.meta.filename) {
  const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => existsSync(p));
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  mkdirSync(screenshots, { recursive: true });
  try {
    await (process.argv[2] === 'update' ? update(browser) : pictures({ browser }));
  } finally {
    await browser.close();
  }
}
