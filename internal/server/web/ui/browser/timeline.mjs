// The timeline of instances: by mouse, by keyboard, and from a request.
import assert from 'node:assert/strict';
import { fine, look, phone, wide } from './look.mjs';

/** timeline looks at what ran on the instances of a server under load. */
export async function timeline(t) {
  for (const [theme, viewport, tag] of [['light', wide, 'light'], ['dark', phone, 'phone-dark']]) {
    const v = await look(t, { theme, viewport });
    await v.go('#/timeline', '.lanes .run');
    await fine(t, v.page, `timeline-${tag}`);
    await v.end();
  }
  const v = await look(t);
  v.page.expected = /404/; // under this load batches are replaced within seconds
  await v.go('#/timeline', '.lanes .run');
  await v.page.waitForSelector('text=/executions? .* are known/');
  const bars = await v.page.locator('.lanes .run').count();
  assert.ok(bars > 10 && bars < 20000, `${bars} bars`);
  await v.page.getByRole('button', { name: 'Pause' }).click();
  await v.page.waitForFunction(() => /from_us=\d+&to_us=\d+/.test(location.hash));
  const interval = () => v.page.evaluate(() => { const q = new URLSearchParams(location.hash.split('?')[1]); return [Number(q.get('from_us')), Number(q.get('to_us'))]; });
  const first = await interval();
  const svg = v.page.locator('.lanes svg');
  await svg.focus();
  await v.page.keyboard.press('ArrowRight');
  await v.page.keyboard.press('ArrowRight');
  await v.page.waitForSelector('.chosenrun');
  const one = await v.page.locator('.chosenrun h2 a').first().textContent();
  await v.page.keyboard.press('ArrowDown');
  await v.page.waitForFunction((was) => document.querySelector('.chosenrun h2 a')?.textContent !== was, one);
  assert.match(await v.page.locator('.lanes [role=status]').textContent(), /^batch \d+ of .* rows? of \d+ requests?/);
  for (let i = 0; i < 6; i++) {
    const was = await v.page.evaluate(() => location.hash);
    await v.page.keyboard.press('+');
    await v.page.waitForFunction((old) => location.hash !== old && document.querySelector('.lanes .run.at'), was);
  }
  const near = await interval();
  assert.ok(near[1] - near[0] < (first[1] - first[0]) / 50, `${near} is not much shorter than ${first}`);
  await v.page.waitForSelector('.lanes .run.at');
  await fine(t, v.page, 'timeline-near-dark');
  const box = await svg.boundingBox(), y = Math.max(box.y, 60) + 200;
  await v.page.mouse.move(box.x + 500, y);
  await v.page.mouse.down();
  await v.page.mouse.move(box.x + 700, y + 20, { steps: 4 });
  await v.page.waitForSelector('.brush');
  await v.page.mouse.up();
  await v.page.waitForFunction((old) => !location.hash.includes(`from_us=${old}`), near[0]);
  const brushed = await interval();
  assert.ok(brushed[0] > near[0] && brushed[1] < near[1] && brushed[1] - brushed[0] < (near[1] - near[0]) / 3, `${brushed} is not in ${near}`);
  await v.page.getByRole('button', { name: 'Follow' }).click();
  await v.page.waitForFunction(() => !/from_us/.test(location.hash));
  await svg.focus();
  await v.page.keyboard.press('ArrowRight');
  await v.page.keyboard.press('End');
  await v.page.keyboard.press('Enter');
  await v.page.waitForFunction(() => /^#\/batches\/\d+$/.test(location.hash));
  await v.page.waitForSelector('.facts');
  const { traces } = await (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/traces?model=detection&status=ok&limit=1`)).json();
  await v.go(`#/traces/${traces[0].id}`, '.wrow');
  await v.page.getByRole('link', { name: 'Timeline' }).last().click();
  await v.page.waitForSelector('.lanes .run.of');
  assert.equal(await v.page.locator('.lanes .run.of').count(), traces[0].steps);
  await v.page.locator('.lanes .run.of').first().click();
  await v.page.waitForSelector('.chosenrun .chip');
  await fine(t, v.page, 'timeline-request-dark');
  await v.page.locator('.chosenrun .chip').first().click();
  await v.page.waitForSelector('.wrow');
  await v.go('#/timeline?pipeline=detection', '.lanes .run');
  assert.deepEqual((await v.page.locator('.lanes .lane').evaluateAll((l) => [...new Set(l.map((e) => e.firstChild.textContent.split(' ')[0]))])).sort(), ['detection_boxes', 'detection_decode', 'shapes_cnn']);
  await v.go('#/timeline?from_us=1000&to_us=2000', 'text=/Batches are known since/');
  await v.end();
}
