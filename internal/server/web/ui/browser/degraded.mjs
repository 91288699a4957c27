// The banner of what does not work, on every page.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { fine, look, phone, wide } from './look.mjs';

/** degraded looks for the banner at a server with models that cannot be loaded, and for none at a sound one. */
export async function degraded(t) {
  const sound = await look(t);
  await sound.go('#/', '.link.live');
  assert.equal(await sound.page.locator('.degraded').count(), 0);
  await sound.end();
  const server = await t.serve(['--exit-on-error=false', '--strict-readiness=false'], [join(t.scratch, 'odd')]);
  const to = { ...t, base: `http://127.0.0.1:${server.port}/ui/` };
  try {
    for (const [theme, viewport, tag] of [['dark', wide, 'dark'], ['light', phone, 'phone-light']]) {
      const v = await look(to, { theme, viewport });
      v.page.expected = /40\d|503/; // without a token there are no captures
      for (const page of ['#/', '#/traces', '#/settings']) {
        await v.go(page, '.degraded li');
        const part = v.page.locator('.degraded li').filter({ has: v.page.getByRole('link', { name: 'labelled', exact: true }) });
        assert.match(await part.textContent(), /model labelled.*for \d+ (s|min).*labels\.txt/s);
      }
      await fine(to, v.page, `degraded-${tag}`);
      await v.end();
    }
  } finally {
    await server.stop();
  }
}
