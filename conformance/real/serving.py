"""The server under test, and the scripts of others that query it."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 600  # seconds for whatever is waited for, on a machine with ten times the load
STARTED = re.compile(r"Started (HTTPService|GRPCInferenceService|Metrics Service) at ([^\"\s]+)")
RUNTIMES = {"onnxruntime": "ONNXRUNTIME", "openvino": "OPENVINO", "pytorch": "PYTORCH", "tensorflow": "TENSORFLOW"}


def program():
    """The program that make built."""
    return os.environ.get("TUTTI_TEST_PROGRAM") or str(ROOT / "bin" / "tutti")


def environment(standins):
    """The packages that models and clients import: those of this interpreter, and stand-ins for those that it lacks."""
    paths = [str(HERE / "shim")] + [str(HERE / "standins" / name) for name in standins] + [p for p in sys.path if p]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "PRIVATE_REPO_TOKEN": "none"}


class Server:
    """A running server over a model repository."""

    def __init__(self, repository, flags=(), standins=(), runtimes=()):
        command = [program(), "serve", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
        command += ["--http-port=0", "--grpc-port=0", "--metrics-port=0", f"--model-repository={repository}"]
        # Models write into the working directory, so it is a folder of the repository's own.
        command += [f"--backend-config=python,python-runtime={sys.executable}", "--exit-on-error=false", "--strict-readiness=false"]
        command += ["--backend-config=python,pass-environment=PRIVATE_REPO_TOKEN"]  # what the published page passes to the container
        for backend, variable in {**RUNTIMES, **dict(runtimes)}.items():
            library = os.environ.get(f"TUTTI_TEST_{variable}")
            if library:
                command.append(f"--backend-config={backend},library-path={library}")
        self.standins = standins
        self.log = []
        self.at = {}
        self.ready = threading.Event()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        self.process = subprocess.Popen([*command, *flags], env=environment(standins), cwd=pathlib.Path(repository).parent, **streams)
        threading.Thread(target=self._read, daemon=True).start()
        self.ready.wait(LIMIT)
        if len(self.at) < 3:
            self.stop()
            raise RuntimeError("the server did not start:\n" + "".join(self.log[-30:]))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            found = STARTED.search(line)
            if found:
                self.at[found.group(1)] = found.group(2)
            if len(self.at) == 3:
                self.ready.set()
        self.ready.set()  # it has ended

    @property
    def http(self):
        return self.at["HTTPService"]

    @property
    def grpc(self):
        return self.at["GRPCInferenceService"]

    @property
    def metrics(self):
        return self.at["Metrics Service"]

    def logs(self, text):
        """Whether a line of the log has a text. The line may come after the response that it is about."""
        try:
            until(lambda: any(text in line for line in list(self.log)), text, limit=10)
        except AssertionError:
            return False
        return True

    def stop(self):
        """Ends the server, and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def script(self, path, args=(), cwd=None, until=None):
        """Runs a client's script unchanged. Returns its exit status and its output.

        A script that goes on for ever is ended once it has printed what the expression until finds.
        """
        ports = f"8000={self.http},8001={self.grpc},8002={self.metrics}"
        env = {**environment(self.standins), "TUTTI_REAL_PORTS": ports, "PYTHONUNBUFFERED": "1"}
        run = subprocess.Popen(
            [sys.executable, str(path), *args], cwd=cwd or pathlib.Path(path).parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        timer = threading.Timer(LIMIT, run.kill)
        timer.start()
        text = ""
        try:
            while part := os.read(run.stdout.fileno(), 1 << 16).decode(errors="replace"):
                text += part
                if until and re.search(until, text):
                    run.kill()
                    return 0, text
            return run.wait(), text
        finally:
            timer.cancel()
            run.kill()
            run.wait()


def until(condition, what, limit=LIMIT):
    """Waits for an asynchronous effect in the server."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.01)
