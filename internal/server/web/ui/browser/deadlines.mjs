// Deadlines: goodput and refusals on the page of a pipeline, predictions on that of a request.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';
import { full, writeChain } from './server.mjs';

/** deadlines sends requests with deadlines to a chain of two models, until predictions refuse one, and looks at both pages. */
export async function deadlines(t) {
  const dir = join(t.scratch, 'deadlines');
  writeChain(dir);
  const server = await t.serve(full, [dir]);
  const url = `http://127.0.0.1:${server.port}`, to = { ...t, base: `${url}/ui/` };
  const body = JSON.stringify({ inputs: [{ name: 'INPUT0', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }] });
  const send = (limit) => fetch(`${url}/v2/models/chain/infer`, { method: 'POST', body, headers: { 'tutti-timeout-ms': `${limit}` } });
  const newest = async (status) => (await (await fetch(`${url}/ui/api/traces?model=chain&status=${status}&limit=1`)).json()).traces[0];
  try {
    for (let n = 0; n < 12; n++) assert.equal((await send(60000)).status, 200);
    const admitted = await newest('ok');
    // The first such requests are executed, to correct the prediction. One that is refused on arrival executes no step.
    let refused = null;
    for (let n = 0; n < 100 && refused?.steps !== 0; n++) {
      assert.equal((await send(1)).headers.get('tutti-error-reason'), 'DEADLINE_UNREACHABLE');
      refused = await newest('unavailable');
    }
    assert.equal(refused.steps, 0);
    for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', phone, 'phone-light']]) {
      const v = await look(to, { theme, viewport });
      await v.go('#/pipeline/chain', '.overload .refusals li b');
      await v.page.waitForFunction(() => /Goodput: in time[0-9.]+\/s.*Late.*Refused.*deadline predicted on arrival/s.test(document.querySelector('.overload').textContent));
      await fine(to, v.page, `deadlines-pipeline-${tag}`);
      await v.go(`#/traces/${refused.id}`, '.wrow');
      assert.equal(await v.page.locator('.wrow .predicted').count(), 3);
      assert.match(await v.page.locator('.fall').textContent(), /first.*did not run.*second.*did not run/s);
      assert.match(await v.page.locator('main').textContent(), /reason\s*DEADLINE_UNREACHABLE.*step\s*(first|second)/s);
      await fine(to, v.page, `deadlines-refused-${tag}`);
      await v.go(`#/traces/${admitted.id}`, '.deadline table');
      assert.equal(await v.page.locator('.wrow .predicted').count(), 3);
      assert.match(await v.page.locator('.deadline').textContent(), /in time.*first.*(later|earlier).*second.*(later|earlier).*response.*(later|earlier)/s);
      await v.page.locator('.wrow').nth(1).click();
      assert.match(await v.page.locator('.detail').textContent(), /predicted end.*done .* (later|earlier)/s);
      await fine(to, v.page, `deadlines-request-${tag}`);
      await v.end();
    }
  } finally {
    await server.stop();
  }
}
