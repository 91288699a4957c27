// What is looked at. Nothing depends on speed: times are printed, numbers of elements are checked.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { copied } from './copied.mjs';
import { deadlines } from './deadlines.mjs';
import { degraded } from './degraded.mjs';
import { devices } from './devices.mjs';
import { flow } from './flow.mjs';
import { jobs, without } from './jobs.mjs';
import { fine, look, phone, wide } from './look.mjs';
import { firstView, gone, history, models, names, skewed, thousands } from './models.mjs';
import { pictures } from './pictures.mjs';
import { pipelines } from './pipelines.mjs';
import { token } from './server.mjs';
import { timeline } from './timeline.mjs';

/** timed does something in the page and prints how long it was until the next frame was drawn. */
async function timed(page, name, f, arg) {
  await page.evaluate(() => { globalThis.began = performance.now(); });
  await page.evaluate(f, arg);
  const ms = await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() - globalThis.began)))));
  console.log(`      ${name}: ${ms.toFixed(0)} ms`);
}

const latest = async (t, q) => (await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/traces?${q}`)).json()).traces;

/** several returns a trace with several steps. */
const several = async (t) => (await latest(t, 'status=ok&limit=1000')).sort((a, b) => b.steps - a.steps)[0];

const pages = {
  overview: async () => ['#/', '.vslot .mrow'],
  pipeline: async () => ['#/pipeline/detection', 'g.node .fig'],
  step: async () => ['#/pipeline/digits?node=1', '.step .facts'],
  traces: async () => ['#/traces', '.vslot .trow'],
  request: async (t) => [`#/traces/${(await several(t)).id}`, '.wrow'],
  compare: async (t) => {
    const [a, b] = await latest(t, 'model=detection&status=ok&limit=2');
    return [`#/compare?a=${a.id}&b=${b.id}`, '.diff'];
  },
  batch: async (t) => {
    const v = await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/traces/${(await several(t)).id}`)).json();
    return [`#/batches/${v.spans.find((s) => s.batch).batch}`, '.facts'];
  },
  try: async () => ['#/try/parallel', '.input textarea'],
  settings: async () => ['#/settings', 'fieldset, .bad'],
};

/** everyPage looks at each page in one theme and size. */
const everyPage = (theme, viewport, tag) => async (t) => {
  const v = await look(t, { theme, viewport });
  for (const [name, where] of Object.entries(pages)) {
    await v.go(...await where(t));
    if (name === 'overview') await v.page.waitForSelector('.chart canvas');
    await fine(t, v.page, `${name}-${tag}`);
  }
  await v.end();
};

async function overview(t) {
  const v = await look(t);
  await v.go('#/', '.vslot .mrow');
  assert.equal(await v.page.locator('.tile').count(), 6);
  await v.page.getByLabel('Filter models by name').fill('nothing has this name');
  await v.page.waitForSelector('text=No model fits.');
  await v.page.getByLabel('Filter models by name').fill('');
  await v.page.waitForFunction(() => document.querySelector('.link.live') !== null);
  await v.page.waitForSelector('.news li');
  const before = await v.page.locator('.tile').first().textContent();
  await v.page.waitForFunction((was) => document.querySelector('.tile').textContent !== was, before, { timeout: 20000 });
  await v.page.getByRole('button', { name: 'ensembles', exact: true }).click();
  await v.page.waitForFunction(() => [...document.querySelectorAll('.vslot .mrow small')].every((e) => e.textContent.startsWith('ensemble')));
  await v.page.getByRole('button', { name: 'Requests/s' }).click();
  assert.match(v.page.url(), /sort=rate/);
  await v.page.reload();
  await v.page.waitForSelector('[aria-sort="descending"]');
  await v.end();
}

async function pipeline(t) {
  const v = await look(t);
  await v.go('#/pipeline/digits', 'g.node .fig');
  assert.equal(await v.page.locator('g.node').count(), 3);
  assert.equal(await v.page.locator('g.end').count(), 2);
  await v.page.locator('g.node').nth(1).focus();
  await v.page.keyboard.press('Enter');
  await v.page.waitForSelector('.step');
  assert.match(v.page.url(), /node=\d/);
  await v.page.getByRole('button', { name: 'config' }).click();
  await v.page.waitForFunction(() => /ensemble_scheduling/.test(document.querySelector('.config')?.textContent ?? ''));
  await v.page.getByRole('button', { name: 'operate' }).click();
  await v.page.waitForSelector('.operate .note');
  assert.ok(await v.page.getByRole('button', { name: 'Unload' }).isDisabled());
  const was = await v.page.locator('.graph svg > g').getAttribute('transform');
  await v.page.locator('.graph svg').focus();
  await v.page.keyboard.press('+');
  assert.notEqual(await v.page.locator('.graph svg > g').getAttribute('transform'), was);
  await v.end();
}

async function request(t) {
  const v = await look(t);
  const one = await several(t);
  await v.go(`#/traces/${one.id}`, '.wrow');
  assert.equal(await v.page.locator('.wrow').count(), one.steps + 1);
  const widths = await v.page.locator('.split .bar > i').evaluateAll((l) => l.reduce((n, e) => n + parseFloat(e.style.width), 0));
  assert.ok(Math.abs(widths - 100) <= 1, `the parts are ${widths} % of the whole`);
  await v.page.locator('.wrow').nth(1).click();
  await v.page.waitForSelector('.detail .facts');
  for (const [button, file, holds] of [['OTLP JSON', 'otlp', /"InferRequest"/], ['Perfetto', 'perfetto', /"traceEvents"/]]) {
    const saved = v.page.waitForEvent('download');
    await v.page.getByRole('button', { name: `Save as ${button}` }).click();
    const d = await saved;
    assert.equal(d.suggestedFilename(), `${one.id}.${file}.json`);
    assert.match(readFileSync(await d.path(), 'utf8'), holds);
  }
  assert.equal(await v.page.getByRole('link', { name: /^Jaeger/ }).getAttribute('href'), `https://jaeger.example/trace/${one.id}`);
  await v.page.getByText('Along the critical path').click();
  assert.ok(await v.page.locator('.parts li').count() > 2);
  await v.page.getByRole('button', { name: 'Compare' }).click();
  await v.page.waitForFunction(() => document.querySelectorAll('select[aria-label="Compare with"] option').length > 1);
  await v.page.getByLabel('Compare with').selectOption({ index: 1 });
  await v.page.waitForSelector('.diff');
  await v.page.goBack();
  await v.page.waitForSelector('.wrow');
  await v.go('#/compare?model=digits&va=1&vb=1', '.diff');
  await v.page.getByText('mean of 20 traces').first().waitFor();
  v.page.expected = /404/;
  await v.go(`#/traces/${'0'.repeat(32)}`, '.bad');
  await v.end();
}

/** scrolled scrolls a list step by step and returns what each frame made: the rows that existed, and the elements that were added. */
const scrolled = (page, steps) => page.evaluate(async (n) => {
  const e = document.querySelector('.virtual'), frames = [];
  let added = 0;
  new MutationObserver((l) => { for (const m of l) for (const x of m.addedNodes) added += 1 + (x.querySelectorAll?.('*').length ?? 0); }).observe(e, { childList: true, subtree: true });
  const frame = () => new Promise((done) => requestAnimationFrame(() => done(performance.now())));
  let last = await frame();
  for (let i = 1; i <= n; i++) {
    added = 0;
    e.scrollTop = (e.scrollHeight - e.clientHeight) * (i / n);
    await frame();
    const now = await frame();
    frames.push({ rows: e.querySelectorAll('.vslot').length, added, ms: (now - last) / 2 });
    last = now;
  }
  return frames;
}, steps);

async function search(t) {
  await t.load.send(5000, 8);
  const v = await look(t);
  await v.go('#/traces', '.vslot .trow');
  await v.page.waitForFunction(() => !/so far/.test(document.querySelector('main').textContent), null, { timeout: 30000 });
  const n = Number((await v.page.locator('.virtual').getAttribute('aria-rowcount')) ?? 0) - 1;
  assert.ok(n >= 10000, `only ${n} traces are listed`);
  const frames = await scrolled(v.page, 60);
  const rows = Math.max(...frames.map((f) => f.rows)), added = Math.max(...frames.map((f) => f.added));
  console.log(`      scrolling ${n} traces: at most ${rows} rows, ${added} new elements and ${Math.max(...frames.map((f) => f.ms)).toFixed(0)} ms a frame`);
  assert.ok(rows < 60 && added < 60 * 20, `a frame has ${rows} rows and ${added} new elements`);
  await timed(v.page, `ordering ${n} traces by duration`, () => { [...document.querySelectorAll('.tabs button')].find((b) => b.textContent === 'slowest').click(); });
  const cells = v.page.locator('.cell');
  assert.ok(await cells.count() > 5);
  await v.page.locator('.heat svg').focus();
  await v.page.keyboard.press('ArrowRight');
  await v.page.keyboard.press('Enter');
  await v.page.waitForFunction((all) => {
    const rows = Number(document.querySelector('.virtual')?.getAttribute('aria-rowcount') ?? 0) - 1;
    return /from_us/.test(location.hash) && rows > 0 && rows < all;
  }, n);
  const few = Number(await v.page.locator('.virtual').getAttribute('aria-rowcount')) - 1;
  assert.ok(few >= 1 && few < n, `a cell has ${few} of ${n} traces`);
  await v.go('#/traces?status=failed', '.vslot .trow');
  await v.page.waitForFunction(() => [...document.querySelectorAll('.vslot .status')].length > 0 && document.querySelectorAll('.vslot .status.good').length === 0);
  await v.page.getByLabel('Model').fill('detection');
  await v.page.getByLabel('At least').fill('1us');
  await v.page.getByRole('button', { name: 'Search', exact: true }).click();
  await v.page.waitForFunction(() => /model=detection/.test(location.hash) && /min_ns=1000/.test(location.hash));
  await v.end();
}

async function tryIt(t) {
  const v = await look(t);
  const has = (name) => t.server.dirs.some((d) => d.endsWith(`/${name}`));
  if (has('sentiment')) {
    await v.go('#/try/sentiment', '.input textarea');
    await v.page.getByRole('textbox', { name: 'Text' }).fill('What a lovely garden!');
    await v.page.getByRole('button', { name: 'Send', exact: true }).click();
    await v.page.waitForSelector('.topk li');
    assert.match(await v.page.locator('.topk li').first().textContent(), /positive/);
    await v.page.waitForSelector('.wrow');
    await fine(t, v.page, 'try-sentiment-dark');
  }
  await v.go('#/try/digits', 'input[type=file]');
  await v.page.setInputFiles('input[type=file]', join(t.root, 'examples/ensembles/digits/seven.png'));
  await v.page.waitForSelector('.preview');
  await v.page.getByRole('button', { name: 'Send', exact: true }).click();
  await v.page.waitForSelector('.topk li');
  assert.match(await v.page.locator('.topk li').first().textContent(), /seven/);
  await v.page.waitForSelector('.wrow');
  await fine(t, v.page, 'try-digits-dark');
  if (has('detection')) {
    await v.go('#/try/detection_picture', 'input[type=file]');
    await v.page.setInputFiles('input[type=file]', join(t.root, 'examples/ensembles/detection/three.png'));
    await v.page.getByRole('button', { name: 'Send', exact: true }).click();
    await v.page.waitForSelector('.picture img');
    await v.page.waitForSelector('.wrow');
    await fine(t, v.page, 'try-picture-dark');
  }
  v.page.expected = /400/;
  await v.go('#/try/form', '.input textarea');
  await v.page.getByRole('textbox', { name: 'Text' }).fill('not JSON');
  await v.page.getByRole('button', { name: 'Send', exact: true }).click();
  await v.page.waitForSelector('.bad');
  await v.end();
}

async function keyboard(t) {
  const v = await look(t);
  await v.go('#/', '.vslot .mrow');
  await v.page.keyboard.press('/');
  await v.page.waitForSelector('dialog[open] input:focus');
  await v.page.keyboard.type('detection');
  await fine(t, v.page, 'palette-dark');
  await v.page.keyboard.press('Enter');
  await v.page.waitForFunction(() => location.hash === '#/pipeline/detection');
  await v.page.keyboard.press('Control+k');
  await v.page.waitForSelector('dialog[open]');
  await v.page.keyboard.press('Escape');
  await v.page.waitForSelector('dialog[open]', { state: 'detached' });
  const { id } = await several(t);
  await v.page.keyboard.press('Control+k');
  await v.page.waitForSelector('dialog[open] input:focus');
  await v.page.keyboard.type(id);
  await v.page.keyboard.press('Enter');
  await v.page.waitForSelector('.wrow');
  await v.page.reload();
  await v.page.waitForSelector('.wrow');
  await v.page.keyboard.press('Tab');
  await v.page.waitForSelector('.skip:focus');
  await v.page.getByRole('button', { name: /Use light/ }).click();
  assert.equal(await v.page.evaluate(() => document.documentElement.dataset.theme), 'light');
  await v.end();
}

async function changes(t) {
  const v = await look(t);
  await v.go('#/settings', 'fieldset[disabled]');
  await v.page.getByLabel('Token').fill('wrong');
  await v.page.getByRole('button', { name: 'Use', exact: true }).click();
  await v.page.waitForSelector('.bad >> text=The server refuses this token');
  await v.page.waitForSelector('text=You may look');
  await fine(t, v.page, 'settings-wrong-token-dark');
  await v.page.getByLabel('Token').fill(token);
  await v.page.getByRole('button', { name: 'Use', exact: true }).click();
  await v.page.waitForSelector('text=You may change things');
  assert.equal(await v.page.locator('.bad').count(), 0);
  await v.page.getByLabel(/One in so many/).fill('2');
  await v.page.getByRole('button', { name: 'Change' }).click();
  await v.page.waitForSelector('text=Changed.');
  await v.go('#/pipeline/parallel', 'g.node');
  await v.page.getByRole('button', { name: 'operate' }).click();
  await v.page.getByRole('button', { name: 'Load again' }).click();
  await v.page.waitForSelector('text=Loaded.');
  await v.page.getByLabel(/Roll back/).fill('1');
  await v.page.getByRole('button', { name: 'Serve it' }).click();
  await v.page.waitForSelector('text=Serving version 1.');
  v.page.expected = /40\d/; // what the page asks of a model that is unloaded
  await v.page.getByRole('button', { name: 'Unload' }).click();
  await v.page.getByRole('button', { name: 'Press again' }).click();
  await v.page.waitForSelector('text=Unloaded.');
  await v.page.getByRole('button', { name: 'Load again' }).click();
  await v.page.waitForSelector('text=Loaded.');
  await fine(t, v.page, 'operate-dark');
  assert.deepEqual(await v.page.evaluate(() => Object.keys(localStorage).filter((k) => /token/.test(k))), []);
  await v.end();
}

async function captured(t) {
  const v = await look(t);
  await v.go('#/settings', 'fieldset');
  await v.page.getByLabel('Token').fill(token);
  await v.page.getByRole('button', { name: 'Use', exact: true }).click();
  await v.page.waitForSelector('text=You may change things');
  const card = v.page.locator('.card', { hasText: 'Capture tensors' });
  await card.getByLabel('Model').fill('digits');
  await card.getByLabel('Request id').fill('try-*');
  await card.getByRole('button', { name: 'Start' }).click();
  await card.getByRole('button', { name: 'stop' }).waitFor();
  await v.go('#/try/digits', 'input[type=file]');
  await v.page.setInputFiles('input[type=file]', join(t.root, 'examples/ensembles/digits/seven.png'));
  await v.page.getByRole('button', { name: 'Send', exact: true }).click();
  await v.page.waitForSelector('.tensors img');
  assert.ok(await v.page.locator('.tensors tbody tr').count() >= 5);
  const saved = v.page.waitForEvent('download');
  await v.page.getByRole('button', { name: 'Save all as npz' }).click();
  assert.match((await saved).suggestedFilename(), /\.npz$/);
  await fine(t, v.page, 'tensors-dark');
  await v.go('#/settings', '.card .chip');
  await card.getByRole('button', { name: 'stop' }).click();
  await v.page.waitForSelector('text=ended');
  await fine(t, v.page, 'captures-dark');
  await v.end();
}

/** bare looks at a server that stores nothing, lets nobody change anything and restricts statistics. */
async function bare(t) {
  const server = await t.serve(['--trace-store-bytes', '0', '--http-restricted-api', 'statistics:secret=open']);
  try {
    const v = await look({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });
    v.page.expected = /403|503|40\d|refused|INCOMPLETE|EMPTY/;
    await v.page.goto(`http://127.0.0.1:${server.port}/ui`);
    await v.page.waitForURL('**/ui/');
    await v.page.waitForSelector('.link.live');
    await v.page.waitForSelector('text=--trace-store-bytes');
    await fine(t, v.page, 'bare-overview');
    await v.page.evaluate(() => { location.hash = '#/traces'; });
    await v.page.waitForSelector('.bad');
    await v.page.evaluate(() => { location.hash = '#/settings'; });
    await v.page.waitForSelector('text=read-only');
    await v.page.getByLabel('Header of restricted interfaces').fill('secret: open');
    await v.page.getByRole('button', { name: 'Use', exact: true }).click();
    await v.page.evaluate(() => { location.hash = '#/'; });
    await v.page.waitForSelector('.vslot .mrow');
    await server.stop();
    await v.page.waitForSelector('.link.disconnected');
    await v.end();
  } finally {
    await server.stop();
  }
}

/** boxes are where the elements of each selector are drawn, all at one moment; hidden ones are left out. */
const boxes = (page, ...selectors) => page.evaluate((list) => list.map((selector) => [...document.querySelectorAll(selector)]
  .map((e) => { const { x, y, right, bottom } = e.getBoundingClientRect(); return { x, y, right, bottom, text: `${selector} ${e.textContent}` }; })
  .filter((r) => r.right > r.x)), selectors);

/** apart fails when one of some boxes lies on one of others, but for a pixel. */
function apart(some, others, what) {
  for (const a of some) for (const b of others) {
    assert.ok(a === b || a.right <= b.x + 1 || b.right <= a.x + 1 || a.bottom <= b.y + 1 || b.bottom <= a.y + 1, `${what}: '${a.text}' lies on '${b.text}'`);
  }
}

/** labels looks for labels of edges that are cut by boxes or lie on each other, in all pipelines. */
async function labels(t) {
  const models = (await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/models`)).json()).models.filter((m) => m.ensemble && m.name !== 'big');
  assert.ok(models.length > 3);
  for (const viewport of [wide, phone]) {
    const v = await look(t, { viewport });
    let seen = 0;
    for (const { name } of models) {
      await v.go(`#/pipeline/${name}`, 'g.node .fig');
      await v.page.screenshot({ path: join(t.screenshots, `labels-${name}-${viewport.width}.png`) });
      const [texts, nodes] = await boxes(v.page, '.edge text', '.node .box, .end rect');
      seen += texts.length;
      apart(texts, nodes, `${name} at ${viewport.width}`);
      apart(texts, texts, `${name} at ${viewport.width}`);
    }
    assert.ok(seen > models.length * 2, `only ${seen} labels are seen at ${viewport.width}`);
    await v.end();
  }
}

/** durations looks for figures of the waterfall that lie on its bars. */
async function durations(t) {
  const one = await several(t);
  for (const viewport of [wide, phone]) {
    const v = await look(t, { viewport });
    await v.go(`#/traces/${one.id}`, '.wrow');
    const [figures, bars] = await boxes(v.page, '.wdur', '.seg, .event');
    assert.equal(figures.length, one.steps + 1);
    apart(figures, bars, `at ${viewport.width}`);
    await v.end();
  }
}

/** odd looks at models that cannot be loaded, and at one that answers any number of times. */
async function odd(t) {
  const server = await t.serve(['--exit-on-error=false', '--strict-readiness=false'], [join(t.scratch, 'odd')]);
  const to = { ...t, base: `http://127.0.0.1:${server.port}/ui/` };
  try {
    for (const [viewport, tag] of [[wide, 'light'], [phone, 'phone-light']]) {
      const v = await look(to, { viewport, theme: 'light' });
      v.page.expected = /40\d/;
      await v.go('#/', '.vslot .mrow');
      await v.page.waitForSelector('.mwhy >> text=/labels.txt/');
      assert.match(await v.page.locator('.tile', { hasText: 'Models ready' }).textContent(), /server ready/);
      await fine(to, v.page, `unavailable-overview-${tag}`);
      await v.go('#/pipelines', '.minibox .why >> text=/labelled/');
      await fine(to, v.page, `unavailable-pipelines-${tag}`);
      await v.go('#/pipeline/labelled_ensemble', '.bad');
      await v.page.waitForSelector('.bad >> text=/labelled/');
      await v.go('#/pipeline/labelled', '.bad');
      await v.page.waitForSelector('.bad >> text=/labels.txt/');
      assert.equal(await v.page.locator('text=unknown model').count(), 0);
      await fine(to, v.page, `unavailable-pipeline-${tag}`);
      await v.go('#/try/labelled', '.bad');
      await v.page.waitForSelector('.bad >> text=/labels.txt/');
      await v.go('#/try/words', '.input textarea');
      await v.page.waitForSelector('text=The model is decoupled');
      const input = (name) => v.page.getByRole('group', { name: new RegExp(`^${name} `) });
      await input('IN').getByLabel(/Numbers/).fill('4 5 6');
      await input('IN').getByLabel('Shape', { exact: true }).fill('3');
      await input('DELAY').getByLabel('Shape', { exact: true }).fill('3');
      await v.page.getByRole('button', { name: 'Send', exact: true }).click();
      await v.page.waitForFunction(() => document.querySelectorAll('.responses li').length === 3);
      await v.page.waitForSelector('text=3 responses');
      assert.match(await v.page.locator('.responses li').nth(2).textContent(), /6/);
      await v.page.waitForSelector('.wrow');
      await fine(to, v.page, `try-stream-${tag}`);
      await input('IN').getByLabel('Shape', { exact: true }).fill('2');
      await v.page.getByRole('button', { name: 'Send', exact: true }).click();
      await v.page.waitForSelector('.bad >> text=/takes 2 values/');
      await v.end();
    }
  } finally {
    await server.stop();
  }
}

/** empty looks at a server without models. */
async function empty(t) {
  const server = await t.serve([], [join(t.scratch, 'empty')]);
  try {
    const v = await look({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });
    await v.go('#/try', 'text=No models: start the server with --model-repository');
    await v.go('#/', 'text=No models: start the server with --model-repository');
    await fine(t, v.page, 'empty-overview');
    await v.end();
  } finally {
    await server.stop();
  }
}

async function bigGraph(t) {
  const v = await look(t);
  const began = Date.now();
  await v.go('#/pipeline/big', 'g.node');
  assert.equal(await v.page.locator('g.node').count(), 200);
  console.log(`      opening a graph of 200 nodes: ${Date.now() - began} ms`);
  await v.page.waitForFunction(() => document.querySelector('.graph svg.far') !== null);
  const click = (at) => document.querySelectorAll('g.node')[at].dispatchEvent(new MouseEvent('click', { bubbles: true }));
  await timed(v.page, 'choosing one of 200 nodes', click, 120);
  await v.page.waitForSelector('.step');
  await timed(v.page, 'scaling 200 nodes', () => document.querySelector('.zoom button').click());
  await timed(v.page, 'fitting 200 nodes', () => [...document.querySelectorAll('.zoom button')].at(-1).click());
  const elements = await v.page.locator('.graph *').count();
  assert.ok(elements < 8000, `the graph has ${elements} elements`);
  await fine(t, v.page, 'big-dark');
  await v.end();
}

/** cost prints what a page that nobody touches costs a server that nobody asks. */
async function cost(t) {
  await t.load.stop();
  const cpu = async () => (await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/server`)).json());
  const share = async () => {
    const a = await cpu();
    await new Promise((f) => setTimeout(f, 5000));
    const b = await cpu();
    return ((b.cpu_seconds - a.cpu_seconds) * 1e6) / (b.now_us - a.now_us);
  };
  const without = await share();
  const v = await look(t);
  await v.go('#/', '.vslot .mrow');
  await v.page.waitForSelector('.link.live');
  const share1 = await share();
  console.log(`      an idle page: ${((share1 - without) * 100).toFixed(2)} % of a core (the server alone ${(without * 100).toFixed(2)} %)`);
  await v.end();
}

async function picture(t) {
  if (!t.picture) return;
  const v = await look(t, { viewport: { width: 1180, height: 620 } });
  await v.go('#/pipeline/detection', 'g.node .fig');
  await v.page.waitForTimeout(3000);
  await v.page.screenshot({ path: join(t.root, 'docs/dashboard.png') });
  const traces = await latest(t, 'model=detection&status=ok&retained=sampled&limit=200');
  await v.go(`#/traces/${traces.sort((a, b) => a.duration_ns - b.duration_ns)[traces.length >> 1].id}`, '.wrow');
  await v.page.waitForTimeout(300);
  await v.page.screenshot({ path: join(t.root, 'docs/request.png') });
  await v.end();
}

export const checks = {
  overview, history, 'the first view': firstView, 'pages of models': models, 'odd names': names, 'ten thousand models': thousands, 'a server that is gone': gone, 'clocks that differ': skewed, jobs, 'no jobs': without, 'a GPU': devices, pipeline, pipelines, timeline, 'ways of a request': flow, request, search, 'try it': tryIt, 'copied requests': copied, keyboard, changes, captured, 'labels of edges': labels, 'durations of steps': durations, 'odd models': odd, 'degraded parts': degraded, deadlines, 'no models': empty, 'a bare server': bare, 'graph of 200 nodes': bigGraph,
  'every page, dark': everyPage('dark', wide, 'dark'),
  'every page, light': everyPage('light', wide, 'light'),
  'every page, dark, on a phone': everyPage('dark', phone, 'phone-dark'),
  'every page, light, on a phone': everyPage('light', phone, 'phone-light'),
  'pictures as stored': pictures, picture, 'an idle page': cost,
};
