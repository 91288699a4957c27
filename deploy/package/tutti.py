"""Starts a Tutti server from Python, for a notebook or a test. For example:

    from tutti import Server

    with Server("models") as server:
        result = server.infer("resnet", inputs)  # as of tritonclient.http
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import weakref

__all__ = ["Server"]


class Server:
    """A server of one or several model repositories, on free ports of 127.0.0.1.

    It is a client as well: what is no attribute of its own is one of a tritonclient.http.InferenceServerClient that is
    connected to it. It ends with its block, with stop(), or with the interpreter, however that ends.

    Args:
        repositories: the path or address of a repository, or a list of them.
        timeout: seconds to wait until all models are loaded.
        options: options of `tutti serve`. For example, log_verbose=1 is --log-verbose=1, and a list repeats an option.

    Attributes:
        http, grpc: the addresses, as "127.0.0.1:PORT"; None for a protocol that is disabled.

    Raises:
        FileNotFoundError: there is no program tutti.
        RuntimeError: the server ended; the text has the end of its log.
        TimeoutError: it was not ready in time.
    """

    def __init__(self, repositories, timeout=60, **options):
        self.http = self.grpc = self._http_client = None
        args = [_program(), "serve", *_arguments(repositories, options)]
        # The Python of models is this one, with its packages, unless the user names another.
        env = {"TUTTI_PYTHON": sys.executable, **os.environ}
        self._log = tempfile.TemporaryFile()
        # In a session of its own: a notebook's interrupt is for the cell and not for the server.
        self._process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=env, start_new_session=True)
        self._end = weakref.finalize(self, _end, self._process, _watch(self._process.pid))
        try:
            self._wait(timeout, [title for title, option in (("HTTP", "allow_http"), ("GRPCInference", "allow_grpc")) if _enabled(options, option)])
        except BaseException:
            self.stop()
            raise

    def _wait(self, timeout, expected):
        end = time.monotonic() + timeout
        while True:
            ended = self._process.poll() is not None
            log = self.log()
            started = dict(re.findall(r"Started (HTTP|GRPCInference)Service at (\S+:\d+)", log))
            if all(title in started for title in expected):
                self.http, self.grpc = started.get("HTTP"), started.get("GRPCInference")
                return
            if ended:
                raise RuntimeError(f"the server ended with status {self._process.returncode}:\n{log[-2000:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"the server is not ready after {timeout} seconds:\n{log[-2000:]}")
            time.sleep(0.02)

    def log(self):
        """Returns the text that the server has logged."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def client(self, **options):
        """Returns a new client of tritonclient.http; options are those of its InferenceServerClient."""
        return _client("http", self.http, options)

    def grpc_client(self, **options):
        """Returns a new client of tritonclient.grpc; options are those of its InferenceServerClient."""
        return _client("grpc", self.grpc, options)

    def stop(self):
        """Ends the server after the requests in execution. It may be called twice."""
        if self._http_client is not None:
            self._http_client.close()
            self._http_client = None
        self._end()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if self._http_client is None:
            self._http_client = self.client()
        return getattr(self._http_client, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def _program():
    path = os.path.join(sysconfig.get_path("scripts"), "tutti")
    path = path if os.path.exists(path) else shutil.which("tutti")
    if not path:
        raise FileNotFoundError("the program tutti is neither among this Python's scripts nor in PATH; install it with: pip install tutti-server")
    return path


def _arguments(repositories, options):
    """Returns the arguments of `tutti serve`. The ports are free ones, which options may replace."""
    if isinstance(repositories, (str, os.PathLike)):
        repositories = [repositories]
    args = [f"--model-repository={os.fspath(r)}" for r in repositories]
    free = {f"{door}_{part}": value for door in ("http", "grpc", "metrics") for part, value in (("port", 0), ("address", "127.0.0.1"))}
    for name, values in {**free, **options}.items():
        for value in values if isinstance(values, (list, tuple)) else [values]:
            args.append(f"--{name.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}")
    return args


def _enabled(options, name):
    return str(options.get(name, True)).lower() not in ("false", "0")


def _watch(pid):
    """Starts a process that ends the server when this interpreter has ended in a way that no exit handler sees."""
    script = f'read -r line || kill "{pid}"'
    return subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def _end(process, watch):
    if process.poll() is None:
        process.terminate()
    process.wait()
    try:
        watch.communicate(b"\n")
    except BrokenPipeError:  # it was killed
        watch.wait()


def _client(protocol, address, options):
    try:
        module = importlib.import_module(f"tritonclient.{protocol}")
    except ImportError as e:
        raise ImportError(f"{e}; install the client with: pip install 'tritonclient[{protocol}]'") from e
    if address is None:
        raise RuntimeError(f"the server has no {protocol} service")
    return module.InferenceServerClient(address, **options)
