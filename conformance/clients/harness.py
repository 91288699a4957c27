"""The base of the suites: one interface to the four clients, a list of cases, and a record of the methods that ran.

A case takes one argument, the flavour of the client under test, and fails by an
exception. It runs for every flavour it names; a coroutine that a client returns is
awaited, so that one case serves the plain clients and those of asyncio.
"""

import asyncio
import contextlib
import functools
import inspect
import json
import signal
import time
import traceback
import urllib.error
import urllib.request
import uuid

import ml_dtypes
import numpy as np
import tritonclient.grpc as grpc_module
import tritonclient.grpc._client as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.grpc.auth as grpc_auth
import tritonclient.grpc.aio.auth as grpc_aio_auth
import tritonclient.http as http_module
import tritonclient.http.aio as http_aio
import tritonclient.http.auth as http_auth
import tritonclient.http.aio.auth as http_aio_auth
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

FLAVOURS = ("http", "grpc", "http_aio", "grpc_aio")
HTTP = ("http", "http_aio")
GRPC = ("grpc", "grpc_aio")
SECONDS = 1200  # a case that takes longer hangs
LIMIT = 600  # seconds for one answer, on a machine with ten times the load

DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": ml_dtypes.bfloat16,
    "BYTES": np.object_,
}

CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_send_message_length", grpc_module.MAX_GRPC_MESSAGE_SIZE),
    ("grpc.max_receive_message_length", grpc_module.MAX_GRPC_MESSAGE_SIZE),
]

CASES = []


def case(flavours=FLAVOURS, variant="plain"):
    """Adds a function to the cases of a server variant."""

    def add(function):
        CASES.append((function, flavours, variant))
        return function

    return add


class Skip(Exception):
    """Says why a case cannot run here."""


class Flavour:
    """A client library with the addresses of a server."""

    def __init__(self, name, args):
        self.name, self.args = name, args
        self.http = name in HTTP
        self.aio = name.endswith("aio")
        self.module = http_module if self.http else grpc_module
        self.client_module = {"http": http_module, "grpc": grpc_module, "http_aio": http_aio, "grpc_aio": grpc_aio}[name]
        self.auth = {"http": http_auth, "grpc": grpc_auth, "http_aio": http_aio_auth, "grpc_aio": grpc_aio_auth}[name]
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.address = args.http if self.http else args.grpc
        self.default = None

    def __getattr__(self, name):
        """A method of the default client."""
        if self.default is None:
            self.default = self.connect()
        return getattr(self.default, name)

    def connect(self, address=None, **options):
        if not self.http:
            # Every server of the suites has the same host: without channels of
            # their own two clients would share a connection.
            options.setdefault("channel_args", CHANNEL)

        async def make():
            return self.client_module.InferenceServerClient(address or self.address, **options)

        return Client(self, self.loop.run_until_complete(make()) if self.aio else self.client_module.InferenceServerClient(address or self.address, **options))

    def input(self, name, data, dtype=None, **options):
        data = np.asarray(data)
        t = self.module.InferInput(name, list(data.shape), dtype or http_module.np_to_triton_dtype(data.dtype))
        t.set_data_from_numpy(data, **options)
        return t

    def output(self, name, **options):
        return self.module.InferRequestedOutput(name, **options)

    def close(self):
        if self.default is not None:
            self.default.close()
        self.loop.close()


class Client:
    """A client whose coroutines are awaited."""

    def __init__(self, flavour, client):
        self.flavour, self.client = flavour, client

    def __getattr__(self, name):
        attribute = getattr(self.client, name)
        if not callable(attribute):
            return attribute

        @functools.wraps(attribute)
        def call(*args, **kwargs):
            result = attribute(*args, **kwargs)
            return self.flavour.loop.run_until_complete(result) if inspect.iscoroutine(result) else result

        return call

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def sample(dtype):
    """Six elements of a type as [2, 3]."""
    if dtype == "BYTES":
        return np.array([[b"a", b"", b"\xc3\xa9"], [b"long " * 60, b"1", b"\\\"\n"]], dtype=np.object_)
    return (np.arange(6).reshape(2, 3) * 0.75).astype(DTYPES[dtype])


def same(got, want, what=""):
    """Checks a tensor bit by bit."""
    assert got is not None, what
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.dtype, got.shape, want.dtype, want.shape)
    assert (got == want).all(), (what, got, want)


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def has(text, part):
    assert part in text, f"{text!r} does not have {part!r}"


def refused(flavour, call, text, http="400", grpc="INVALID_ARGUMENT"):
    """Checks that call fails with a status and a text."""
    try:
        call()
    except InferenceServerException as e:
        has(e.message() or "", text)
        want = http if flavour.http else f"StatusCode.{grpc}"
        equal(e.status(), want, e.message())
        return e
    raise AssertionError(f"expected a failure with {text!r}")


def ask(args, method, path, body=None, headers=None):
    """A plain HTTP request; returns the status, the headers and the body."""
    request = urllib.request.Request(f"http://{args.http}{path}", method=method, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers, e.read()


def until(condition, what):
    """Waits for something that the server does in its own time."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"not in {LIMIT} s: {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def region(size):
    """A POSIX shared-memory region with its key; the name on the server is the caller's business."""
    key = f"/tutti-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region(key, key, size, create_only=True)
    try:
        yield handle, key
    finally:
        shm.destroy_shared_memory_region(handle)


CALLED = set()


def record(owner, label, names=None):
    """Notes the calls of the public functions of a class or module, and returns their names."""
    found = set()
    for name in names or [n for n, f in inspect.getmembers(owner, callable) if not n.startswith("_")]:
        static = inspect.getattr_static(owner, name)
        function = getattr(static, "__func__", static)
        key = f"{label}.{name}"

        def noted(*args, _function=function, _key=key, **kwargs):
            CALLED.add(_key)
            return _function(*args, **kwargs)

        functools.update_wrapper(noted, function)
        kind = type(static) if isinstance(static, (staticmethod, classmethod)) else lambda f: f
        setattr(owner, name, kind(noted))
        found.add(key)
    return found


SHM_FUNCTIONS = [
    "create_shared_memory_region",
    "set_shared_memory_region",
    "get_contents_as_numpy",
    "mapped_shared_memory_regions",
    "destroy_shared_memory_region",
]


def watch(name):
    """Starts the record of a flavour's classes, and returns every method that it should see."""
    module = http_module if name in HTTP else grpc_module
    owners = [
        ({"http_aio": http_aio, "grpc_aio": grpc_aio}.get(name, module)).InferenceServerClient,
        module.InferInput,
        module.InferRequestedOutput,
        module.InferResult,
    ]
    if name == "http":
        owners.append(module.InferAsyncRequest)
    if name == "grpc":
        owners.append(grpc_client.CallContext)
    want = set()
    for owner in owners:
        want |= record(owner, owner.__name__)
    return want | record(shm, "shared_memory", SHM_FUNCTIONS)


def report(name, error=None, skip=None):
    print(json.dumps({"case": name, "error": error, "skip": skip}), flush=True)


def hang(*_):
    raise TimeoutError(f"the case took more than {SECONDS} s")


def run(args):
    """Runs the cases of a variant with one flavour, a line of JSON for each."""
    want = watch(args.flavour)
    flavour = Flavour(args.flavour, args)
    signal.signal(signal.SIGALRM, hang)
    for function, flavours, variant in CASES:
        if args.flavour not in flavours or variant != args.variant:
            continue
        signal.alarm(SECONDS)
        try:
            function(flavour)
            report(function.__name__)
        except Skip as e:
            report(function.__name__, skip=str(e))
        except BaseException:  # a hang too
            report(function.__name__, error=traceback.format_exc(limit=-4))
        finally:
            signal.alarm(0)
    if args.variant == "plain":
        missing = sorted(want - CALLED)
        report("every_method", error=f"no case calls {missing}" if missing else None)
    with contextlib.suppress(Exception):
        flavour.close()
