// The page of all pipelines: few with load, and a thousand.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';

/** pipelines looks at the graphs of the examples under load, and at those of a server with a thousand ensembles. */
export async function pipelines(t) {
  const models = (await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/models`)).json()).models.filter((m) => m.ensemble);
  for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', wide, 'light'], ['light', phone, 'phone-light'], ['dark', phone, 'phone-dark']]) {
    const v = await look(t, { theme, viewport });
    await v.go('#/pipelines', '.mini rect');
    await v.page.waitForSelector('.mini .worst');
    await fine(t, v.page, `pipelines-${tag}`);
    if (tag !== 'dark') { await v.end(); continue; }
    await v.page.waitForFunction((n) => document.querySelectorAll('article.small').length === n && document.querySelectorAll('.mini').length === n, models.length);
    const graph = await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/graph/detection`)).json();
    assert.equal(await v.page.locator('article.small', { has: v.page.getByRole('link', { name: 'detection', exact: true }) }).locator('.mini rect').count(), graph.nodes.length);
    await v.page.getByLabel('Order').selectOption('rate');
    assert.match(v.page.url(), /sort=rate/);
    await v.page.getByLabel('Filter pipelines by name').fill('no such name');
    await v.page.waitForSelector('text=No pipeline fits.');
    await v.page.getByLabel('Filter pipelines by name').fill('digi');
    await v.page.waitForFunction(() => document.querySelectorAll('article.small').length === 1);
    await v.page.getByRole('link', { name: 'digits', exact: true }).click();
    await v.page.waitForSelector('g.node');
    assert.match(v.page.url(), /#\/pipeline\/digits$/);
    await v.end();
  }
  await many(t);
}

async function many(t) {
  const server = await t.serve([], [join(t.scratch, 'many')]);
  try {
    const v = await look({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });
    let asked = 0;
    v.page.on('request', (r) => { if (r.url().includes('/api/graph/')) asked++; });
    await v.go('#/pipelines', '.mini rect');
    await v.page.waitForSelector('h1 >> text=1,000');
    const cards = () => v.page.locator('article.small').count();
    assert.ok(await cards() < 60, `${await cards()} cards of 1,000 exist`);
    for (const share of [0.3, 0.7, 1]) {
      await v.page.evaluate((at) => scrollTo(0, document.documentElement.scrollHeight * at), share);
      await v.page.waitForFunction(() => [...document.querySelectorAll('article.small')].some((e) => e.getBoundingClientRect().top >= 0 && e.getBoundingClientRect().bottom <= innerHeight && e.querySelector('.mini rect')));
      assert.ok(await cards() < 60, `${await cards()} cards of 1,000 exist`);
    }
    await v.page.waitForSelector('a >> text=many_0999');
    assert.ok(asked < 250, `${asked} graphs of 1,000 were read`);
    await v.page.getByLabel('Filter pipelines by name').fill('0500');
    await v.page.waitForSelector('a >> text=many_0500');
    assert.equal(await cards(), 1);
    await v.end();
  } finally {
    await server.stop();
  }
}
