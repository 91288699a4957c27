// The history, the pages of models, ten thousand models, odd names, and a server that is gone.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';
import { token } from './server.mjs';

const looks = [['dark', wide, 'dark'], ['light', wide, 'light'], ['light', phone, 'phone-light']];

const config = 'backend: "identity" max_batch_size: 8\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }\noutput { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }\n';

function writeModels(dir, names, text = config) {
  for (const name of names) {
    mkdirSync(join(dir, name, '1'), { recursive: true });
    writeFileSync(join(dir, name, 'config.pbtxt'), text);
  }
  return dir;
}

const base = (t, server) => ({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });

/** history looks at the ranges of the overview and of a pipeline: the address has them, and what needs a data folder is not offered without one. */
export async function history(t) {
  for (const [theme, viewport, tag] of looks) {
    const v = await look(t, { theme, viewport });
    await v.go('#/?range=1h', '.pasts .chart canvas');
    await v.page.waitForFunction(() => document.querySelectorAll('.pasts .chart').length >= 3);
    assert.equal(await v.page.getByRole('button', { name: '1 h', exact: true }).getAttribute('aria-pressed'), 'true');
    assert.ok(await v.page.getByRole('button', { name: '7 d', exact: true }).isDisabled());
    await fine(t, v.page, `history-overview-${tag}`);
    await v.page.getByRole('button', { name: 'live', exact: true }).click();
    await v.page.waitForSelector('text=Cores in use');
    assert.match(v.page.url(), /range=live/);
    await v.go('#/pipeline/digits?range=15m', '.past .chart canvas');
    await fine(t, v.page, `history-pipeline-${tag}`);
    await v.end();
  }
  const server = await t.serve(['--data-dir', join(t.scratch, 'data'), '--model-control-mode=explicit', '--load-model=*'], [writeModels(join(t.scratch, 'stored'), ['one'])]);
  try {
    const v = await look(base(t, server));
    await v.go('#/?range=7d', '.tabs [aria-pressed="true"]');
    assert.equal(await v.page.getByRole('button', { name: '7 d', exact: true }).getAttribute('aria-pressed'), 'true');
    await v.page.waitForFunction(() => ![...document.querySelectorAll('[aria-label="Range of time"] button')].some((b) => b.disabled));
    await v.end();
  } finally {
    await server.stop();
  }
}

/** models looks at the list of models and the page of one, and loads and unloads it. */
export async function models(t) {
  for (const [theme, viewport, tag] of looks) {
    const v = await look(t, { theme, viewport });
    await v.go('#/models', '.vslot .mrow');
    await fine(t, v.page, `models-${tag}`);
    await v.go('#/models?kind=models&name=digits', '.vslot .mrow');
    await v.page.locator('.mrow .mname a').first().click();
    await v.page.waitForSelector('.loads tbody tr');
    await v.page.waitForSelector('.past .chart canvas');
    await v.page.waitForSelector('pre.config mark');
    await v.page.waitForSelector('text=Batches');
    await fine(t, v.page, `model-${tag}`);
    await v.end();
  }
  const repository = writeModels(mkdtempSync(join(t.scratch, 'load-')), ['twice']);
  const server = await t.serve(['--model-control-mode=explicit', '--load-model=*', '--dashboard-token', token], [repository]);
  try {
    const v = await look(base(t, server));
    v.page.expected = /40\d|500/; // a load that fails
    await v.go('#/settings', 'input[name=token]');
    await v.page.getByLabel('Token').fill(token);
    await v.page.getByRole('button', { name: 'Use', exact: true }).click();
    await v.page.waitForSelector('text=You may change things');
    await v.go('#/model/twice', '.loads tbody tr');
    assert.match(await v.page.locator('.loads tbody tr').first().textContent(), /loaded1.*the server started/);
    const marked = await v.page.locator('pre.config mark').allTextContents();
    assert.ok(marked.some((m) => m.includes('instance_group')) && !marked.some((m) => m.includes('INPUT0')), `marked: ${marked.join()}`);
    await v.page.getByRole('button', { name: 'Unload' }).click();
    await v.page.getByRole('button', { name: 'Press again' }).click();
    await v.page.waitForFunction(() => /unloaded/.test(document.querySelector('.loads tbody tr')?.textContent ?? ''));
    writeFileSync(join(repository, 'twice', 'config.pbtxt'), 'backend: "identity" max_batch_size: x');
    await v.page.getByRole('button', { name: 'Load again' }).click();
    await v.page.waitForFunction(() => /failed.*Expected integer/s.test(document.querySelector('.loads tbody tr')?.textContent ?? ''));
    await v.page.waitForSelector('main > .bad >> text=Expected integer');
    await fine(t, v.page, 'model-broken-dark');
    writeFileSync(join(repository, 'twice', 'config.pbtxt'), `${config}instance_group { count: 3 }`);
    await v.page.getByRole('button', { name: 'Load again' }).click();
    await v.page.waitForFunction(() => document.querySelectorAll('[aria-label="Instances"] tbody tr').length === 3);
    await v.go('#/model/nobody', '.bad >> text=is not found');
    await v.end();
  } finally {
    await server.stop();
  }
}

const markup = '<img src=x onerror=document.title=1>', long = `a_model_${'with_a_very_long_name_'.repeat(8)}end`;

/** names looks at models whose names hold markup or are very long: they are texts on every page, and no page is wider than the window. */
export async function names(t) {
  const dir = writeModels(join(t.scratch, 'names'), [markup, long]);
  writeModels(dir, ['<b>broken'], config.replace('max_batch_size: 8', 'max_batch_size: x'));
  const server = await t.serve(['--exit-on-error=false', '--strict-readiness=false'], [dir]);
  try {
    for (const viewport of [wide, phone]) {
      const v = await look(base(t, server), { viewport });
      v.page.expected = /40\d|503/;
      for (const [hash, ready] of [['#/', '.vslot .mrow'], ['#/models', '.vslot .mrow'], ...[markup, long].flatMap((m) => [
        [`#/model/${encodeURIComponent(m)}`, '.loads tbody tr'], [`#/pipeline/${encodeURIComponent(m)}`, 'g.node'], [`#/try/${encodeURIComponent(m)}`, '.input textarea'],
      ]), [`#/model/${encodeURIComponent('<b>broken')}`, '.loads tbody tr']]) {
        await v.go(hash, ready);
        assert.equal(await v.page.locator('main img, main b b, #app script').count(), 0, hash);
        assert.doesNotMatch(await v.page.title(), /^1$/);
        await fine(base(t, server), v.page, `names-${viewport === phone ? 'phone' : 'wide'}`);
      }
      await v.go('#/models', '.vslot .mrow');
      assert.ok((await v.page.locator('.mname a').allTextContents()).includes(markup));
      await v.end();
    }
  } finally {
    await server.stop();
  }
}

/** thousands looks at a server of ten thousand models: the table draws what is seen, the stream is small, and typing finds one. */
export async function thousands(t) {
  const n = 10_000;
  const dir = writeModels(join(t.scratch, 'thousands'), Array.from({ length: n }, (_, i) => `model-${String(i).padStart(5, '0')}`));
  const server = await t.serve([], [dir]);
  try {
    const v = await look(base(t, server));
    const began = Date.now();
    await v.go('#/', '.vslot .mrow');
    await v.page.waitForFunction((all) => Number(document.querySelector('.virtual').getAttribute('aria-rowcount')) === all + 1, n);
    console.log(`      the overview of ${n} models: ${Date.now() - began} ms`);
    assert.ok(await v.page.locator('.vslot').count() < 60);
    await v.page.evaluate(() => { const e = document.querySelector('.virtual'); e.scrollTop = e.scrollHeight; });
    await v.page.waitForSelector(`text=model-${String(n - 1).padStart(5, '0')}`);
    assert.ok(await v.page.locator('.vslot').count() < 60);
    await v.page.getByLabel('Filter models by name').fill('model-04321');
    await v.page.waitForFunction(() => document.querySelector('.virtual').getAttribute('aria-rowcount') === '2' && /name=model-04321/.test(location.hash));
    await fine(base(t, server), v.page, 'thousands-dark');
    await v.go('#/model/model-04321', '.loads tbody tr');
    await v.end();
  } finally {
    await server.stop();
  }
}

/** gone looks at the pages of a server that ends: the figures stay, marked as old, with the time. */
export async function gone(t) {
  const server = await t.serve([], [writeModels(join(t.scratch, 'gone'), ['one'])]);
  const to = base(t, server);
  const views = [];
  let over = false;
  try {
    for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', phone, 'phone-light']]) {
      const v = await look(to, { theme, viewport });
      v.page.expected = /ERR_|Failed to load|503/;
      await v.go('#/', '.vslot .mrow');
      views.push([v, tag]);
    }
    await server.stop();
    over = true;
    for (const [v, tag] of views) {
      await v.page.waitForSelector('.lost >> text=/Disconnected since \\d\\d:\\d\\d:\\d\\d/');
      assert.ok(await v.page.locator('body.stale .vslot .mrow').count() > 0);
      await fine(to, v.page, `gone-${tag}`);
      await v.end();
    }
  } finally {
    if (!over) await server.stop();
  }
}

/** skewed looks at the overview with a browser whose clock is an hour late: the times are those of the server. */
export async function skewed(t) {
  const v = await look(t);
  await v.page.clock.install({ time: Date.now() - 3_600_000 });
  await v.go('#/', '.tile >> text=Clock of the server');
  await v.page.waitForSelector('.tile >> text=+1 h 0 min');
  await v.end();
}

/** firstView counts the bytes that the overview takes until all of it is drawn, compressed as they are sent. */
export async function firstView(t) {
  const v = await look(t);
  const network = await v.page.context().newCDPSession(v.page);
  await network.send('Network.enable');
  let bytes = 0;
  network.on('Network.dataReceived', (e) => { bytes += e.encodedDataLength; });
  await v.go('#/', '.vslot .mrow');
  await v.page.waitForSelector('.pasts .chart canvas');
  await v.page.waitForSelector('.news li');
  console.log(`      the first view: ${(bytes / 1000).toFixed(0)} kB`);
  assert.ok(bytes > 50_000 && bytes < 150_000, `the first view takes ${bytes} bytes`);
  await v.end();
}
