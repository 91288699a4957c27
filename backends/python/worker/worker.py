"""The worker process: imports model.py and executes the commands of the server. As "worker.py forkserver" it forks workers."""

import importlib.util
import json
import os
import signal
import sys
import threading
import types

import numpy as np

import tutti_cuda
import tutti_forkserver as forkserver
import tutti_sandbox as sandbox
import tutti_wire as wire
import triton_python_backend_utils as pb
from tutti_errors import TritonError, TritonModelException, carried, failure
from tutti_execution import Execution
from tutti_process import process


class Worker:
    """Executes the server's commands, one at a time."""

    def __init__(self):
        self.link = wire.Link(3)
        process.side = wire.Side(4)
        self.regions = {}
        self.model_class = self.model = None
        self.execution = Execution(self.regions, self.coroutine)
        self.loop = None
        self.file = ""
        self.commands = {
            wire.START: self.start, wire.COMPLETE: self.complete, wire.INIT: self.initialize, wire.FINALIZE: self.finalize,
        }
        process.ready = self.ready
        os.register_at_fork(after_in_child=self.forked)

    def forked(self):
        """Runs in a process that the model forked from the worker: closes its copy of the worker's socket."""
        self.link.sock.close()
        process.forked()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # multiprocessing terminates processes with it

    def run(self):
        """Executes commands until FINALIZE, or until the server closes the socket."""
        receive, execute, post = self.link.receive, self.execution.run, self.link.post
        while True:
            try:
                kind, _, ident, body, file = receive()
            except (OSError, EOFError):
                return
            if kind == wire.EXECUTE:
                try:
                    body, flags = execute(ident, body)
                except BaseException as e:
                    self.fail(ident, e, self.execution.gpu_flag())
                else:
                    post(wire.DONE, ident, body, flags)
                if tutti_cuda.lost() is not None:
                    self.leave()
            elif kind == wire.REGION:
                number, _, size = wire.REGION_HEAD.unpack_from(body)
                self.regions[number] = wire.Region(file, size)
            elif kind == wire.GPU_REGION:
                tutti_cuda.tell(body)
            elif kind == wire.DROP:
                self.regions.pop(wire.U32.unpack_from(body)[0]).close()
            else:
                self.execute_command(ident, self.commands[kind], body)
                if kind == wire.FINALIZE:
                    return

    def execute_command(self, ident, command, *args):
        """Executes a command and sends DONE with its result, or FAILED."""
        try:
            body, flags = command(*args)
        except BaseException as e:  # includes SystemExit of the model
            self.fail(ident, e)
            return
        self.link.post(wire.DONE, ident, body, flags)

    def fail(self, ident, e, flags=0):
        """Sends FAILED for an exception."""
        tutti_cuda.probe()  # it may be that of a framework about an error after which no GPU works in this process
        self.link.post(wire.FAILED, ident, failed(e), flags)

    def leave(self):
        """Ends a process in which CUDA does not work any more. The server starts another one."""
        print("the worker exits, because CUDA cannot be used in it any more: %s" % tutti_cuda.lost(), file=sys.stderr, flush=True)
        self.link.sock.close()
        os._exit(1)

    def start(self, body):
        c = json.loads(bytes(body))
        for path in reversed(c["paths"]):
            sys.path.insert(1, path)
        self.file, process.model, process.folder = c["file"], c["model"], os.path.dirname(c["file"])
        module = load(c["file"], c["version"])
        self.model_class = getattr(module, "TritonPythonModel", None)
        if self.model_class is None:
            raise AttributeError("expected a class TritonPythonModel in '%s', found none" % c["file"])
        if not hasattr(self.model_class, "execute"):
            raise AttributeError("expected a method 'execute' of TritonPythonModel in '%s', found none" % c["file"])
        return json.dumps({
            "python": forkserver.version(), "numpy": np.__version__,
            "complete": hasattr(self.model_class, "auto_complete_config"), "ready": hasattr(self.model_class, "is_ready"),
        }).encode(), 0

    def complete(self, body):
        config = json.loads(bytes(body))["config"]
        for key in ("input", "output"):
            config.setdefault(key, [])
        config.setdefault("max_batch_size", 0)
        config.setdefault("name", process.model)
        done = self.model_class.auto_complete_config(pb.ModelConfig(json.dumps(config)))
        if not isinstance(done, pb.ModelConfig):
            raise TritonModelException("auto_complete_config function in model '%s' must return a valid pb.ModelConfig object."
                                       % process.model)
        return json.dumps({"config": done.as_dict()}).encode(), 0

    def initialize(self, body):
        c = json.loads(bytes(body))
        process.instance = c["args"]["model_instance_name"]
        tutti_cuda.configure(c["driver"], c["gpus"] or ())
        self.model = self.model_class()
        if hasattr(self.model, "initialize"):
            self.model.initialize(c["args"])
        self.execution.serve(self.model, c["inputs"], c["outputs"], c["decoupled"])
        process.executing = True
        return b"", 0

    def ready(self, link, ident):
        """Sends the result of is_ready. Runs in a separate thread."""
        try:
            flags = wire.TRUE if self.is_ready() else 0
        except BaseException as e:  # includes SystemExit of the model
            link.send(wire.FAILED, ident, failed(e))
        else:
            link.send(wire.DONE, ident, b"", flags)

    def is_ready(self):
        """Returns the result of the model's is_ready, or True when it has none."""
        if not hasattr(self.model, "is_ready"):
            return True
        is_ready = self.model.is_ready()
        if isinstance(is_ready, types.CoroutineType):
            is_ready = self.coroutine(is_ready).result()
        if not isinstance(is_ready, (bool, np.bool_)):
            raise TritonModelException("is_ready() must return a boolean value")
        return is_ready

    def finalize(self, _):
        process.executing = False
        if hasattr(self.model, "finalize"):
            self.model.finalize()
        return b"", 0

    def coroutine(self, coroutine):
        """Runs a coroutine in the event loop of the model and returns its future."""
        import asyncio  # imported on demand: it would double the modules of a worker

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, name="tutti-loop", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


def load(file, version):
    """Imports a model file as a module of a package named after its version, so that it can import files beside it."""
    package = types.ModuleType(str(version))
    package.__path__ = [os.path.dirname(file)]
    sys.modules[package.__name__] = package
    name = "%s.%s" % (package.__name__, os.path.splitext(os.path.basename(file))[0])
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None:
        raise ImportError("expected a file that ends in .py, found '%s'" % file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def failed(e):
    """Returns the body of FAILED for an exception: the code and the details of a TritonError that it carries, else INTERNAL, and a text."""
    error = carried(e)
    code, params = int(TritonError.INTERNAL if error is None else error.code()), b""
    if error is not None and error._details:
        code, params = code | 128, wire.encode_params(error._details)
    return bytes([code]) + params + failure(e).encode("utf-8", "replace")


if __name__ == "__main__":
    sandboxed = os.environ.pop("TUTTI_PYTHON_SANDBOX", None)
    if sandboxed:
        sandbox.give_up_privileges()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the server, which ends its workers
    signal.signal(signal.SIGTERM, lambda *_: None)  # likewise; a handler, not SIG_IGN, so that programs started by models get the default
    name = " ".join(sys.argv[1:])
    del sys.argv[1:]  # the model may read sys.argv
    if name == "forkserver":
        forkserver.serve(3)
    else:
        forkserver.set_process_name(name.encode())
        for descriptor in (3, 4):
            os.set_inheritable(descriptor, False)
    if sandboxed:
        sandbox.confine()  # each worker by itself: the fork server kills workers, and they do not kill each other
    Worker().run()
