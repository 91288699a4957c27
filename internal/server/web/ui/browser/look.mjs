// Opening a page, and what holds for every page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
export const wide = { width: 1440, height: 900 }, phone = { width: 390, height: 844 };

/** look opens a page and takes note of everything that goes wrong in it. */
export async function look(t, { theme = 'dark', viewport = wide } = {}) {
  const context = await t.browser.newContext({ viewport, colorScheme: theme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const wrong = [];
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type()) && !page.expected?.test(m.text())) wrong.push(`console: ${m.text()}`); });
  page.on('pageerror', (e) => wrong.push(`error: ${e.stack}`));
  page.on('request', (r) => { if (!r.url().startsWith(new URL('..', t.base).href) && !r.url().startsWith('blob:')) wrong.push(`asked ${r.url()}`); });
  await page.addInitScript(() => addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)));
  return {
    page, wrong,
    go: async (hash, ready) => { await page.goto(t.base + hash); await page.waitForSelector(ready); },
    end: async () => { await context.close(); assert.deepEqual(wrong, []); },
  };
}

/** fine checks accessibility and takes a screenshot, from the top: below it the bar covers what is scrolled. */
export async function fine(t, page, name) {
  await page.evaluate(() => scrollTo(0, 0));
  await page.waitForTimeout(150);
  await page.screenshot({ path: join(t.screenshots, `${name}.png`), fullPage: true });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary}`).join(' | ')}`), [], name);
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(over <= 0, `${name} is ${over} pixels wider than the window`);
}
