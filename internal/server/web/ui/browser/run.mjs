// Looks at every page of the dashboard in a real browser, in front of a server under load
// and behind a path prefix. Screenshots go to bin/ui of the repository.
//
//   node browser/run.mjs            all checks
//   node browser/run.mjs --picture  draws docs/dashboard.png as well
//
// TUTTI_TEST_TEMPORAL names tutti-temporal, which is bin/tutti-temporal otherwise.
// CHROMIUM names the browser; without one nothing is tested, and that is said.
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';
import { checks } from './checks.mjs';
import { full, Load, prefixed, serve, writeBig, writeMany, writeOdd } from './server.mjs';

const root = resolve(import.meta.dirname, '../../../../..');
const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => existsSync(p));
if (!executablePath) {
  console.log('skipped: no browser was found; apt-get install chromium, then make test-ui');
  process.exit(0);
}
const temporal = process.env.TUTTI_TEST_TEMPORAL ?? join(root, 'bin/tutti-temporal');
const screenshots = join(root, 'bin/ui');
mkdirSync(screenshots, { recursive: true });
const scratch = mkdtempSync(join(tmpdir(), 'tutti-ui-'));
writeBig(join(scratch, 'big'));
writeOdd(join(scratch, 'odd'));
writeMany(join(scratch, 'many'));
mkdirSync(join(scratch, 'empty'));

const server = await serve(root, [join(scratch, 'big')], full);
const proxy = await prefixed(server.port, '/some/where');
const load = new Load(root, server);
await load.send(6000, 8);
load.start(4);

const only = process.argv.slice(2).filter((a) => !a.startsWith('-')); // names of checks, for working on one
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
let passed = 0, failed = 0;
try {
  for (const [name, check] of Object.entries(checks).filter(([n]) => !only.length || only.includes(n))) {
    const began = performance.now();
    try {
      await check({ browser, screenshots, load, serve: (flags, dirs) => serve(root, [], flags, dirs), scratch, temporal, base: `http://127.0.0.1:${proxy.port}/some/where/ui/`, server, root, picture: process.argv.includes('--picture') });
      passed++;
      console.log(`ok    ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
    } catch (e) {
      failed++;
      console.log(`FAIL  ${name}\n${e.stack ?? e}`);
    }
  }
} finally {
  await load.stop();
  await browser.close();
  proxy.close();
  await server.stop();
  rmSync(scratch, { recursive: true, force: true });
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
