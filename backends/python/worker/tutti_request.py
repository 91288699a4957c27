"""Inference requests: those that a model receives, and those that it sends to other models (BLS)."""

import enum
import json
import operator
import time

import tutti_call as call
import tutti_wire as wire
from tutti_errors import TritonModelException
from tutti_process import process
from tutti_response import checked_parameters, kind_of
from tutti_sender import InferenceResponseSender
from tutti_tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

_TEXT_CORRELATION, _DECOUPLED = 4, 8  # further request flags of the packet format


class MemoryType(enum.IntEnum):
    """Kinds of memory that outputs may be in."""

    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 1


class PreferredMemory:
    """The memory that a call's outputs should be in. Without it they are where the called model leaves them."""

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        self._kind, self._device = MemoryType(preferred_memory_type), operator.index(preferred_device_id)

    def _wanted(self):
        """Returns the preference as wire.encode_request takes it."""
        if self._kind == MemoryType.TRITONSERVER_MEMORY_CPU:
            return 1
        if not 0 <= self._device < 1 << 15:
            raise TritonModelException("PreferredMemory: expected a GPU from 0 on, found %d" % self._device)
        return 2 + self._device


class InferenceTrace:
    """The trace of a request."""

    def __init__(self, context=None):
        self._context = context

    def get_context(self):
        """Returns the trace context as JSON text, or None when the request is not traced."""
        return self._context


class InferenceRequest:
    """One request: received by execute, or created by the model to call another model."""

    __slots__ = ("_inputs", "_outputs", "_id", "_correlation", "_flags", "_timeout", "_priority", "_params", "_model", "_version",
                 "_memory", "_trace", "_release", "_sender", "_place", "_extra", "__weakref__")

    def __init__(self, request_id="", correlation_id=0, inputs=None, requested_output_names=None, model_name=None,
                 model_version=-1, flags=0, timeout=0, preferred_memory=None, trace=None, parameters=None):
        if not isinstance(correlation_id, (int, str)):
            raise (TypeError if correlation_id is None else TritonModelException)("Correlation ID must be integer or string")
        self._id, self._model = _text("request_id", request_id), _text("model_name", model_name)
        self._inputs, self._outputs = _tensors(inputs, request_id, model_name), _names(requested_output_names, request_id, model_name)
        self._correlation, self._version = correlation_id, _number("model_version", model_version)
        self._flags, self._timeout = _number("flags", flags, 0), _number("timeout", timeout, 0)
        self._priority, self._params = 0, checked_parameters(parameters)
        self._memory, self._trace = preferred_memory, trace or InferenceTrace()
        self._sender = self._place = self._extra = None
        self._release = TRITONSERVER_REQUEST_RELEASE_ALL

    def inputs(self):
        """Returns the input tensors."""
        return self._inputs

    def request_id(self):
        """Returns the request id that the client set."""
        self._read()
        return self._id

    def correlation_id(self):
        """Returns the correlation id of the sequence, an int or a str; 0 when there is none."""
        self._read()
        return self._correlation

    def model_name(self):
        """Returns the name of the requested model."""
        return self._model

    def model_version(self):
        """Returns the requested version; -1 for any."""
        return self._version

    def flags(self):
        """Returns the bitwise or of TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END."""
        return self._flags

    def set_flags(self, flags):
        """Sets the sequence flags."""
        self._flags = int(flags)

    def timeout(self):
        """Returns the client's timeout in microseconds; 0 means no limit."""
        return self._timeout

    def priority(self):
        """Returns the priority; 1 is the highest, 0 means the model's default."""
        return self._priority

    def parameters(self):
        """Returns the request parameters as a JSON object."""
        self._read()
        return json.dumps(self._params)

    def preferred_memory(self):
        """Returns the preferred memory that the constructor was given."""
        return self._memory

    def trace(self):
        """Returns the trace."""
        self._read()
        return self._trace

    def requested_output_names(self):
        """Returns the set of requested output names."""
        self._read()
        return set(self._outputs)

    def set_release_flags(self, flags):
        """Sets what happens after execute: the request is released (ALL), or it is executed again (RESCHEDULE)."""
        if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
            raise TritonModelException("expected TRITONSERVER_REQUEST_RELEASE_ALL or _RESCHEDULE, found %s" % flags)
        self._release = flags

    def get_response_sender(self):
        """Returns the response sender. It may be used from any thread, and after execute has returned."""
        if self._sender is None:
            if self._place is None:
                raise TritonModelException("a request made by a model has no response sender")
            self._sender = InferenceResponseSender(*self._place)
        return self._sender

    def is_cancelled(self):
        """Reports whether the client cancelled the request or disconnected."""
        return self._place is not None and self.get_response_sender().is_cancelled()

    def exec(self, decoupled=False):
        """Calls the model and waits. Returns the response; with decoupled=True, an iterator over the responses."""
        return call.run(self, decoupled)

    def async_exec(self, decoupled=False):
        """Is exec as an awaitable."""
        return call.start(self, decoupled)

    def _read(self):
        """Decodes the fields that few requests have, on first use."""
        if self._extra is None:
            return
        reader, text = self._extra
        self._extra = None
        self._id = reader.string()
        name = reader.string()
        if text:
            self._correlation = name
        self._params = reader.params()
        self._outputs = reader.strings() or self._outputs
        context = reader.string()
        if context:
            self._trace = InferenceTrace(context)

    def encoded(self, decoupled):
        """Returns the body of a CALL packet. decoupled allows any number of responses."""
        began = time.perf_counter()
        return wire.encode_request(self._model, self._version, wire.raw_tensors(self._inputs), [t._name for t in self._inputs], self._outputs, self._id,
                                   self._correlation, self._priority, self._timeout, self._flags & 3 | (_DECOUPLED if decoupled else 0), self._params,
                                   began, self._memory._wanted() if self._memory is not None else 0)


_no_trace = InferenceTrace()


def received(inputs, head, extra, place, outputs):
    """Returns a request of an EXECUTE packet. head are its fixed fields; extra is a Reader of its extra part, or None."""
    r = InferenceRequest.__new__(InferenceRequest)
    r._inputs, r._outputs, r._place = inputs, outputs, place
    r._correlation, r._priority, r._timeout, flags = head
    r._flags = flags & 3
    r._id, r._params, r._memory, r._trace, r._sender = "", {}, None, _no_trace, None
    r._model, r._version = process.model, -1
    r._release = TRITONSERVER_REQUEST_RELEASE_ALL
    r._extra = None if extra is None else (extra, flags & _TEXT_CORRELATION)
    return r


def _wrong(name, expected, value):
    return TypeError("InferenceRequest: expected '%s' of type %s, found %s" % (name, expected, kind_of(value)))


def _text(name, value):
    if isinstance(value, (bytes, bytearray)):  # for example an element of a BYTES tensor
        return value.decode()
    if not isinstance(value, str):
        raise _wrong(name, "str", value)
    return value


def _number(name, value, least=-1):
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(name, "int", value) from None
    if number < least:
        raise TypeError("InferenceRequest: expected '%s' to be at least %d, found %d" % (name, least, number))
    return number


def _list(name, values):
    try:
        return list(values)
    except TypeError:
        raise _wrong(name, "list", values) from None


def _tensors(inputs, request, model):
    inputs = _list("inputs", inputs)
    for t in inputs:
        if t is None:
            raise TritonModelException("Input tensor for request with id '%s' and model name '%s' should not be empty."
                                       % (request, model))
        if not isinstance(t, Tensor):
            raise _wrong("inputs", "list of Tensor", t)
    return inputs


def _names(names, request, model):
    names = [_text("requested_output_names", name) for name in _list("requested_output_names", names)]
    for name in names:
        if name == "":
            raise TritonModelException("Requested output name for request with id '%s' and model name '%s' should not be empty."
                                       % (request, model))
    return list(dict.fromkeys(names))


def get_input_tensor_by_name(inference_request, name):
    """Returns the input tensor with that name, or None."""
    for t in inference_request.inputs():
        if t._name == name:
            return t
    return None
