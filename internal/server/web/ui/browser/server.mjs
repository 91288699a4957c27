// A server with the examples, a proxy before it and load on it.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';

export const token = 'browser-test';

// Examples whose models are in the repository or were made by make examples.
const wanted = ['digits', 'detection', 'image', 'sentiment', 'entities', 'answers', 'form', 'parallel', 'shop'];

/** full is how a server is started that stores everything and lets who has the token change things. */
export const full = ['--model-control-mode=explicit', '--load-model=*', '--dashboard-token', token, '--trace-store-every', '1', '--trace-store-rate', '0',
  '--dashboard-trace-link', 'Jaeger=https://jaeger.example/trace/{trace}'];

/** serve starts a server with the examples and more repositories, and waits until it is ready. */
export async function serve(root, more, flags, dirs = wanted.map((d) => join(root, 'examples/ensembles', d)).filter((d) => existsSync(d))) {
  const args = ['serve', ...[...dirs, ...more].flatMap((d) => ['--model-repository', d]),
    ...['http', 'grpc', 'metrics'].flatMap((p) => [`--${p}-address`, '127.0.0.1', `--${p}-port`, '0']), ...flags];
  const child = spawn(process.env.TUTTI ?? join(root, 'bin/tutti'), args.map(String), { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  const ports = {}; // by service, as the log names them
  let said = '';
  for (const s of [child.stdout, child.stderr]) {
    s.on('data', (b) => {
      said += b;
      for (const [, service, port] of said.matchAll(/"Started (\w+) at 127\.0\.0\.1:(\d+)"/g)) ports[service] = Number(port);
      said = said.slice(-4000);
    });
  }
  const over = new Promise((done) => child.on('exit', done));
  for (let n = 0; ; n++) {
    const ok = ports.HTTPService && ports.GRPCInferenceService && await fetch(`http://127.0.0.1:${ports.HTTPService}/v2/health/ready`).then((r) => r.ok, () => false);
    if (ok) break;
    if (child.exitCode !== null || n > 600) throw new Error(`the server did not become ready:\n${said}`);
    await new Promise((f) => setTimeout(f, 100));
  }
  return { port: ports.HTTPService, grpc: ports.GRPCInferenceService, dirs, pid: child.pid, stop: async () => { child.kill('SIGTERM'); await over; } };
}

/** prefixed passes what is below a path on to a port, without the path. */
export async function prefixed(port, path) {
  const proxy = http.createServer((req, res) => {
    if (!req.url.startsWith(`${path}/`)) { res.writeHead(404).end(); return; }
    const to = http.request({ port, host: '127.0.0.1', method: req.method, path: req.url.slice(path.length), headers: req.headers }, (r) => {
      res.writeHead(r.statusCode, r.headers);
      r.pipe(res);
    });
    to.on('error', () => res.destroy());
    res.on('close', () => to.destroy());
    req.pipe(to);
  });
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  return { port: proxy.address().port, close: () => { proxy.closeAllConnections(); proxy.close(); } };
}

/** broken is a request that fails in a step: it has no image. */
const broken = {
  model: 'digits', headers: { 'Content-Type': 'application/json' },
  body: Buffer.from(JSON.stringify({ id: 'broken', inputs: [{ name: 'IMAGE', datatype: 'BYTES', shape: [1, 1], data: ['no image'] }] })),
};

/** Load sends the examples' own requests. */
export class Load {
  constructor(root, server) {
    this.url = `http://127.0.0.1:${server.port}`;
    this.agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
    this.requests = server.dirs.flatMap((d) => requestsOf(d));
    this.next = 0;
    this.going = false;
    this.workers = [];
  }

  one() {
    const n = this.next++;
    const r = n % 97 === 96 ? broken : this.requests[n % this.requests.length];
    return new Promise((done) => {
      const q = http.request(`${this.url}/v2/models/${r.model}/infer`, { method: 'POST', agent: this.agent, headers: r.headers }, (a) => {
        a.resume();
        a.on('end', done);
        a.on('error', done);
      });
      q.on('error', done);
      q.end(r.body);
    });
  }

  /** send sends so many requests, a few at a time. */
  async send(n, width) {
    const each = async () => { while (n-- > 0) await this.one(); };
    await Promise.all(Array.from({ length: width }, each));
  }

  start(width) {
    this.going = true;
    const each = async () => { while (this.going) { await this.one(); await new Promise((f) => setTimeout(f, 12)); } };
    this.workers = Array.from({ length: width }, each);
  }

  async stop() { this.going = false; await Promise.all(this.workers); this.agent.destroy(); }
}

function requestsOf(dir) {
  const e = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8'));
  return e.requests.map((r) => {
    const inputs = [], parts = [];
    for (const i of r.inputs) {
      if (!i.file) { inputs.push(i); continue; }
      const data = readFileSync(join(dir, i.file)), size = Buffer.alloc(4);
      size.writeUInt32LE(data.length);
      parts.push(size, data);
      inputs.push({ name: i.name, datatype: 'BYTES', shape: i.shape, parameters: { binary_data_size: data.length + 4 } });
    }
    const header = Buffer.from(JSON.stringify({ id: `${r.name}`, inputs }));
    return {
      model: r.ensemble ?? e.ensemble, body: Buffer.concat([header, ...parts]),
      headers: { 'Inference-Header-Content-Length': header.length, 'Content-Type': 'application/octet-stream' },
    };
  });
}

/** writeModel writes a model that has no files. */
function writeModel(dir, model, text) {
  mkdirSync(join(dir, model, '1'), { recursive: true });
  writeFileSync(join(dir, model, 'config.pbtxt'), text);
}

/** writeOdd writes a repository with models that cannot be loaded, and one that answers any number of times. */
export function writeOdd(dir) {
  writeModel(dir, 'labelled', 'backend: "native"\nmax_batch_size: 4\nparameters { key: "step" value { string_value: "top_k" } }\n' +
    'parameters { key: "k" value { string_value: "3" } }\nparameters { key: "labels_file" value { string_value: "labels.txt" } }\n');
  writeModel(dir, 'labelled_ensemble', 'platform: "ensemble"\nmax_batch_size: 4\ninput { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }\noutput { name: "OUT" data_type: TYPE_STRING dims: [ 3 ] }\n' +
    'ensemble_scheduling { step { model_name: "labelled" model_version: -1 input_map { key: "values" value: "IN" } output_map { key: "labels" value: "OUT" } } }\n');
  writeModel(dir, 'same', `backend: "identity"\nmax_batch_size: 8\ninput [ ${tensor('INPUT0')} ]\noutput [ ${tensor('OUTPUT0')} ]\n`);
  mkdirSync(join(dir, 'same', 'golden'));
  const four = (name) => ({ name, datatype: 'FP32', shape: [1, 4], data: [0.25, -2, 3.5, 4] });
  writeFileSync(join(dir, 'same', 'golden', 'four numbers.json'), JSON.stringify({ inputs: [four('INPUT0')], outputs: [four('OUTPUT0')] }));
  writeModel(dir, 'words', 'backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n');
}

const tensor = (name) => `{ name: "${name}" data_type: TYPE_FP32 dims: [ 4 ] }`;

/** writeChain writes a chain of two models that take some time. */
export function writeChain(dir) {
  const input = `input [ ${tensor('INPUT0')} ]\noutput [ ${tensor('OUTPUT0')} ]\n`;
  for (const [model, ms] of [['first', 5], ['second', 20]])
    writeModel(dir, model, `backend: "identity"\nmax_batch_size: 8\n${input}parameters { key: "execute_delay_ms" value { string_value: "${ms}" } }\n`);
  writeModel(dir, 'chain', `platform: "ensemble"\nmax_batch_size: 8\n${input}ensemble_scheduling { step [\n` +
    '{ model_name: "first" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "between" } },\n' +
    '{ model_name: "second" model_version: -1 input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }\n');
}

/** writeBig writes a repository with an ensemble of 200 steps. */
export function writeBig(dir) {
  const write = (model, text) => writeModel(dir, model, text);
  for (let m = 0; m < 10; m++) {
    write(`add_${m}`, `name: "add_${m}"\nbackend: "native"\nmax_batch_size: 8\ninput [ ${tensor('A')}, ${tensor('B')} ]\noutput [ ${tensor('SUM')} ]\n` +
      'parameters { key: "step" value { string_value: "tensor" } }\nparameters { key: "op" value { string_value: "add" } }\n');
  }
  const width = 10, depth = 20;
  const steps = [];
  for (let d = 0; d < depth; d++) for (let w = 0; w < width; w++) {
    const from = (x) => (d === 0 ? 'IN' : `t_${d - 1}_${(w + x) % width}`);
    const to = d === depth - 1 ? `OUT_${w}` : `t_${d}_${w}`;
    steps.push(`{ model_name: "add_${w}" model_version: -1 input_map { key: "A" value: "${from(0)}" } input_map { key: "B" value: "${from(d % 4 === 3 ? 1 : 0)}" } output_map { key: "SUM" value: "${to}" } }`);
  }
  write('big', `name: "big"\nplatform: "ensemble"\nmax_batch_size: 8\ninput [ ${tensor('IN')} ]\n` +
    `output [ ${Array.from({ length: width }, (_, w) => tensor(`OUT_${w}`)).join(', ')} ]\nensemble_scheduling { step [ ${steps.join(',\n')} ] }\n`);
  if (readdirSync(dir).length !== 11) throw new Error('the big ensemble was not written');
}

/** writeMany writes a repository with a thousand ensembles of two steps. */
export function writeMany(dir) {
  const input = `input [ ${tensor('IN')} ]\noutput [ ${tensor('OUT')} ]\n`;
  for (const model of ['left', 'right']) writeModel(dir, model, `backend: "native"\nmax_batch_size: 8\ninput [ ${tensor('A')}, ${tensor('B')} ]\noutput [ ${tensor('SUM')} ]\n` +
    'parameters { key: "step" value { string_value: "tensor" } }\nparameters { key: "op" value { string_value: "add" } }\n');
  const step = (model, from, to) => `{ model_name: "${model}" model_version: -1 input_map { key: "A" value: "${from}" } input_map { key: "B" value: "IN" } output_map { key: "SUM" value: "${to}" } }`;
  for (let n = 0; n < 1000; n++) {
    writeModel(dir, `many_${String(n).padStart(4, '0')}`, `platform: "ensemble"\nmax_batch_size: 8\n${input}ensemble_scheduling { step [ ${step('left', 'IN', 'between')}, ${step('right', 'between', 'OUT')} ] }\n`);
  }
}
