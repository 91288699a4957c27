"""Tries the server on this machine's GPU and prints one table.

    python3 kit.py [--quick] [--out FILE] [--limit SECONDS]

It needs Python 3.9 with torch, and g++ for PyTorch's shim; without them the other parts run. The backends and the figures use the first
GPU of CUDA_VISIBLE_DEVICES only, the contract suite uses all. Further archives of the kit are unpacked beside this file: their
runtimes are found in runtime/. Sections:

    device    the contract suite of devices and the tests of the kernels, on the real driver
    backends  each backend on the GPU against the framework's own results, or the CPU's
    copies    what was copied between host and device, by tensor
    figures   tutti-bench -only gpu, see docs/performance.md

A part that cannot run is a row with the reason, and the others go on. Where the server finds no GPU nothing is measured. The exit status is
1 if anything failed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

# Requests go to this machine only, whatever proxy the environment names.
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))

HERE = pathlib.Path(__file__).resolve().parent
BIN = HERE / "bin"


class Table:
    """The rows of the result: section, what, result, detail."""

    def __init__(self):
        self.rows, self.failed = [], False

    def add(self, section, what, ok, detail=""):
        word = {True: "ok", False: "FAILED", None: "skipped"}[ok]
        self.failed = self.failed or ok is False
        self.rows.append((section, what, word, " ".join(str(detail).split())[:300]))
        print("%-9s %-48s %-8s %s" % self.rows[-1], flush=True)

    def text(self):
        lines = ["| section | what | result | detail |", "|---|---|---|---|"]
        return "\n".join(lines + ["| %s | %s | %s | %s |" % r for r in self.rows]) + "\n"


@contextlib.contextmanager
def guarded(table, section, what):
    """Turns an exception into a failed row."""
    try:
        yield
    except Exception as e:  # every failure is a row
        table.add(section, what, False, "%s: %s" % (type(e).__name__, e))


def call(arguments, limit, **options):
    """Runs a program and returns what it printed. Its failure is an error with the end of its messages."""
    run = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=limit, cwd=HERE, **options)
    if run.returncode != 0:
        raise RuntimeError("%s ended with %d: %s" % (pathlib.Path(str(arguments[0])).name, run.returncode, (run.stderr or run.stdout)[-250:]))
    return run.stdout


class Server:
    """A server over a folder of models, on loopback ports that the kernel chooses and the server's log names."""

    def __init__(self, repository, *options, environment=None):
        self.port = self.metrics_port = None
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(BIN / "tutti"), "serve", "--model-repository=%s" % repository, "--http-address=127.0.0.1", "--http-port=0",
             "--allow-grpc=false", "--log-info=true", "--log-file=", "--metrics-address=127.0.0.1", "--metrics-port=0", *options],
            stdout=self.log, stderr=subprocess.STDOUT, cwd=HERE, env=dict(os.environ, **(environment or {})))
        end = time.monotonic() + 180
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                text = self.output()
                self.close()
                raise RuntimeError("the server is not ready: " + text[-1500:])
            time.sleep(0.05)

    def ready(self):
        ports = dict(re.findall(r'"Started (HTTPService|Metrics Service) at 127.0.0.1:(\d+)"', self.output()))
        if len(ports) < 2:
            return False
        self.port, self.metrics_port = int(ports["HTTPService"]), int(ports["Metrics Service"])
        try:
            return self.get("/v2/health/ready", self.port) is not None
        except (OSError, urllib.error.URLError):
            return False

    def get(self, path, port=None):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port or self.port, path), timeout=60) as r:
            return r.read().decode()

    def infer(self, model, inputs):
        """Sends tensors given as {name: (datatype, shape, list)}, and returns {name: (shape, list)}."""
        body = {"inputs": [{"name": n, "datatype": d, "shape": s, "data": v} for n, (d, s, v) in inputs.items()]}
        request = urllib.request.Request("http://127.0.0.1:%d/v2/models/%s/infer" % (self.port, model), json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as r:
                answer = json.load(r)
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode()) from None
        return {o["name"]: (o["shape"], o["data"]) for o in answer["outputs"]}

    def copies(self):
        """Returns {(model, tensor, direction): count} of /metrics."""
        found = {}
        for line in self.get("/metrics", self.metrics_port).splitlines():
            if line.startswith("ensemble_copies_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                key = labels["model"], labels["tensor"], labels["direction"]
                found[key] = found.get(key, 0) + int(float(line.rsplit(" ", 1)[1]))
        return found

    def output(self):
        log = self.log.fileno()  # the server writes at the offset that a seek would change
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def write(root, files):
    for path, content in files.items():
        to = pathlib.Path(root) / path
        to.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            to.write_bytes(content)
        else:
            to.write_text(content)


def close_to(got, want, tolerance):
    """Returns the largest difference relative to the largest value, and whether that is within tolerance."""
    if len(got) != len(want):
        return float("inf"), False
    scale = max([abs(v) for v in want] + [1e-9])
    worst = max([abs(a - b) for a, b in zip(got, want)] + [0]) / scale
    return worst, worst <= tolerance


def device(table, args):
    """Runs the test programs of devices and kernels on the real driver."""
    for program in sorted((HERE / "tests").glob("*.test")):
        with guarded(table, "device", program.stem):
            run = subprocess.run([str(program), "-test.v", "-test.short", "-test.timeout=300s"], cwd=HERE / "tests", capture_output=True, text=True, timeout=330,
                                 env=dict(os.environ, TUTTI_TEST_CUDA_DRIVER=args.driver))
            count = {w: len(re.findall(r"^\s*--- %s: " % w, run.stdout, re.M)) for w in ("PASS", "FAIL", "SKIP")}
            names = ", ".join(re.findall(r"^\s*--- FAIL: (\S+)", run.stdout, re.M)[:5])
            detail = "%(PASS)d passed, %(FAIL)d failed, %(SKIP)d skipped" % count
            table.add("device", program.stem, run.returncode == 0 and count["PASS"] > 0, detail + (": " + names if names else "") +
                      ("" if run.returncode == 0 or names else run.stderr[-200:]))


def pytorch_home():
    """Links the machine's PyTorch into runtime/, where its shim is compiled without changing the installation."""
    source = pathlib.Path(call([sys.executable, "-c", "import torch; print(torch.__file__)"], 300).split()[-1]).resolve().parent
    home = HERE / "runtime" / "pytorch-local" / "torch"
    shutil.rmtree(home.parent, ignore_errors=True)
    (home / "lib").mkdir(parents=True)
    for f in (source / "lib").iterdir():
        (home / "lib" / f.name).symlink_to(f)
    (home / "include").symlink_to(source / "include")
    for name in ("nvidia", "triton", "torch.libs"):
        if (source.parent / name).exists():
            (home.parent / name).symlink_to(source.parent / name)
    library = home / "lib" / "libtorch_cpu.so"
    if shutil.which("g++") is None and "CXX" not in os.environ:
        raise RuntimeError("there is no g++ to compile the shim with")
    call([BIN / "tutti", "runtime", "prepare", "pytorch", library], 600)
    return library


def port(kind, name, dtype, dims):
    return '%s { name: "%s" data_type: TYPE_%s dims: %s }\n' % (kind, name, dtype, dims)


def step(model, inputs, outputs):
    pair = lambda kind, k, v: ' %s { key: "%s" value: "%s" }' % (kind, k, v)
    return '  step { model_name: "%s" model_version: -1%s%s }\n' % (
        model, "".join(pair("input_map", k, v) for k, v in inputs.items()), "".join(pair("output_map", k, v) for k, v in outputs.items()))


def pytorch(table, args, library):
    """Serves a TorchScript chain and compares it with torch on the same device."""
    with guarded(table, "backends", "pytorch against torch"), tempfile.TemporaryDirectory() as root:
        # torch runs in a process of its own: where a GPU takes one process at a time, this one must not have it.
        at = "cuda" if args.kind == "KIND_GPU" else "cpu"
        x, want = json.loads(call([sys.executable, HERE / "models.py", pathlib.Path(root) / "files", at], 600).splitlines()[-1])
        parts = {"head": ("[ 3, 56, 56 ]", "[ 64, 56, 56 ]"), "body": ("[ 64, 56, 56 ]", "[ 64, 56, 56 ]"), "tail": ("[ 64, 56, 56 ]", "[ 10 ]")}
        repository = pathlib.Path(root) / "models"
        for name, (a, b) in parts.items():
            write(repository, {name + "/config.pbtxt": 'platform: "pytorch_libtorch" max_batch_size: 8\ninstance_group { kind: %s count: 1 }\n' % args.kind +
                               port("input", "x", "FP32", a) + port("output", "y", "FP32", b),
                               name + "/1/model.pt": (pathlib.Path(root) / "files" / (name + ".pt")).read_bytes()})
        write(repository, {"chain/config.pbtxt": 'name: "chain" platform: "ensemble" max_batch_size: 8\n' + port("input", "x", "FP32", "[ 3, 56, 56 ]") +
                           port("output", "y", "FP32", "[ 10 ]") + "ensemble_scheduling {\n" + step("head", {"x": "x"}, {"y": "h"}) +
                           step("body", {"x": "h"}, {"y": "b"}) + step("tail", {"x": "b"}, {"y": "y"}) + "}\n" +
                           ('parameters { key: "require_resident" value { string_value: "true" } }\n' if args.kind == "KIND_GPU" else ""),
                           "chain/1/keep": ""})
        with Server(repository, "--backend-config=pytorch,library-path=%s" % library, *args.options) as server:
            got = server.infer("chain", {"x": ("FP32", [2, 3, 56, 56], x)})["y"][1]
            worst, ok = close_to(got, want, 1e-2)
            table.add("backends", "pytorch against torch", ok, "largest relative difference %.2g" % worst)
            copies(table, server, "chain of three TorchScript models", {("head", "x"), ("chain", "y")}, args)


PYTHON_MODEL = '''
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            place = 0 if x.is_cpu() else 1
            y = from_dlpack(x.to_dlpack()) * 2 + place
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", to_dlpack(y))]))
        return answers
'''


def python(table, args):
    """Serves two Python models that compute with torch on the GPU, without host copies in between."""
    with guarded(table, "backends", "python with torch on the device"), tempfile.TemporaryDirectory() as repository:
        head = 'backend: "python" max_batch_size: 8\ninstance_group { kind: %s }\n' % args.kind
        head += 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'
        head += port("input", "x", "FP32", "[ 4 ]") + port("output", "y", "FP32", "[ 4 ]")
        for name in ("one", "two"):
            write(repository, {name + "/config.pbtxt": head, name + "/1/model.py": PYTHON_MODEL})
        write(repository, {"both/config.pbtxt": 'name: "both" platform: "ensemble" max_batch_size: 8\n' + port("input", "x", "FP32", "[ 4 ]") +
                           port("output", "y", "FP32", "[ 4 ]") + "ensemble_scheduling {\n" + step("one", {"x": "x"}, {"y": "h"}) +
                           step("two", {"x": "h"}, {"y": "y"}) + "}\n", "both/1/keep": ""})
        place = 1 if args.kind == "KIND_GPU" else 0
        with Server(repository, *args.options, environment={"TUTTI_PYTHON": sys.executable}) as server:
            got = server.infer("both", {"x": ("FP32", [1, 4], [1, 2, 3, 4])})["y"][1]
            want = [(v * 2 + place) * 2 + place for v in (1, 2, 3, 4)]
            table.add("backends", "python with torch on the device", got == want, "%s, expected %s" % (got, want))
            copies(table, server, "two Python models", {("one", "x"), ("both", "y")}, args)


def native(table, args):
    """Serves native steps on the GPU and on the CPU, and compares the results bit for bit."""
    with guarded(table, "backends", "native steps, GPU against CPU"), tempfile.TemporaryDirectory() as root:
        sample = [((7 * i) % 251) for i in range(64 * 48 * 3)]
        answers = []
        for kind in (args.kind, "KIND_CPU"):
            repository = pathlib.Path(root) / kind
            write(repository, {
                "resize/config.pbtxt": 'backend: "native"\ninstance_group { kind: %s }\n' % kind +
                "".join('parameters { key: "%s" value { string_value: "%s" } }\n' % p for p in (("step", "resize"), ("width", "32"), ("height", "24"))),
                "resize/1/keep": ""})
            with Server(repository, *args.options) as server:
                answers.append(server.infer("resize", {"IMAGE": ("UINT8", [48, 64, 3], sample)}))
        same = answers[0] == answers[1]
        table.add("backends", "native steps, GPU against CPU", same, "resize and normalise to NCHW, " + ("bit for bit" if same else "different"))


def onnx(table, args):
    """Serves an ONNX model on the GPU if the archive with ONNX Runtime is unpacked, and compares with the CPU."""
    found = sorted((HERE / "runtime").glob("onnxruntime-gpu*/**/libonnxruntime.so*"))
    if not found:
        table.add("backends", "onnxruntime, GPU against CPU", None, "unpack the archive with onnxruntime-gpu beside kit.py")
        return
    with guarded(table, "backends", "onnxruntime, GPU against CPU"), tempfile.TemporaryDirectory() as root:
        model = (HERE / "examples" / "digits" / "digits_cnn" / "1" / "model.onnx")
        source = model if model.exists() else sorted((HERE / "examples").glob("*/*/1/model.onnx"))[0]
        config = (source.parent.parent / "config.pbtxt").read_text()
        answers = []
        for kind in (args.kind, "KIND_CPU"):
            repository = pathlib.Path(root) / kind
            text = re.sub(r"kind: KIND_\w+", "kind: " + kind, config)
            write(repository, {source.parent.parent.name + "/config.pbtxt": text, source.parent.parent.name + "/1/model.onnx": source.read_bytes()})
            with Server(repository, "--backend-config=onnxruntime,library-path=%s" % found[0], *args.options) as server:
                meta = json.loads(server.get("/v2/models/" + source.parent.parent.name))
                inputs = {}
                for i in meta["inputs"]:
                    shape = [1 if d < 0 else d for d in i["shape"]]
                    n = 1
                    for d in shape:
                        n *= d
                    inputs[i["name"]] = (i["datatype"], shape, [((k * 37) % 100) / 100 for k in range(n)])
                answers.append(server.infer(source.parent.parent.name, inputs))
        worst = max(close_to(answers[0][n][1], answers[1][n][1], 1e-2)[0] for n in answers[1])
        table.add("backends", "onnxruntime, GPU against CPU", worst <= 1e-2, "largest relative difference %.2g" % worst)


def copies(table, server, what, ends, args):
    """Adds the copies of a server: to and from the host there must be only those of ends, (model, tensor) of the request and the response."""
    found = server.copies()
    inner = [k for k in found if k[2] in ("host_to_device", "device_to_host") and k[:2] not in ends]
    text = ", ".join("%s of %s: %s %d" % (k[1], k[0], k[2], n) for k, n in sorted(found.items())) or "none"
    table.add("copies", what, bool(found) and not inner if args.kind == "KIND_GPU" else None, text)


def figures(table, args, library):
    """Runs the measurements. Each prints its row as soon as it is done, so that those before a limit of time are kept."""
    with guarded(table, "figures", "tutti-bench"):
        call([sys.executable, HERE / "models.py", HERE / "gpu-models"], 600)
        options = " ".join(["--backend-config=pytorch,library-path=%s" % library, *args.options])
        command = [str(BIN / "tutti-bench"), "-only", "gpu", "-tutti", str(BIN / "tutti"), "-gpu-models", str(HERE / "gpu-models"), "-gpu-kind", args.kind,
                   "-gpu-args", options, "-rounds", "1" if args.quick else "3", "-gpu-time", "1s" if args.quick else "3s"]
        why = ""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            try:
                code = subprocess.run(command, cwd=HERE, stdout=out, stderr=err, timeout=args.limit).returncode
            except subprocess.TimeoutExpired:
                code, why = 1, "not measured in %d s: raise --limit" % args.limit
            out.seek(0)
            err.seek(0)
            lines, messages = out.read().splitlines(), err.read()
        for line in lines:
            what, _, rest = line.partition("  ")
            reached = True if "reached" in rest else False if "missed" in rest or "not measured" in rest else None
            limit = re.search(r"\s([\d.]+).*\((at least|at most) ([\d.]+)", rest)
            if reached is None and limit:
                value, bound = float(limit.group(1)), float(limit.group(3))
                reached = value >= bound if limit.group(2) == "at least" else value <= bound
            table.add("figures", what, reached if args.kind == "KIND_GPU" else None, rest)
        if why or code != 0 and not lines:
            table.add("figures", "tutti-bench", False, why or messages[-300:])


def machine(table, args):
    """Adds what the machine has, and returns whether there is a torch, and a GPU that the server uses if one is asked for."""
    text = ('import json, torch; g = torch.cuda.is_available(); print(json.dumps([torch.cuda.get_device_name(0) if g else "no GPU for torch", g, '
            'torch.cuda.device_count(), "torch %s, CUDA %s" % (torch.__version__, torch.version.cuda)]))')
    found, seen = None, False
    with guarded(table, "machine", "torch"):
        probe = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, cwd=HERE)
        if probe.returncode == 0:
            found = json.loads(probe.stdout.splitlines()[-1])
            name, gpu, count, versions = found
            table.add("machine", name, gpu if args.kind == "KIND_GPU" else None, "%s, %d GPUs, Python %s" % (versions, count, sys.version.split()[0]))
        else:
            why = (probe.stderr.strip().splitlines() or ["it ended with %d" % probe.returncode])[-1]
            table.add("machine", "torch", False, "%s cannot use torch: %s; install it, or run kit.py with the Python that has it" % (sys.executable, why))
    with guarded(table, "machine", "tutti doctor"):
        text = subprocess.run([str(BIN / "tutti"), "doctor"], capture_output=True, text=True, cwd=HERE, timeout=120,
                              env=dict(os.environ, TUTTI_CUDA_DRIVER=args.driver)).stdout
        gpus = [line for line in text.splitlines() if re.match(r"\s*\S+\s+gpu\b", line)]
        seen = any(" ok " in " " + line for line in gpus)
        table.add("machine", "tutti doctor", seen if args.kind == "KIND_GPU" else None, " ".join(gpus))
    return found is not None, seen or args.kind != "KIND_GPU"


def first_gpu():
    """Shows the first GPU only to the programs that are started from now on. A MIG instance is named as it is."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    os.environ["CUDA_VISIBLE_DEVICES"] = shown


def main():
    parser = argparse.ArgumentParser(description="Tries the server on this machine's GPU and prints one table.")
    parser.add_argument("--quick", action="store_true", help="one round of each measurement")
    parser.add_argument("--out", help="also write the table to this file, in Markdown")
    parser.add_argument("--limit", type=int, default=1200, help="seconds for all measurements together")
    parser.add_argument("--driver", default="libcuda.so.1", help="library of the CUDA driver")
    parser.add_argument("--kind", default="KIND_GPU", choices=("KIND_GPU", "KIND_CPU"), help="KIND_CPU tries the kit itself on a machine without a GPU")
    args = parser.parse_args()
    args.options = [] if args.driver == "libcuda.so.1" else ["--cuda-driver=" + args.driver]
    table = Table()
    try:
        run(table, args)
    finally:  # also when it is interrupted
        print("\n" + table.text())
        if args.out:
            pathlib.Path(args.out).write_text(table.text())
    sys.exit(1 if table.failed else 0)


def run(table, args):
    torch, gpu = machine(table, args)
    if not gpu:
        for section in ("device", "backends", "copies", "figures"):
            table.add(section, "all", None, "not measured: the server uses no GPU of this machine, see the row of tutti doctor")
        return
    device(table, args)
    first_gpu()
    native(table, args)
    onnx(table, args)
    if not torch:
        for section, what in (("backends", "python with torch on the device"), ("backends", "pytorch against torch"), ("figures", "tutti-bench")):
            table.add(section, what, None, "not measured: there is no torch for %s" % sys.executable)
        return
    python(table, args)
    library = None
    with guarded(table, "backends", "PyTorch's shim"):
        library = pytorch_home()
    if library is None:
        for section, what in (("backends", "pytorch against torch"), ("figures", "tutti-bench")):
            table.add(section, what, None, "not measured: PyTorch's shim is missing")
        return
    pytorch(table, args, library)
    figures(table, args, library)


if __name__ == "__main__":
    main()
