"""Reads what a serialized DALI pipeline declares: inputs, outputs, batch size, threads, and operators on a GPU.

A serialized pipeline is the message PipelineDef of DALI's dali.proto. DALI's package has no Python code for it, and DALI itself takes seconds to
import, so the wire format of protobuf is read here. The numbers of fields below are those of dali.proto.
"""

from collections import namedtuple

# Fields of PipelineDef, OpDef, InputOutput and Argument.
_THREADS, _BATCH, _OPERATOR, _LEGACY_INPUT, _OUTPUT = 1, 2, 5, 6, 7
_OP_NAME, _OP_OUTPUT, _OP_ARGUMENT, _OP_INSTANCE = 1, 3, 4, 5
_PORT_NAME, _PORT_DEVICE, _PORT_TYPE, _PORT_RANK = 1, 2, 5, 6
_ARGUMENT_NAME, _ARGUMENT_INTS, _ARGUMENT_STRINGS = 1, 4, 5

# The field device_id of PipelineDef with DALI's value for none, -99999.
_NO_DEVICE = b"\x40\xe1\xf2\xf9\xff\xff\xff\xff\xff\xff\x01"

# Kinds of values in protobuf's wire format. Groups are of no message here.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# The data types that the protocol has, by the numbers of DALIDataType, as config.pbtxt names them.
_TYPES = ("TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16",
          "TYPE_FP32", "TYPE_FP64", "TYPE_BOOL")

# Port is an input or output of a pipeline. dtype and rank, which is that of a sample, are None if they are not declared.
Port = namedtuple("Port", "name dtype rank")

# Graph is what a pipeline declares. gpu has the operators on a GPU, for messages.
Graph = namedtuple("Graph", "batch threads inputs outputs gpu")


class Malformed(Exception):
    """Bytes that are no serialized pipeline."""


def read(data):
    """Returns the Graph of a serialized pipeline. Raises Malformed."""
    if not data:
        raise Malformed("the file is empty")
    pipeline = _fields(data, "pipeline")
    operators = [_fields(o, "operator") for o in pipeline.get(_OPERATOR, ())]
    if not operators or _BATCH not in pipeline:
        raise Malformed("%d bytes that begin with %r have no operators or no batch size" % (len(data), bytes(data[:8])))
    inputs, gpu = [], []
    for operator in operators:
        kind, arguments = _text(operator, _OP_NAME), _arguments(operator)
        instance = _text(operator, _OP_INSTANCE)
        if kind in ("ExternalSource", "_ExternalSource") or "inputs__" in kind:
            layout = _text(arguments.get("layout", {}), _ARGUMENT_STRINGS)  # for example HWC
            rank = _rank(_first(arguments.get("ndim", {}), _ARGUMENT_INTS))
            inputs.append(Port(instance, _dtype(_first(arguments.get("dtype", {}), _ARGUMENT_INTS)), rank if rank is not None else len(layout) or None))
        device = _text(arguments.get("device", {}), _ARGUMENT_STRINGS)
        if device in ("gpu", "mixed") or any(_text(_fields(o, "output"), _PORT_DEVICE) == "gpu" for o in operator.get(_OP_OUTPUT, ())):
            gpu.append("%s '%s'" % (kind, instance) if instance else kind)
    for name in pipeline.get(_LEGACY_INPUT, ()):
        inputs.append(Port(_decoded(name), None, None))
    outputs = [_output(_fields(o, "output")) for o in pipeline.get(_OUTPUT, ())]
    if not outputs:
        raise Malformed("the pipeline has no outputs: the file may be truncated")
    return Graph(_first(pipeline, _BATCH), _first(pipeline, _THREADS), inputs, outputs, gpu)


def on_host(serialized):
    """Returns a serialized pipeline that is built without a GPU. Its own device_id would refuse that on a machine without one, whatever its
    operators are. In protobuf the last value of a field counts."""
    return serialized + _NO_DEVICE


def _output(port):
    return Port(_text(port, _PORT_NAME), _dtype(_first(port, _PORT_TYPE)), _rank(_first(port, _PORT_RANK)))


def _arguments(operator):
    """Returns the arguments of an operator by name. The last one of a name counts."""
    arguments = [_fields(a, "argument") for a in operator.get(_OP_ARGUMENT, ())]
    return {_text(a, _ARGUMENT_NAME): a for a in arguments}


def _dtype(number):
    """Returns the type of a number, None if there is none. A type without a counterpart in the protocol is returned as its number."""
    if number is None or number < 0:
        return None
    return _TYPES[number] if number < len(_TYPES) else number


def _rank(number):
    return None if number is None or number < 0 else number


def _first(fields, number):
    """Returns the first value of a field with a number, or None."""
    values = fields.get(number)
    if not values:
        return None
    value = values[0]
    if not isinstance(value, int):
        raise Malformed("field %d has bytes, expected a number" % number)
    return value - (1 << 64) if value >> 63 else value


def _text(fields, number):
    """Returns the first value of a field with a text, or ""."""
    values = fields.get(number)
    return _decoded(values[0]) if values else ""


def _decoded(value):
    if isinstance(value, int):
        raise Malformed("a field has a number, expected a text")
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as e:
        raise Malformed("a name is no UTF-8: %s" % e) from None


def _fields(data, what):
    """Returns the values of a message by field number: integers, and views of bytes."""
    if isinstance(data, int):
        raise Malformed("a field has a number, expected a message (%s)" % what)
    view, at, fields = memoryview(data), 0, {}
    while at < len(view):
        key, at = _varint(view, at, what)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(view, at, what)
        elif kind == _BYTES:
            size, at = _varint(view, at, what)
            value, at = _slice(view, at, size, what)
        elif kind in (_FIXED64, _FIXED32):
            _, at = _slice(view, at, 8 if kind == _FIXED64 else 4, what)
            continue  # floats and hashes, which are of no interest here
        else:
            raise Malformed("byte %d of a message (%s) has no kind of protobuf" % (at - 1, what))
        fields.setdefault(number, []).append(value)
    return fields


def _slice(view, at, size, what):
    if size > len(view) - at:
        raise Malformed("a message (%s) of %d bytes ends in a value of %d bytes at byte %d: the file is truncated, or is no pipeline"
                        % (what, len(view), size, at))
    return view[at:at + size], at + size


def _varint(view, at, what):
    value = shift = 0
    while at < len(view) and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise Malformed("a message (%s) of %d bytes ends in a number: the file is truncated, or is no pipeline" % (what, len(view)))
