"""Completes the configuration of a pipeline from what it declares, and checks it, by the rules and in the words of Triton's DALI backend."""

from triton_python_backend_utils import TritonError, TritonModelException

# The separator of names in the parameter split_along_outer_axis.
_SEPARATOR = ":"

# Data types of config.pbtxt that DALI has.
_KNOWN = frozenset("TYPE_" + t for t in (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"))


class Refusal(TritonModelException):
    """A pipeline or configuration that cannot be served. Its text is for the user, who sees no traceback."""

    def __init__(self, text, code=TritonError.INVALID_ARG):
        super().__init__(TritonError(text, code))


def parameter(config, key):
    """Returns the value of a parameter, or ""."""
    return config.get("parameters", {}).get(key, {}).get("string_value", "")


def threads(config, graph):
    """Returns the number of threads of a pipeline."""
    text = parameter(config, "num_threads")
    if not text:
        return graph.threads if graph.threads and graph.threads > 0 else 1
    if not text.isdecimal() or not 0 < int(text) <= 4096:
        raise Refusal("unexpected value '%s' of parameter 'num_threads': expected an integer from 1 to 4096" % text)
    return int(text)


def split(config):
    """Returns the names of the outputs whose samples are joined along their first dimension."""
    names = [name for name in parameter(config, "split_along_outer_axis").split(_SEPARATOR) if name]
    outputs = [o.get("name") for o in config.get("output", ())]
    for name in names:
        if name not in outputs:
            raise Refusal("parameter 'split_along_outer_axis' names '%s', expected outputs of the model: %s" % (name, ", ".join(map(str, outputs))))
    return frozenset(names)


def complete(config, graph, batched):
    """Completes inputs, outputs, max_batch_size and dynamic batching. batched is false for a model with max_batch_size: 0."""
    joined = frozenset(parameter(config, "split_along_outer_axis").split(_SEPARATOR))
    inputs = config.setdefault("input", [])
    _check_inputs(inputs, graph.inputs)
    for port in graph.inputs:
        given = _named(inputs, port.name)
        if given is None:
            given = {}
            inputs.append(given)
        _complete(given, port, batched)
        if batched:
            given.setdefault("allow_ragged_batch", True)
    outputs = config.setdefault("output", [])
    if len(outputs) > len(graph.outputs):
        raise _counts(outputs, graph.outputs)
    outputs.extend({} for _ in range(len(graph.outputs) - len(outputs)))
    for given, port in zip(outputs, graph.outputs):
        given.setdefault("name", port.name)
        _complete(given, _joined(port, given["name"] in joined), batched)
    if not batched:
        return
    if config.get("max_batch_size", 0) <= 0:
        config["max_batch_size"] = graph.batch
    if not any(kind in config for kind in ("dynamic_batching", "sequence_batching")):
        config["dynamic_batching"] = {}


def check(config, graph, batched):
    """Raises Refusal unless a complete configuration fits the pipeline."""
    if config.get("max_batch_size", 0) <= 0 and batched:
        raise Refusal("Missing max_batch_size field in model configuration.")
    joined, inputs, outputs = split(config), config.get("input", []), config.get("output", [])
    _check_inputs(inputs, graph.inputs)
    for port in graph.inputs:
        given = _named(inputs, port.name)
        if given is None:
            raise Refusal('Missing config for "%s" input.' % port.name)
        _check(given, port, batched, "input")
    if len(outputs) != len(graph.outputs):
        raise _counts(outputs, graph.outputs)
    for given, port in zip(outputs, graph.outputs):
        _check(given, _joined(port, given.get("name") in joined), batched, "output")


def _named(ports, name):
    return next((p for p in ports if p.get("name") == name), None)


def _joined(port, joined):
    """Returns an output without the dimension along which its samples are joined."""
    return port._replace(rank=port.rank - 1) if joined and port.rank else port


def _check_inputs(inputs, declared):
    names = [p.name for p in declared]
    for given in inputs:
        if given.get("name") not in names:
            raise Refusal("Configuration file contains config for %s but such input is not present in the pipeline. Its inputs, "
                          "the names of its external sources, are: %s" % (given.get("name"), ", ".join(names) or "none"))


def _counts(outputs, declared):
    return Refusal("The number of outputs specified in the DALI pipeline and the configuration file do not match.\n"
                   "Model config outputs: %d\nPipeline outputs: %d" % (len(outputs), len(declared)))


def _complete(given, port, batched):
    given.setdefault("name", port.name)
    _check_dtype(given, port)
    if given.get("data_type", "TYPE_INVALID") == "TYPE_INVALID" and port.dtype is not None:
        given["data_type"] = port.dtype
    dims = _dims(given)
    if port.rank is None:
        return
    declared = [-1] * (port.rank if batched else port.rank + 1)
    if not dims:
        given["dims"] = declared
    else:
        _check_rank(given, dims, declared)


def _check(given, port, batched, kind):
    _check_dtype(given, port)
    name, dtype = given.get("name"), given.get("data_type", "TYPE_INVALID")
    if dtype == "TYPE_INVALID":
        raise Refusal('Missing data_type config for "%s": add data_type to the configuration, or %s'
                      % (name, "dtype to the external source" if kind == "input" else "output_dtype to pipeline_def"))
    if dtype not in _KNOWN:
        raise Refusal("data type %s of %s '%s' is none of DALI's" % (dtype, kind, name), TritonError.UNSUPPORTED)
    dims = _dims(given)
    if not dims:
        raise Refusal('Missing dims config for "%s": add dims to the configuration, or %s'
                      % (name, "ndim to the external source" if kind == "input" else "output_ndim to pipeline_def"))
    if port.rank is not None:
        _check_rank(given, dims, [-1] * (port.rank if batched else port.rank + 1))


def _dims(given):
    # The JSON form of a protobuf message has 64-bit integers as strings, for example "dims": ["3"].
    return [int(d) for d in given.get("dims", ())]


def _check_dtype(given, port):
    if isinstance(port.dtype, int):
        raise Refusal("'%s' has DALI's data type %d, which the protocol has no counterpart of" % (port.name, port.dtype), TritonError.UNSUPPORTED)
    found = given.get("data_type", "TYPE_INVALID")
    if port.dtype is not None and found not in ("TYPE_INVALID", port.dtype):
        raise Refusal('Mismatch of data_type config for "%s".\nData type defined in config: %s\nData type defined in pipeline: %s'
                      % (given.get("name"), found, port.dtype))


def _check_rank(given, dims, declared):
    if len(dims) != len(declared):
        raise Refusal('Mismatch in number of dimensions for "%s"\nNumber of dimensions defined in config: %d\n'
                      "Number of dimensions defined in pipeline: %d" % (given.get("name"), len(dims), len(declared)))
