"""A published model repository: the source of its files, the necessary changes, and its requests."""

import dataclasses
import importlib.util
import os
import pathlib
import shutil

import numpy as np
import tritonclient.grpc as grpc_module
import tritonclient.http as http_module

from serving import HERE, LIMIT, Server

OWN = HERE / "repositories"
# Where checkouts of the published repositories are, which nothing here fetches.
CHECKOUTS = {"tutorials": "TRITON_TUTORIALS", "python_backend": "TRITON_PYTHON_BACKEND", "client": "TRITON_CLIENT", "server": "TRITON_SERVER",
             "dali_backend": "TRITON_DALI_BACKEND", "fil_backend": "TRITON_FIL_BACKEND"}  # fmt: skip


def checkout(source):
    """The folder of a checkout, or None."""
    path = os.environ.get(CHECKOUTS[source], "")
    return pathlib.Path(path).resolve() if path else None


@dataclasses.dataclass
class Check:
    """One request or client, and whether the response is the expected one."""

    what: str
    ok: bool
    detail: str = ""

    def __post_init__(self):
        self.ok = bool(self.ok)  # comparisons of arrays give numpy's


class Repository:
    """The base class; each subclass is one repository.

    1. place() lays the files out, 2. weights() makes what is not published, 3. a server starts, 4. checks() sends requests
    and scripts() names the published clients that run, where there is a checkout.
    """

    source = "tutorials"  # a key of CHECKOUTS
    published = ""  # the folder in the checkout
    models = "model_repository"  # the repository below it
    own = ""  # the folder in repositories
    imports = ()  # packages of its models and clients that have stand-ins
    always = ()  # stand-ins that are used though the package is there: it would download
    flags = ()
    runtimes = {}  # the variable of a backend's library, where it is not the usual one
    refusal = ""  # what the reason of a model says that cannot be served here
    page = ""  # why there is nothing to serve, of a page without a repository

    def __init__(self, scratch=None):
        self.differs = []
        self.scratch = scratch  # a folder for what clients read and write

    @property
    def name(self):
        return f"{self.source}/{self.published}"

    def root(self):
        """The published folder, or None where there is no checkout."""
        found = checkout(self.source)
        return found / self.published if found else None

    def standins(self):
        missing = [n for n in self.imports if n in self.always or importlib.util.find_spec(n) is None]
        return missing

    def place(self, to):
        """Copies the repository: the published files as they are, or our own with the same values."""
        root = self.root()
        shutil.copytree(root / self.models if root else OWN / self.own, to, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        if not root:
            self.differs.append("files of our own, with the published values")

    def weights(self, to):
        """Makes the files that the published repository does not contain."""

    def change(self, path, before, after, why):
        """Replaces text in a file, and says so."""
        text = path.read_text()
        assert before in text, f"{path} has no {before}"
        path.write_text(text.replace(before, after))
        self.differs.append(why)

    def checks(self, server):
        """Yields a Check for each request."""
        return ()

    def scripts(self, root):
        """Yields a Script for each published client."""
        return ()

    def prepared(self, to):
        """Lays everything out, and returns the flags of the server."""
        self.place(to)
        self.weights(to)
        flags = list(self.flags)
        if any(word in p.read_text() for p in to.glob("*/config.pbtxt") for word in ("KIND_GPU", "gpu_execution_accelerator")):
            flags.append("--gpu-fallback=cpu")
            self.differs.append("GPU instances on the CPU")
        if self.standins():
            self.differs.append("stand-ins for " + ", ".join(self.standins()))
        return flags


class Report:
    """The result of a repository."""

    def __init__(self, repository):
        self.name, self.differs = repository.name, repository.differs
        self.served, self.all, self.checks, self.reasons = 0, 0, [], {}
        self.refused = ""  # the reason, where it has to be refused

    def failures(self):
        found = [f"{c.what}: {c.detail}" for c in self.checks if not c.ok]
        if not self.refused:
            found += [f"model {name} is unavailable: {reason}" for name, reason in self.reasons.items()]
        return found


def examine(repository, folder):
    """Serves a repository and runs all its checks."""
    if repository.page:
        repository.differs.append("no repository: " + repository.page)
        return Report(repository)
    flags = repository.prepared(folder)
    report = Report(repository)
    server = Server(folder, flags, repository.standins(), repository.runtimes)
    try:
        client = http_module.InferenceServerClient(server.http, network_timeout=LIMIT, connection_timeout=LIMIT)
        index = client.get_model_repository_index()
        report.all = len({m["name"] for m in index})
        report.served = sum(m.get("state") == "READY" for m in index)
        report.reasons = {m["name"]: m["reason"] for m in index if m.get("state") != "READY" and m.get("reason")}
        client.close()
        if repository.refusal:
            refuse(repository, report)
        else:
            report.checks += collect(repository.checks(server))
            report.checks += published(repository, server)
    finally:
        status = server.stop()
    if status != 0:
        report.checks.append(Check("the server's end", False, f"status {status}:\n" + "".join(server.log[-20:])))
    return report


def refuse(repository, report):
    """Expects that the models are refused for the reason that is true."""
    found = [r for r in report.reasons.values() if repository.refusal in r]
    report.refused = found[0] if found else ""
    report.checks.append(Check("refusal", bool(found), f"no reason says '{repository.refusal}': {report.reasons}"))


def collect(checks):
    """Runs a generator of checks; an exception is a failed check."""
    done = []
    try:
        for check in checks:
            done.append(check)
    except Exception as e:  # whatever a client raises
        done.append(Check("request", False, f"{type(e).__name__}: {e}"))
    return done


@dataclasses.dataclass
class Script:
    """A published client, which runs unchanged: its arguments, and the checks of its run."""

    path: pathlib.Path
    args: tuple = ()
    printed: tuple = ()  # each is in what it prints
    logged: str = ""  # this is in the server's log afterwards
    fails: bool = False  # it has to end with an error
    cwd: pathlib.Path | None = None
    until: str | None = None  # an expression; the script goes on for ever and is ended once it has printed this


def published(repository, server):
    """Runs the published clients."""
    root = repository.root()
    for s in repository.scripts(root) if root else ():
        status, text = server.script(s.path, s.args, s.cwd, s.until)
        missing = [e for e in s.printed if e not in text]
        if s.logged and not server.logs(s.logged):
            missing.append(f"the server's log with {s.logged}")
        tail = "\n".join(text.splitlines()[-12:])
        ok = (status != 0) == s.fails and not missing
        yield Check(f"{s.path.name} {' '.join(s.args)}".strip(), ok, f"status {status}, missing: {missing} in\n{tail}")


def infer(server, model, inputs, outputs=(), grpc=False, **options):
    """Sends arrays by name, and returns the requested output arrays, or all."""
    module = grpc_module if grpc else http_module
    limits = {} if grpc else {"network_timeout": LIMIT, "connection_timeout": LIMIT}
    with module.InferenceServerClient(server.grpc if grpc else server.http, **limits) as client:
        sent = []
        for name, array in inputs.items():
            array = np.asarray(array)
            sent.append(module.InferInput(name, array.shape, dtype_of(array)))
            sent[-1].set_data_from_numpy(array)
        wanted = [module.InferRequestedOutput(o) for o in outputs] or None
        result = client.infer(model, sent, outputs=wanted, **options)
        found = result.get_response()
        names = [o.name for o in found.outputs] if grpc else [o["name"] for o in found["outputs"]]
        return {n: result.as_numpy(n) for n in names}


def dtype_of(array):
    from tritonclient.utils import np_to_triton_dtype

    return np_to_triton_dtype(array.dtype)


def equal(what, got, want, atol=0.0, rtol=1e-4):
    """Compares an array with the expected one, shape and values: sums of thousands of pixels differ by their order."""
    want = np.asarray(want)
    if got is None:
        return Check(what, False, "there is no such output")
    if got.shape != want.shape:
        return Check(what, False, f"shape {got.shape}, expected {want.shape}")
    if got.dtype == np.object_ or want.dtype.kind in "OUS":
        text = [v.decode() if isinstance(v, bytes) else v for v in got.ravel().tolist()]
        same = text == [v.decode() if isinstance(v, bytes) else v for v in want.ravel().tolist()]
        return Check(what, same, f"{text[:8]}, expected {want.ravel().tolist()[:8]}")
    return Check(what, bool(np.allclose(got, want, rtol=rtol, atol=atol)), f"{got.ravel()[:6]}, expected {want.ravel()[:6]}")


def refused(what, call, *texts):
    """Expects that a request fails, and that the error has some words."""
    try:
        call()
    except Exception as e:  # of either client
        return Check(what, all(t in str(e) for t in texts), f"{e}, expected {texts}")
    return Check(what, False, "the request succeeded")
