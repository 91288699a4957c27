// Conditions, fan-outs, fallbacks, splits, canaries and shadows in the graph and among the steps of a request.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';

/** price sends a request to an ensemble of the shop. */
async function price(t, model, user, name = 'COST') {
  const body = JSON.stringify({ parameters: { user }, inputs: [{ name, datatype: 'FP32', shape: [1, 1], data: [10] }] });
  const r = await fetch(`http://127.0.0.1:${t.server.port}/v2/models/${model}/infer`, { method: 'POST', body });
  assert.ok(r.ok, await r.text());
}

/** picture sends a picture to an ensemble. */
async function picture(t, model, file) {
  const data = readFileSync(join(t.root, 'examples/ensembles', file)), size = Buffer.alloc(4);
  size.writeUInt32LE(data.length);
  const header = Buffer.from(JSON.stringify({ id: `flow ${file}`, inputs: [{ name: 'IMAGE', datatype: 'BYTES', shape: [1, 1], parameters: { binary_data_size: data.length + 4 } }] }));
  const r = await fetch(`http://127.0.0.1:${t.server.port}/v2/models/${model}/infer`, {
    method: 'POST', headers: { 'Inference-Header-Content-Length': header.length, 'Content-Type': 'application/octet-stream' }, body: Buffer.concat([header, size, data]),
  });
  assert.ok(r.ok, await r.text());
}

const json = async (t, path) => (await fetch(`http://127.0.0.1:${t.server.port}/ui/api/${path}`)).json();

/** newest returns the newest trace of a model with an event of a kind. */
async function newest(t, model, kind) {
  for (const s of (await json(t, `traces?model=${model}&status=ok&limit=50`)).traces) {
    const v = await json(t, `traces/${s.id}`);
    if (v.events.some((e) => e.kind === kind)) return v;
  }
  throw new Error(`no trace of ${model} has ${kind}`);
}

/** What each graph must show: its ensemble, what is counted, and how many frames and dashed nodes it has. */
const graphs = [
  ['second_look', /when first\[0\] < 0\.9.*condition of second_look_decode.*rows? ran.*did not/s, 0, 0],
  ['detection_kinds', /each item of crop.*items a request.*in [0-9.]+ groups, of [0-9.k]+ requests/s, 1, 0],
  ['estimate', /fallback of exact · ran [0-9.k]+ times?/, 0, 1],
  ['shop', /split of price.*50\.0 %.*requests?/s, 0, 0],
  ['watched', /canary of price.*shadow of price.*differs?.*cop/s, 0, 1],
];

/** Which requests are looked at: an event, and what the rows of the steps say. */
const requests = [
  ['second_look', 'step_skipped', /second_look_decode.*skipped.*holds for no row.*ran for 0 of 1 rows/s],
  ['detection_kinds', 'fan_out', /each item of crop.*5 items in 4 groups.*kinds_cnn.*5 items in 4 groups/s],
  ['estimate', 'step_fault', /rough.*fallback of exact.*its fallback 'rough' runs/s],
  ['shop', 'step_routed', /new_price.*split of price.*was executed by 'new_price'/s],
];

/** flow looks at each of them in both themes, wide and on a phone. */
export async function flow(t) {
  for (const user of ['ada', 'bob', 'carol', 'dan', 'carol']) {
    await price(t, 'shop', user);
    await price(t, 'watched', user);
    await price(t, 'estimate', user, 'AMOUNT');
  }
  await picture(t, 'second_look', 'digits/eight.jpg');
  await picture(t, 'detection_kinds', 'detection/three.png');
  await picture(t, 'second_look', 'digits/two.jpg');
  await picture(t, 'detection_kinds', 'detection/five.jpg');
  for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', wide, 'light'], ['dark', phone, 'phone-dark'], ['light', phone, 'phone-light']]) {
    const v = await look(t, { theme, viewport });
    for (const [model, shows, frames, dashes] of graphs) {
      await v.go(`#/pipeline/${model}`, 'g.node .name');
      const text = (await v.page.locator('g.node').allTextContents()).join('\n');
      assert.match(text, shows, `${model} shows ${text}`);
      assert.equal(await v.page.locator('g.frame').count(), frames, model);
      assert.equal(await v.page.locator('g.node.dashes').count(), dashes, model);
      assert.equal(await v.page.locator('g.edge.dashes').count() > 0, dashes > 0, model);
      await fine(t, v.page, `flow-${model}-${tag}`);
    }
    for (const [model, kind, shows] of requests) {
      const one = await newest(t, model, kind);
      await v.go(`#/traces/${one.id}`, '.decided');
      await v.page.waitForSelector('.wname small');
      for (const row of await v.page.locator('li.skipped .wrow, li.inside .wrow').all()) await row.click();
      const text = await v.page.locator('.fall').textContent();
      assert.match(text, shows, `${model} shows ${text}`);
      await fine(t, v.page, `flow-request-${model}-${tag}`);
    }
    await v.end();
  }
}
