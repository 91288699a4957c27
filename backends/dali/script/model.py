"""Runs a DALI pipeline as a Python model. The backend dali starts it in place of a user's model.py."""

import importlib.util
import json
import os
import re
import sys

import numpy as np

import tutti_dali_config as configuration
import tutti_dali_graph as graphs
from triton_python_backend_utils import InferenceResponse, Tensor, TritonError
from tutti_dali_config import Refusal


class TritonPythonModel:
    """A pipeline, built for one instance."""

    _found = None  # the serialized pipeline and its graph, from auto_complete_config until initialize

    @classmethod
    def auto_complete_config(cls, model_config):
        config = model_config.as_dict()
        place = place_of(config)
        cls._found = _, graph = find(place, at_gpu(config))
        configuration.complete(config, graph, place["Batched"])
        configuration.check(config, graph, place["Batched"])
        return model_config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        place = place_of(config)
        self.serialized, graph = self._found or find(place, at_gpu(config))
        TritonPythonModel._found = None
        self.batched = config.get("max_batch_size", 0) > 0
        configuration.check(config, graph, place["Batched"])
        if config.get("model_transaction_policy", {}).get("decoupled"):
            raise Refusal("decoupled DALI models are not supported: expected a pipeline with one response for each request", TritonError.UNSUPPORTED)
        gpu = args["model_instance_kind"] == "GPU"
        if graph.gpu and not gpu:
            raise Refusal("the pipeline has operators on a GPU (%s), and its instances run on the CPU: use instances of KIND_GPU on a machine with a "
                          "GPU, or build the pipeline with device=\"cpu\"" % ", ".join(graph.gpu))
        if not gpu:
            self.serialized = graphs.on_host(self.serialized)
        self.inputs = [port.name for port in graph.inputs]
        self.outputs = [o["name"] for o in config["output"]]
        self.joined = configuration.split(config)
        self.options = {
            "batch_size": config["max_batch_size"] if self.batched else None, "num_threads": configuration.threads(config, graph),
            "device_id": int(args["model_instance_device_id"]) if gpu else None,
            # A request waits for its own run, so nothing is run ahead of it.
            "exec_pipelined": False, "exec_async": False, "prefetch_queue_depth": 1,
        }
        for library in place["Plugins"] or ():
            load_plugin(library)
        self.build()

    def build(self):
        """Builds the pipeline. One that has failed cannot run again."""
        pipeline = dali().pipeline.Pipeline
        self.pipeline = None  # before the next one is built, so that both do not take memory at a time
        try:
            self.pipeline = pipeline.deserialize(serialized_pipeline=self.serialized, **self.options)
        except (RuntimeError, TypeError, ValueError) as e:
            raise Refusal("DALI cannot build the pipeline: %s" % plain(e)) from None

    def execute(self, requests):
        if self.batched:
            try:
                return self.run(requests)
            except (RuntimeError, TypeError, ValueError) as e:
                self.build()
                if len(requests) == 1:
                    return [refused(e)]
        return [self.run_alone(request) for request in requests]

    def run_alone(self, request):
        """Returns the response to one request, an error if the pipeline refuses it."""
        try:
            return self.run([request])[0]
        except (RuntimeError, TypeError, ValueError) as e:
            self.build()
            return refused(e)

    def run(self, requests):
        """Runs the samples of all requests as one batch. Returns a response for each request."""
        given = [{t.name(): t.as_numpy() for t in request.inputs()} for request in requests]
        for name in self.inputs:
            self.pipeline.feed_input(name, batch([inputs[name] for inputs in given]))
        outputs = [on_host(output) for output in self.pipeline.run()]
        if len(requests) == 1:
            ranges = [(0, len(outputs[0]))]
        else:
            ends = np.cumsum([len(inputs[self.inputs[0]]) for inputs in given]).tolist()
            ranges = list(zip([0, *ends], ends))
        found = [rows(output, ranges, name in self.joined) for name, output in zip(self.outputs, outputs)]
        return [self.response(of_request) for of_request in zip(*found)]

    def response(self, arrays):
        """Returns a response with the outputs of one request. An output without an array is one whose samples have several shapes."""
        tensors = []
        for name, array in zip(self.outputs, arrays):
            if not isinstance(array, np.ndarray):
                return InferenceResponse(error=TritonError("output '%s' has samples of different shapes, %s: a response has one tensor, so send these samples in "
                                                           "requests of their own" % (name, array), TritonError.INVALID_ARG))
            tensors.append(Tensor(name, array))
        return InferenceResponse(tensors)


def place_of(config):
    """Returns where the pipeline is: what the backend has put into the configuration."""
    return json.loads(configuration.parameter(config, "TUTTI_DALI"))


def at_gpu(config):
    """Reports whether some instances of a model are on a GPU."""
    return any(group.get("kind") == "KIND_GPU" for group in config.get("instance_group", ()))


def find(place, gpu):
    """Returns the serialized pipeline of a version folder and its graph, in Triton's order: the named file as a serialized pipeline, as Python
    code if its name ends in .py, and then the Python file of the default name. gpu is false if it is to run on the CPU only."""
    file, fallback = (os.path.join(place["Dir"], place[key]) for key in ("File", "Fallback"))
    reason = ""
    if os.path.isfile(file) and not file.endswith(".py"):
        with open(file, "rb") as f:
            serialized = f.read()
        try:
            return serialized, graphs.read(serialized)
        except graphs.Malformed as e:
            reason = "expected a serialized pipeline: %s" % e
    for path in (file, fallback):
        if path.endswith(".py") and os.path.isfile(path):
            if reason:
                print("'%s' is not served, '%s' is: %s" % (file, path, reason), file=sys.stderr)
            serialized = serialize(path, gpu)
            return serialized, graphs.read(serialized)
    raise Refusal(reason or "expected a file '%s' or '%s', found neither" % (file, fallback))


def serialize(path, gpu):
    """Runs a Python file, and returns the serialized form of its pipeline: of the function with @autoserialize. Without a GPU the pipeline gets no
    device_id: DALI serializes none that has one there, even if its operators are on the CPU."""
    dali()
    folder = os.path.dirname(path)
    sys.path.insert(1, folder)  # it may import files beside it
    spec = importlib.util.spec_from_file_location("autoserialize_mod", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    modules = [m for m in list(sys.modules.values()) if os.path.dirname(getattr(m, "__file__", None) or "") == folder]
    found = {id(f): f for m in modules for f in vars(m).values() if getattr(f, "_is_autoserialize", False)}
    if len(found) != 1:
        raise Refusal("expected one function with @autoserialize in the file, found %d" % len(found))
    pipeline, = found.values()
    return pipeline().serialize() if gpu else pipeline(device_id=None).serialize()


def dali():
    """Returns the package nvidia.dali. Its import takes seconds, so it is left to those who need it."""
    try:
        import nvidia.dali as package
        import nvidia.dali.pipeline
    except ImportError as e:
        raise Refusal("%s cannot import nvidia.dali (%s): run 'tutti runtime fetch dali'" % (sys.executable, e), TritonError.UNAVAILABLE) from None
    return package


def load_plugin(library):
    """Loads a library with operators."""
    dali()
    from nvidia.dali import plugin_manager

    try:
        plugin_manager.load_library(library)
    except RuntimeError as e:
        raise Refusal("cannot load the library '%s' of plugin_libs: %s" % (library, plain(e))) from None


def batch(arrays):
    """Returns the samples of several requests as one array, or as a list if their shapes differ."""
    if len(arrays) == 1:
        return arrays[0]
    if len({array.shape[1:] for array in arrays}) == 1:
        return np.concatenate(arrays)
    return [sample for array in arrays for sample in array]


def on_host(output):
    """Returns a list of tensors on the host."""
    return output.as_cpu() if hasattr(output, "as_cpu") else output


def rows(output, ranges, joined):
    """Returns the array of each range of samples, with their number as the first dimension. Joined samples are concatenated instead. A range whose
    samples have several shapes has a text with the shapes."""
    if output.is_dense_tensor():
        whole = np.asarray(output.as_tensor())
        parts = [whole[start:end] for start, end in ranges] if len(ranges) > 1 else [whole]
        return [part.reshape(-1, *part.shape[2:]) for part in parts] if joined else parts
    samples = [output.at(i) for i in range(len(output))]
    found = []
    for start, end in ranges:
        shapes = {sample.shape[1:] if joined else sample.shape for sample in samples[start:end]}
        if len(shapes) > 1:
            found.append(" and ".join(sorted(map(str, shapes))[:3]))
        else:
            found.append(np.concatenate(samples[start:end]) if joined else np.stack(samples[start:end]))
    return found


# An error of an operator: what it is in, the definition of the pipeline, what it encountered, and places in C++.
_OPERATOR_ERROR = re.compile(r"(?:Critical error.*\n)?Error in (.+?),?\n.*?encountered:\n\n(.*)", re.DOTALL)
_INTERNAL = re.compile(r"\nStacktrace \(.*|\nC\+\+ context: .*|\nCurrent pipeline object is no longer valid\.?", re.DOTALL)


def plain(e):
    """Returns the text of DALI's error without the traceback of the pipeline's definition and the addresses of C++ functions."""
    text = str(e)
    found = _OPERATOR_ERROR.match(text)
    return _INTERNAL.sub("", ": ".join(found.groups()) if found else text).strip()


def refused(e):
    """Returns a response with the error of a run."""
    return InferenceResponse(error=TritonError("DALI refuses the request: %s" % plain(e), TritonError.INVALID_ARG))
