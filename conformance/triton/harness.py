"""Starts a server, runs one of Triton's unittest files against it, and keeps the results."""

import ast
import contextlib
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable

from models import Checkout, Repo
from serving import Server, get

HERE = pathlib.Path(__file__).resolve().parent
ERROR_LINE = "^E[0-9][0-9][0-9][0-9].*"  # how a line of tritonserver's log begins


def link_libraries(libraries, repository):
    """Puts the library of each model's backend into the model's folder, where it replaces a backend that the server has."""
    for config in repository.glob("*/config.pbtxt"):
        text = config.read_text()
        found = re.search(r'^\s*backend:\s*"(\w+)"', text, re.MULTILINE)
        name = found[1] if found else "onnxruntime" if '"onnxruntime_onnx"' in text else ""
        link = config.parent / f"libtriton_{name}.so"
        if (libraries / name / link.name).is_file() and not link.exists():
            link.symlink_to(libraries / name / link.name)


@dataclasses.dataclass
class Tests:
    """Tests of one file that run against one start of the server."""

    folder: str  # in qa/
    file: str
    names: list | None = None  # CLASS or CLASS.METHOD; all without it
    variant: str = ""  # tells several runs of one test apart
    flags: list = dataclasses.field(default_factory=list)
    env: dict = dataclasses.field(default_factory=dict)  # the server's
    client_env: dict = dataclasses.field(default_factory=dict)
    ready: str = "ready"  # the health endpoint to wait for
    limit: int = 300  # seconds
    after: Callable | None = None  # given the path of the server's log, returns what is wrong
    ends: bool = False  # the tests end the server
    timing: bool = False  # the tests assert on milliseconds, so a failed one runs again alone


class Harness:
    """Runs the selected tests. Where a method takes make, that is a function that lays a repository out and returns it.

    make is called only when a test that needs it is selected. It may return a list of repositories.
    """

    def __init__(self, args, baseline):
        self.select, self.baseline, self.retries = args.select, baseline, args.retries
        self.work = args.work.resolve()
        self.checkout = Checkout(args.source, self.work)
        self.qa, self.logs = self.checkout.qa, self.checkout.logs
        self.command = shlex.split(args.server)
        self.libraries = args.libraries.resolve() if args.libraries else None
        self.cwd = self.work / "cwd"  # the server's
        self.cwd.mkdir(exist_ok=True)
        self.family, self.results = "", {}

    def repo(self, name="models"):
        """A new empty model repository of the family."""
        return Repo(self.work / "repo" / self.family / name)

    def selected(self, name):
        """Whether the command line names a test, or the test that it is a part of."""
        whole = re.sub(r"\[[^]/]*\]$", "", name)
        return not self.select or any(fnmatch.fnmatch(n, s) or family_of(n) == s for s in self.select for n in (name, whole))

    def wanted(self, name):
        """Whether a test runs: it is named, and the baseline has it or its parts, which are NAME[PART]."""
        if not self.selected(name):
            return False
        return self.baseline is None or name in self.baseline or any(b.startswith(name + "[") for b in self.baseline)

    def names(self, folder, file, classes=None):
        """The tests of a file as CLASS.METHOD."""
        return expand(self.qa / folder / file, classes)

    def record(self, name, result, why="", seconds=0.0, **more):
        """Keeps and prints the result of a test."""
        why = " ".join(why.split())[:300]
        self.results[name] = {"result": result, "seconds": round(seconds, 2), **({"why": why} if why else {}), **more}
        print(f"{result:8} {seconds:7.2f}s  {name}{'   ' + why[:140] if result == 'fail' else ''}", flush=True)

    def judged(self):
        """The results that count: all, or those of the baseline, where a test that did not run has failed."""
        if self.baseline is None:
            return self.results
        missing = {"result": "fail", "seconds": 0, "why": "did not run"}
        return {name: self.results.get(name, missing) for name in sorted(self.baseline) if self.selected(name)}

    def start(self, make, flags, env, log):
        """Starts the server on the repository that make writes."""
        made = make()
        repositories = made if isinstance(made, list) else [made]
        if self.libraries:
            for repository in repositories:
                link_libraries(self.libraries, pathlib.Path(str(repository)))
        return Server(self.command, repositories, flags, env, log, self.cwd)

    def log_of(self, name, kind):
        """The path of a log."""
        return self.logs / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.{kind}"

    def run(self, make, tests):
        """Runs tests with one start of the server."""
        prefix = f"{self.family}[{tests.variant}]/" if tests.variant else f"{self.family}/"
        names = [t for t in expand(self.checkout.copy(tests.folder) / tests.file, tests.names) if self.wanted(prefix + t)]
        if not names:
            return
        self.attempt(make, tests, prefix, names)
        for name in names if tests.timing else []:
            for attempt in range(self.retries):
                if self.results[prefix + name]["result"] != "fail":
                    break
                self.attempt(make, tests, prefix, [name], attempts=attempt + 2)

    def run_each(self, make, tests):
        """Runs each test with a fresh server."""
        for name in expand(self.checkout.copy(tests.folder) / tests.file, tests.names):
            self.run(make, dataclasses.replace(tests, names=[name]))

    def attempt(self, make, tests, prefix, names, **more):
        """Starts the server, runs tests and records their results."""
        tag = prefix + (names[0] if len(names) == 1 else tests.file)
        log, client_log = self.log_of(tag, "server.log"), self.log_of(tag, "client.log")
        server, start = self.start(make, tests.flags, tests.env, log), time.time()
        got, note = {}, ""
        try:
            if server.wait(tests.ready):
                got, note = self.client(tests, names, server, tag)
            else:
                note = f"server did not become {tests.ready}"
        finally:
            end = server.stop()
        wrong = (tests.after(log) if tests.after and got else "") or end
        for name in names:
            found = got.get(name)
            if found is None:
                self.record(prefix + name, "fail", note or last_line(client_log), (time.time() - start) / len(names), **more)
            elif found["result"] == "pass" and wrong:
                self.record(prefix + name, "fail", wrong, found["seconds"], **more)
            else:
                self.record(prefix + name, found["result"], found["why"], found["seconds"], **more)

    def client(self, tests, names, server, tag):
        """Runs a test file in a separate process. Returns the results by name, and other errors."""
        out = self.log_of(tag, "jsonl")
        out.unlink(missing_ok=True)
        env = {**os.environ, "SERVER_LOG": str(server.log), "SERVER_PID": str(server.process.pid), "PYTHONUNBUFFERED": "1"}
        with contextlib.suppress(OSError):  # some tests compare the metadata with this
            env["TRITON_SERVER_VERSION"] = json.loads(get("v2"))["version"]
        command, note = [sys.executable, "-P", str(HERE / "record.py"), tests.file, str(out), *names], ""
        with open(self.log_of(tag, "client.log"), "w") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            try:
                subprocess.run(command, cwd=self.checkout.copy(tests.folder), env={**env, **tests.client_env}, timeout=tests.limit, **streams)
            except subprocess.TimeoutExpired:
                note = f"no result within {tests.limit} s"
        lines = map(json.loads, out.read_text().splitlines()) if out.exists() else []
        if not tests.ends and server.process.poll() is not None:
            note = f"server ended ({server.process.returncode}) during the tests"
        return {line["test"]: line for line in lines}, note

    def refuse(self, name, make, expected, flags=(), prefix=ERROR_LINE, ignore_case=False):
        """Expects that the server ends by itself, and that its log has one of the texts, which are patterns of grep."""
        name = f"{self.family}/{name}"
        if not self.wanted(name):
            return
        log, start = self.log_of(name, "server.log"), time.time()
        server = self.start(make, flags, None, log)
        up = server.wait(limit=20)
        status = server.process.poll()
        server.stop()
        wrong = wrong_end(up, status)
        if not wrong and not any(grep(prefix + text.rstrip("\n"), log, ignore_case) for text in expected):
            wrong = "log lacks: " + " | ".join(text.strip() for text in expected)
        self.record(name, "fail" if wrong else "pass", wrong, time.time() - start)

    def check(self, name, make, look, flags=()):
        """Starts the server and calls look, which raises, or returns the errors by part of the test."""
        name = f"{self.family}/{name}"
        if not self.wanted(name):
            return
        start = time.time()
        server = self.start(make, flags, None, self.log_of(name, "server.log"))
        try:
            found = look() or {"": ""} if server.wait() else {"": "server did not become ready"}
        except Exception as e:  # whatever a client raises
            found = {"": repr(e)}
        finally:
            server.stop()
        for part, wrong in found.items():
            self.record(name + (f"[{part}]" if part else ""), "fail" if wrong else "pass", wrong, (time.time() - start) / len(found))


def family_of(name):
    """The family of a test's name."""
    return name.split("/")[0].split("[")[0]


def wrong_end(up, status):
    """The errors in the exit of a server that had to refuse its repository."""
    if up:
        return "server started, an error was expected"
    if status is None:
        return "neither ready nor ended in 20 s"
    if status == 0:
        return "exit status 0"
    return f"ended by signal {-status}" if status < 0 else ""


def grep(pattern, path, ignore_case=False):
    """Whether a line of a file matches. The patterns of Triton's tests are those of grep."""
    return subprocess.run(["grep", "-qi" if ignore_case else "-q", "-e", pattern, path]).returncode == 0


def logged(text):
    """A check for Tests.after: the server's log has a text, in whatever case."""

    def wrong(log):
        return "" if text.lower() in log.read_text(errors="replace").lower() else f"log lacks '{text}'"

    return wrong


def methods(body):
    """The test methods of a class, also those that stand under an if."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield node.name
        elif isinstance(node, ast.If):
            yield from methods([*node.body, *node.orelse])


def expand(path, names=None):
    """The tests of a file as CLASS.METHOD, of some classes where names has them; a CLASS.METHOD in names stays as it is."""
    classes = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found = list(dict.fromkeys(methods(node.body)))
            for base in node.bases:
                found = [m for m in classes.get(getattr(base, "id", ""), []) if m not in found] + found
            classes[node.name] = found
    tests = []
    for name in classes if names is None else names:
        tests += [name] if "." in name else [f"{name}.{m}" for m in sorted(classes.get(name, []))]
    return tests


def last_line(path):
    """The last line of a log."""
    text = path.read_text(errors="replace").strip() if path.exists() else ""
    return text.split("\n")[-1] or "no output"
