"""A worker: imports a model.py and executes what the server sends."""

import importlib.util
import json
import os
import platform
import sys
import traceback

import numpy as np

import tutti_wire as wire
import triton_python_backend_utils as pb


class Worker:
    def __init__(self):
        self.calls = wire.Link(3)
        self.side = wire.Side(4)
        self.regions = {}
        self.model_class = self.model = None
        self.inputs = self.outputs = ()
        self.places = {}
        self.decoupled = False
        self.execution = 0
        self.commands = {
            wire.START: self.start, wire.COMPLETE: self.complete, wire.INIT: self.initialize,
            wire.READY: self.ready, wire.FINALIZE: self.finalize,
        }

    def run(self):
        while True:
            try:
                kind, _, ident, body, file = self.calls.receive()
            except (OSError, EOFError):
                return
            if kind == wire.EXECUTE:
                self.answer(ident, self.execute, body)
            elif kind == wire.REGION:
                number, _, size = wire.struct.unpack_from("<IIQ", body)
                self.regions[number] = wire.Region(file, size)
            elif kind == wire.DROP:
                self.regions.pop(wire.U32.unpack_from(body)[0]).close()
            else:
                self.answer(ident, self.commands[kind], body)
                if kind == wire.FINALIZE:
                    return

    def answer(self, ident, command, body):
        try:
            self.execution = ident
            body, flags = command(body)
        except BaseException as e:  # whatever a model raises is an answer
            code = getattr(e, "code", 1)
            text = failure(e)
            e = None
            body = bytes([code if isinstance(code, int) and 0 <= code < 8 else 1]) + text.encode("utf-8", "replace")
            self.calls.send(wire.FAILED, ident, body)
            return
        self.calls.send(wire.DONE, ident, body, flags)

    def start(self, body):
        c = json.loads(bytes(body))
        for path in reversed(c["paths"]):
            sys.path.insert(1, path)
        spec = importlib.util.spec_from_file_location("model", c["file"])
        module = importlib.util.module_from_spec(spec)
        sys.modules["model"] = module
        spec.loader.exec_module(module)
        self.model_class = getattr(module, "TritonPythonModel", None)
        if self.model_class is None:
            raise AttributeError("expected a class TritonPythonModel in '%s', found none" % c["file"])
        return json.dumps({
            "python": platform.python_version(), "numpy": np.__version__,
            "complete": hasattr(self.model_class, "auto_complete_config"), "ready": hasattr(self.model_class, "is_ready"),
        }).encode(), 0

    def complete(self, body):
        raise NotImplementedError("auto_complete_config")

    def initialize(self, body):
        c = json.loads(bytes(body))
        self.inputs = tuple(c["inputs"])
        self.outputs = tuple(c["outputs"])
        self.places = {name: i for i, (name, _) in enumerate(self.outputs)}
        self.decoupled = c["decoupled"]
        self.model = self.model_class()
        if hasattr(self.model, "initialize"):
            self.model.initialize(c["args"])
        return b"", 0

    def ready(self, body):
        return b"", wire.YES

    def finalize(self, body):
        if hasattr(self.model, "finalize"):
            self.model.finalize()
        return b"", 0

    def execute(self, body):
        count, source, target, _, _, _ = wire.EXECUTION.unpack_from(body)
        region = self.regions[source]
        requests = self.decode(body, count, region)
        answers = self.model.execute(requests)
        done = self.encode(answers, count, self.regions[target])
        del requests, answers
        return done, wire.KEPT if region.kept() else 0

    def decode(self, body, count, region):
        at = wire.EXECUTION.size
        requests = []
        for _ in range(count):
            _, _, _, _, n, _, extra, _ = wire.REQUEST.unpack_from(body, at)
            at += wire.REQUEST.size
            tensors = []
            for _ in range(n):
                index, number, rank, _, offset, size = wire.TENSOR.unpack_from(body, at)
                at += wire.TENSOR.size
                dims = wire.DIMS[rank].unpack_from(body, at)
                at += 8 * rank
                tensors.append(pb.Tensor(self.inputs[index][0], wire.view(region.map, number, dims, offset, size), number))
            at += extra
            requests.append(pb.InferenceRequest(tensors))
        return requests

    def encode(self, answers, count, region):
        if not isinstance(answers, list):
            raise TypeError("Expected a list in the execute return")
        if len(answers) != count:
            raise ValueError("expected %d responses from execute, got %d" % (count, len(answers)))
        parts, at = [], 0
        for a in answers:
            at = self.encode_one(parts, a, region, at)
        return wire.EXECUTED.pack(count, 0, region.size) + b"".join(parts)

    def encode_one(self, parts, answer, region, at):
        error = answer.error()
        if error is not None:
            extra = wire.answer_extra(error.message())
            parts.append(wire.ANSWER.pack(wire.ERROR, error.code(), 0, len(extra)))
            parts.append(extra)
            return at
        outputs, names = [], []
        for t in answer.output_tensors():
            raw = wire.raw_of(t._number, t._array)
            index = self.places.get(t._name, wire.NAMED)
            if index == wire.NAMED:
                names.append(t._name)
            shape = t._array.shape
            size = raw.nbytes
            if at + size > region.size:
                region.grow(at + size)
            if size:
                np.frombuffer(region.map, np.uint8, size, at)[:] = raw.reshape(-1).view(np.uint8)
            outputs.append(wire.TENSOR.pack(index, t._number, len(shape), 0, at, size) + wire.DIMS[len(shape)].pack(*shape))
            at = -(-(at + size) // wire.ALIGN) * wire.ALIGN
        extra = wire.answer_extra("", answer._params, names)
        parts.append(wire.ANSWER.pack(wire.ANSWERED, 0, len(outputs), len(extra)))
        parts.extend(outputs)
        parts.append(extra)
        return at


def failure(e):
    """Says what was raised, and where."""
    lines = "".join("  %s(%d): %s\n" % (f.filename, f.lineno, f.name) for f in reversed(traceback.extract_tb(e.__traceback__))
                    if os.path.dirname(f.filename) != os.path.dirname(__file__) and not f.filename.startswith("<frozen"))
    return "%s: %s%s" % (type(e).__name__, e, "\n\nAt:\n" + lines if lines else "")


if __name__ == "__main__":
    Worker().run()
