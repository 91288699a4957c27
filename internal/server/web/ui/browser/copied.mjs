// What the form copies is run in a shell, as a person would.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fine, look } from './look.mjs';
import { token } from './server.mjs';

const run = promisify(execFile);

/** execute runs a copied request in a folder and returns what it prints. */
async function execute(t, server, form, text, cwd) {
  const env = { ...process.env, PATH: `${join(t.root, 'bin')}:${process.env.PATH}`, TUTTI_TOKEN: token, TUTTI_GRPC: `grpc://127.0.0.1:${server.grpc}` };
  const [command, args] = form === 'Python' ? ['python3', ['-c', text]] : ['bash', ['-c', text]];
  const { stdout } = await run(command, args, { cwd, env }).catch((e) => { throw new Error(`${form} failed: ${e.message}\n${e.stdout}\n${text}`); });
  return stdout;
}

/** each calls f with every form of the request that the page shows, and with what the form prints. */
async function each(t, server, page, cwd, f) {
  await page.getByText('Copy as curl, Python or tutti infer').click();
  for (const form of ['curl', 'Python', 'tutti infer']) {
    await page.getByRole('button', { name: form, exact: true }).click();
    const text = page.locator(`pre[aria-label="The request as ${form}"]`);
    await text.waitFor();
    await f(form, () => text.textContent().then((s) => execute(t, server, form, s, cwd)), text);
  }
}

/** copied looks at the requests that Try it copies: with a file, with numbers, with texts that shells would change, and of decoupled models. */
export async function copied(t) {
  const to = { ...t, base: `http://127.0.0.1:${t.server.port}/ui/` };
  const digits = join(t.root, 'examples/ensembles/digits');
  const v = await look(to);
  await v.go('#/try/digits', 'input[type=file]');
  await v.page.setInputFiles('input[type=file]', join(digits, 'seven.png'));
  await each(t, t.server, v.page, digits, async (form, out) => assert.match(await out(), /seven/, form));
  await fine(t, v.page, 'try-copy-dark');
  await v.go('#/try/form', '.input textarea');
  await v.page.getByRole('textbox', { name: 'Text' }).fill('{"name": "O\'Hara \\"$HOME\\" `x`"}');
  const said = [];
  await each(t, t.server, v.page, digits, async (form, out) => said.push(await out().catch((e) => e.message)));
  for (const s of said) assert.doesNotMatch(s, /syntax error|unexpected EOF|SyntaxError/);
  await v.end();
  await odd(t);
  await refused(t);
}

/** refused looks at what the page says when the server wants a header that it was not given, or another value. */
async function refused(t) {
  const server = await t.serve(['--http-restricted-api', 'inference:secret=open', '--exit-on-error=false', '--strict-readiness=false'], [join(t.scratch, 'odd')]);
  try {
    const v = await look({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });
    v.page.expected = /403|404|503/; // also: such a request has no trace, and without a token there are no captures
    for (const value of ['', 'secret: wrong', 'secret: open']) {
      await v.go('#/settings', 'fieldset, .bad');
      await v.page.getByLabel('Header of restricted interfaces').fill(value);
      await v.page.getByRole('button', { name: 'Use', exact: true }).click();
      await v.go('#/try/same', 'text=Example');
      await v.page.waitForFunction(() => document.querySelector('.input textarea')?.value !== '0');
      await v.page.getByRole('button', { name: 'Send', exact: true }).click();
      if (value === 'secret: open') await v.page.waitForSelector('.output');
      else await v.page.waitForSelector('text=The server wants other credentials');
    }
    await v.end();
  } finally {
    await server.stop();
  }
}

async function odd(t) {
  const server = await t.serve(['--exit-on-error=false', '--strict-readiness=false', '--dashboard-token', token], [join(t.scratch, 'odd')]);
  try {
    const v = await look({ ...t, base: `http://127.0.0.1:${server.port}/ui/` });
    await v.go('#/settings', 'fieldset');
    await v.page.getByLabel('Token').fill(token);
    await v.page.getByRole('button', { name: 'Use', exact: true }).click();
    await v.page.waitForSelector('text=You may change things');
    await v.go('#/try/same', 'text=Example');
    await v.page.waitForFunction(() => document.querySelector('.input textarea')?.value === '0.25 -2 3.5 4');
    await each(t, server, v.page, t.scratch, async (form, out, text) => {
      const said = (await out()).replace(/\s+/g, ' ');
      assert.match(said, /0\.25, ?-2(\.0)?, ?3\.5, ?4/, `${form} printed ${said}`);
      assert.ok(!(await text.textContent()).includes(token), `${form} has the token`);
    });
    await v.page.getByRole('button', { name: 'Send', exact: true }).click();
    await v.page.waitForSelector('.output');
    await fine(t, v.page, 'try-example-dark');
    await v.page.getByLabel('Example').selectOption('');
    await v.page.waitForFunction(() => document.querySelector('.input textarea')?.value === '0');
    await v.go('#/try/words', '.input textarea');
    const input = (name) => v.page.getByRole('group', { name: new RegExp(`^${name} `) });
    await input('IN').getByLabel(/Numbers/).fill('4 5 6');
    await input('IN').getByLabel('Shape', { exact: true }).fill('3');
    await input('DELAY').getByLabel('Shape', { exact: true }).fill('3');
    await each(t, server, v.page, t.scratch, async (form, out) => assert.match(await out(), /4[^]*5[^]*6/, form));
    await v.end();
  } finally {
    await server.stop();
  }
}
