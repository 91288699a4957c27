// The pages of jobs, in front of a server with a Temporal server of its own.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';

/** submitted submits a job of the ensemble rank over some rows, which the page and the command line may do too. */
async function submitted(t, server, more) {
  const r = await fetch(`http://127.0.0.1:${server.port}/v2/jobs`, { method: 'POST', body: JSON.stringify({
    model: 'rank', columns: { SCORES: 'scores' }, keep: ['id'], output: { uri: join(t.scratch, `out-${more.id}`) }, ...more,
  }) });
  assert.equal(r.status, 201, await r.text());
}

/** writeRows writes a dataset; a row without scores in every so many. */
function writeRows(file, n, bad) {
  const rows = Array.from({ length: n }, (_, i) => JSON.stringify({ id: `row-${i}`, scores: i % bad === bad - 1 ? 'none' : [i % 7, 1, 2, (i % 5) / 3] }));
  writeFileSync(file, `${rows.join('\n')}\n`);
}

/** control loads or unloads a model. */
const control = async (server, model, what) => {
  const r = await fetch(`http://127.0.0.1:${server.port}/v2/repository/models/${model}/${what}`, { method: 'POST' });
  assert.equal(r.status, 200, await r.text());
};

const state = (v, name) => v.page.waitForSelector(`h1 .state >> text=${name}`);

/** jobs goes through the life of jobs on a server with a Temporal server of its own. */
export async function jobs(t) {
  const data = join(t.scratch, 'jobs'), small = join(t.scratch, 'small.jsonl'), big = join(t.scratch, 'big.jsonl');
  writeRows(small, 300, 3);
  writeRows(big, 40000, 100);
  const server = await t.serve(['--jobs', '--data-dir', data, '--temporal-program', t.temporal, '--model-control-mode=explicit', '--load-model=*'], [join(t.root, 'deploy/kserve/models')]);
  const to = { ...t, base: `http://127.0.0.1:${server.port}/ui/` };
  try {
    const v = await look(to);
    await v.go('#/', '.tile');
    await v.page.getByRole('link', { name: 'Jobs', exact: true }).click();
    await v.page.waitForSelector('text=No job was submitted yet');
    await v.page.getByRole('button', { name: 'Submit a job' }).click();
    await v.page.getByLabel('Model or ensemble').fill('rank');
    await v.page.getByLabel('Input: a file').fill(small);
    await v.page.getByLabel('Output: a folder').fill(join(t.scratch, 'out-first'));
    await v.page.getByText('more', { exact: true }).click();
    await v.page.getByLabel('Columns of inputs').fill('SCORES');
    await v.page.getByLabel('Name of the job').fill('first');
    await v.page.getByRole('button', { name: 'Submit', exact: true }).click();
    await v.page.waitForSelector('.bad >> text=/expected INPUT=COLUMN/');
    await v.page.getByLabel('Columns of inputs').fill('SCORES=scores');
    await v.page.waitForSelector('.command >> text=/--column SCORES=scores/');
    await fine(to, v.page, 'jobs-submit-dark');
    await v.page.getByRole('button', { name: 'Submit', exact: true }).click();
    await v.page.waitForFunction(() => location.hash === '#/jobs/first');
    await state(v, 'completed');
    await v.page.waitForSelector('text=/100 %/');
    await v.page.getByText('_manifest.json').waitFor();
    const saved = v.page.waitForEvent('download');
    await v.page.getByRole('button', { name: 'Save the manifest' }).click();
    assert.equal(JSON.parse(readFileSync(await (await saved).path(), 'utf8')).rows.failed, 100);
    const failed = v.page.getByRole('region', { name: 'Failed rows' });
    assert.equal(await failed.locator('tbody tr').count(), 50);
    assert.match(await failed.locator('tbody tr').first().textContent(), /small\.jsonl:3.*invalid argument/);
    await v.page.getByRole('link', { name: 'Next', exact: true }).click();
    await v.page.waitForFunction(() => document.querySelector('[aria-label="Failed rows"] tbody td')?.textContent === '152');
    await v.page.getByRole('button', { name: 'Retry' }).click();
    await v.page.waitForFunction(() => /^#\/jobs\/.+/.test(location.hash) && !/first/.test(location.hash));
    await state(v, 'completed');
    await v.page.waitForSelector('.legend >> text=/Reused 200/');
    const ended = await v.page.evaluate(() => location.hash);
    v.page.expected = /404/;
    await v.go('#/jobs/first', '.bad >> text=/replaced/');

    await submitted(to, server, { id: 'long', input: { uri: big }, chunk_rows: 20, chunks: 1 });
    await v.go('#/jobs/long', 'h1 .state');
    await state(v, 'running');
    await v.page.waitForFunction(() => Number(document.querySelector('[role=progressbar]').getAttribute('aria-valuenow')) > 0 && /rows\/s/.test(document.querySelector('.figures').textContent));
    await fine(to, v.page, 'job-running-dark');
    await v.page.getByRole('button', { name: 'Pause' }).click();
    await state(v, 'paused');
    await v.page.getByRole('button', { name: 'Resume' }).click();
    await state(v, 'running');
    await control(server, 'unit', 'unload'); // chunks are being executed, so that one fails
    await state(v, 'waiting');
    await v.page.locator('.waits', { hasText: 'rank' }).waitFor();
    assert.ok(await v.page.getByRole('region', { name: 'Problems' }).locator('tbody tr').count() > 0);
    await everyJobs(to, ended);
    await idle(to, ended);
    await control(server, 'unit', 'load');
    await control(server, 'rank', 'load');
    await state(v, 'running');
    await v.page.getByRole('button', { name: 'Cancel' }).click();
    await v.page.waitForSelector('dialog[open]');
    await fine(to, v.page, 'job-cancel-dark');
    await v.page.keyboard.press('Escape');
    await v.page.waitForSelector('dialog[open]', { state: 'detached' });
    await state(v, 'running');
    await v.page.getByRole('button', { name: 'Cancel' }).click();
    await v.page.getByRole('button', { name: 'Cancel the job' }).click();
    await state(v, 'cancelled');
    await v.page.getByRole('button', { name: 'Retry' }).waitFor();
    await paged(to, server, v);
    await v.go('#/jobs/nothing', '.bad >> text=/nothing/');
    await v.end();
  } finally {
    await server.stop();
  }
}

/** everyJobs looks at the pages of jobs in both themes and sizes, while one waits. */
async function everyJobs(to, ended) {
  for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', wide, 'light'], ['dark', phone, 'phone-dark'], ['light', phone, 'phone-light']]) {
    const v = await look(to, { theme, viewport });
    await v.go('#/jobs', '.jobs tbody tr');
    await v.page.waitForSelector('.jobs .state >> text=waiting');
    await fine(to, v.page, `jobs-${tag}`);
    await v.go('#/jobs/long', '[aria-label="Problems"] tbody tr');
    await fine(to, v.page, `job-waiting-${tag}`);
    await v.go(ended, '[aria-label="Failed rows"] tbody tr');
    await v.page.waitForSelector('[aria-label="Parts of the result"] tbody tr');
    await fine(to, v.page, `job-completed-${tag}`);
    await v.end();
  }
}

/** idle checks that nothing is asked about a job that has ended, nor by a page that is not seen; on a clock that the test moves. */
async function idle(to, ended) {
  const v = await look(to);
  let asked = 0, open = 0;
  const of = (n) => (r) => { if (r.url().includes('/v2/jobs')) { open += n; asked += n > 0 ? 1 : 0; } };
  v.page.on('request', of(1));
  v.page.on('requestfinished', of(-1));
  v.page.on('requestfailed', of(-1));
  const settled = async () => { while (open > 0) await v.page.evaluate(() => new Promise((f) => requestAnimationFrame(f))); };
  const passed = async () => { asked = 0; await v.page.clock.runFor(60_000); return asked; };
  const see = (how) => v.page.evaluate((state) => {
    Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, how);
  await v.page.clock.install();
  await v.go('#/jobs/long', '[aria-label="Problems"] tbody tr');
  assert.ok(await passed() > 0, 'a job that goes on is not read again');
  await see('hidden');
  await settled();
  assert.equal(await passed(), 0, 'a page that is not seen reads a job');
  const again = v.page.waitForRequest(/v2\/jobs/);
  await see('visible');
  await again;
  await v.go(ended, '[aria-label="Parts of the result"] tbody tr');
  await v.page.waitForSelector('[aria-label="Failed rows"] tbody tr');
  await settled();
  assert.equal(await passed(), 0, 'a job that has ended is read again');
  await v.end();
}

/** paged goes through more jobs than a page has. */
async function paged(to, server, v) {
  const input = join(to.scratch, 'one.jsonl');
  writeRows(input, 1, 2);
  for (let n = 0; n < 50; n++) await submitted(to, server, { id: `many-${n}`, input: { uri: input } });
  await v.page.waitForFunction(async () => (await (await fetch('../v2/jobs?limit=60')).json()).jobs.length === 53);
  await v.go('#/jobs', '.jobs tbody tr');
  await v.page.waitForFunction(() => document.querySelectorAll('.jobs tbody tr').length === 50);
  await v.page.getByRole('link', { name: 'Older' }).click();
  await v.page.waitForSelector('.jobs >> text=first');
  assert.equal(await v.page.locator('.jobs tbody tr').count(), 3);
  await v.page.getByRole('link', { name: 'Latest' }).click();
  await v.page.waitForFunction(() => document.querySelectorAll('.jobs tbody tr').length === 50);
}

/** without looks at the page of jobs where there are none, and where they are restricted. */
export async function without(t) {
  const v = await look(t);
  v.page.expected = /501/;
  await v.go('#/jobs', 'text=This server runs no jobs');
  await v.page.waitForSelector('pre >> text=/--jobs/');
  await fine(t, v.page, 'jobs-none-dark');
  await v.end();
  const server = await t.serve(['--http-restricted-api', 'jobs:secret=open'], [join(t.scratch, 'empty')]);
  try {
    const r = await look({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });
    r.page.expected = /403|50[13]/;
    await r.go('#/jobs', '.bad >> text=/restricted/');
    await r.page.getByRole('link', { name: 'settings', exact: true }).click();
    await r.page.getByLabel('Header of restricted interfaces').fill('secret: open');
    await r.page.getByRole('button', { name: 'Use', exact: true }).click();
    await r.page.evaluate(() => { location.hash = '#/jobs'; });
    await r.page.waitForSelector('text=This server runs no jobs');
    await r.end();
  } finally {
    await server.stop();
  }
}
