"""Requests and responses: those a model gets and gives, and those it makes of other models (BLS)."""

import enum
import json
import operator
import time

import tutti_call as call
import tutti_wire as wire
from tutti_errors import TritonError, TritonModelException
from tutti_here import here
from tutti_sender import InferenceResponseSender
from tutti_tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

_TEXT_CORRELATION, _MANY = 4, 8  # flags of the wire's


class MemoryType(enum.IntEnum):
    """Where outputs may lie."""

    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 1


class PreferredMemory:
    """Where the outputs of an inference should lie. They lie in the host's memory whatever is preferred."""

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        self._kind, self._device = MemoryType(preferred_memory_type), preferred_device_id


class InferenceTrace:
    """The trace that a request belongs to."""

    def __init__(self, context=None):
        self._context = context

    def get_context(self):
        """Returns the context as text, None when the request is not traced."""
        return self._context


class InferenceRequest:
    """One request: of an execution, or to be made of another model."""

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
        self._priority, self._params = 0, checked(parameters)
        self._memory, self._trace = preferred_memory, trace or InferenceTrace()
        self._sender = self._place = self._extra = None
        self._release = TRITONSERVER_REQUEST_RELEASE_ALL

    def inputs(self):
        """Returns the tensors."""
        return self._inputs

    def request_id(self):
        """Returns the client's id."""
        self._read()
        return self._id

    def correlation_id(self):
        """Returns the id of the sequence, a number or text; 0 without one."""
        self._read()
        return self._correlation

    def model_name(self):
        """Returns the name of the model that is asked."""
        return self._model

    def model_version(self):
        """Returns the version that is asked; -1 for any."""
        return self._version

    def flags(self):
        """Returns TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END, or'ed."""
        return self._flags

    def set_flags(self, flags):
        """Sets what flags returns."""
        self._flags = int(flags)

    def timeout(self):
        """Returns the microseconds that the client allows, 0 without a limit."""
        return self._timeout

    def priority(self):
        """Returns the priority, 1 the highest; 0 the model's own."""
        return self._priority

    def parameters(self):
        """Returns the parameters, as a JSON object."""
        self._read()
        return json.dumps(self._params)

    def preferred_memory(self):
        """Returns what was preferred."""
        return self._memory

    def trace(self):
        """Returns the trace."""
        self._read()
        return self._trace

    def requested_output_names(self):
        """Returns the names of the outputs that are wanted, a set."""
        self._read()
        return set(self._outputs)

    def set_release_flags(self, flags):
        """Says what becomes of the request after execute: it is done, or it is to be executed again (RESCHEDULE)."""
        if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
            raise TritonModelException("expected TRITONSERVER_REQUEST_RELEASE_ALL or _RESCHEDULE, found %s" % flags)
        self._release = flags

    def get_response_sender(self):
        """Returns what sends responses, from any thread and after execute, too."""
        if self._sender is None:
            if self._place is None:
                raise TritonModelException("a request made by a model has no response sender")
            self._sender = InferenceResponseSender(*self._place)
        return self._sender

    def is_cancelled(self):
        """Reports whether nobody waits for the response any more."""
        return self._place is not None and self.get_response_sender().is_cancelled()

    def exec(self, decoupled=False):
        """Asks the model and waits. Returns its response, or an iterator over the responses of a decoupled model."""
        return call.run(self, decoupled)

    def async_exec(self, decoupled=False):
        """Does what exec does, to be awaited."""
        return call.start(self, decoupled)

    def _read(self):
        """Reads what is seldom asked for."""
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
        """Returns the request as a CALL, decoupled when any number of responses is expected."""
        began = time.perf_counter()
        tensors = [(t._number, t._array.shape, wire.raw_of(t._number, t._array)) for t in self._inputs]
        return wire.encode_request(self._model, self._version, tensors, [t._name for t in self._inputs], self._outputs, self._id,
                                   self._correlation, self._priority, self._timeout, self._flags & 3 | (_MANY if decoupled else 0), self._params,
                                   began)


_no_trace = InferenceTrace()


def received(inputs, head, extra, place, outputs):
    """Returns a request of an execution. head are its fields, extra a reader of its rest or None."""
    r = InferenceRequest.__new__(InferenceRequest)
    r._inputs, r._outputs, r._place = inputs, outputs, place
    r._correlation, r._priority, r._timeout, flags = head
    r._flags = flags & 3
    r._id, r._params, r._memory, r._trace, r._sender = "", {}, None, _no_trace, None
    r._model, r._version = here.model, -1
    r._release = TRITONSERVER_REQUEST_RELEASE_ALL
    r._extra = None if extra is None else (extra, flags & _TEXT_CORRELATION)
    return r


class InferenceResponse:
    """The response to one request: tensors, or an error."""

    __slots__ = ("_outputs", "_error", "_params", "__weakref__")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        if output_tensors is None:
            raise TypeError("InferenceResponse: expected 'output_tensors' of type list, found NoneType")
        outputs = list(output_tensors)
        for t in outputs:
            if type(t) is not Tensor and not isinstance(t, Tensor):
                if t is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise TypeError("InferenceResponse: expected 'output_tensors' of type list of Tensor, found %s" % _kind(t))
        if error is not None and not isinstance(error, TritonError):
            raise TypeError("InferenceResponse: expected an error of type TritonError, found %s" % _kind(error))
        self._outputs, self._error = outputs, error
        self._params = checked(parameters) if parameters is not None else None

    def output_tensors(self):
        """Returns the tensors."""
        return self._outputs

    def has_error(self):
        """Reports whether it is an error."""
        return self._error is not None

    def error(self):
        """Returns the error, or None."""
        return self._error

    def parameters(self):
        """Returns the parameters, as a JSON object."""
        return json.dumps(self._params or {})


def _kind(v):
    return type(v).__name__


def _wrong(name, expected, value):
    return TypeError("InferenceRequest: expected '%s' of type %s, found %s" % (name, expected, _kind(value)))


def _text(name, value):
    if isinstance(value, (bytes, bytearray)):  # as the elements of a BYTES tensor are
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


def checked(parameters):
    """Returns a copy of parameters whose keys and values can travel."""
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TritonModelException("Expect dict, got %s" % type(parameters))
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException("Expect parameters keys to have type str, found type %s" % type(key))
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException("Expect parameters values to have type bool/int/str, found type %s" % type(value))
    return dict(parameters)


def get_input_tensor_by_name(inference_request, name):
    """Returns an input of a request, None when there is none of the name."""
    for t in inference_request.inputs():
        if t._name == name:
            return t
    return None


def get_output_tensor_by_name(inference_response, name):
    """Returns an output of a response, None when there is none of the name."""
    for t in inference_response.output_tensors():
        if t._name == name:
            return t
    return None
