// The page of a request whose steps ran on a GPU: that of the tests, a driver that checks every access.
import assert from 'node:assert/strict';
import { appendFileSync, cpSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';

/** devices looks at the times of a GPU and at tensors that had no room there. */
export async function devices(t) {
  const driver = process.env.TUTTI_TEST_CUDA_DRIVER ?? join(t.root, 'bin/cuda/libcuda.so.1');
  if (!existsSync(driver)) { console.log('      skipped: no driver for tests; scripts/prepare-cuda builds it'); return; }
  const models = join(t.scratch, 'gpu');
  cpSync(join(t.root, 'deploy/kserve/models'), models, { recursive: true });
  for (const m of ['unit', 'best']) appendFileSync(join(models, m, 'config.pbtxt'), '\ninstance_group { kind: KIND_GPU gpus: 0 }\n');
  const server = await t.serve(['--cuda-driver', driver, '--cuda-memory-pool-byte-size=0:8', '--trace-store-every', '1', '--trace-store-rate', '0'], [models]);
  const to = { ...t, base: `http://127.0.0.1:${server.port}/ui/` };
  try {
    const id = 'a'.repeat(32);
    const r = await fetch(`http://127.0.0.1:${server.port}/v2/models/rank/infer`, {
      method: 'POST', body: JSON.stringify({ inputs: [{ name: 'SCORES', datatype: 'FP32', shape: [1, 4], data: [3, 0, 4, 0] }] }),
      headers: { 'Content-Type': 'application/json', traceparent: `00-${id}-00f067aa0ba902b7-01`, tracestate: 'tutti=retain' },
    });
    assert.equal(r.status, 200, await r.text());
    for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', phone, 'phone-light']]) {
      const v = await look(to, { theme, viewport });
      await v.go(`#/traces/${id}`, '.wrow');
      assert.equal(await v.page.locator('.track .ondevice').count(), 2);
      await v.page.waitForSelector('.marks >> text=/time on device:0/');
      await v.page.waitForSelector('.marks >> text=/spill to slower memory/');
      await v.page.locator('.wrow', { hasText: 'unit' }).click();
      assert.match(await v.page.locator('.fact', { hasText: 'time on device:0' }).textContent(), /\d (ns|µs|ms) from /);
      await fine(to, v.page, `request-gpu-${tag}`);
      await v.end();
    }
  } finally {
    await server.stop();
  }
}
