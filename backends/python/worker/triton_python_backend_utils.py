"""What a model.py imports as triton_python_backend_utils."""

import numpy as np

import tutti_wire as wire


class TritonError:
    """A failure with a code."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message, code=INTERNAL):
        self._message, self._code = message, code

    def message(self):
        return self._message

    def code(self):
        return self._code

    def __str__(self):
        return self._message


class TritonModelException(Exception):
    """A failure of the server's side."""


class Tensor:
    """A named array."""

    __slots__ = ("_name", "_array", "_number")

    def __init__(self, name, array, number=0):
        self._name, self._array = name, array
        self._number = number or number_of(array)

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array

    def shape(self):
        return self._array.shape

    def triton_dtype(self):
        return self._number


_numbers = {t: i for i, t in enumerate(wire.TYPES) if t is not None and i != 14}


def number_of(array):
    """Returns the number of the data type of an array's elements."""
    number = _numbers.get(array.dtype)
    if number is None:
        number = wire.BYTES if array.dtype.kind in "SUO" else 0
    return number


class InferenceRequest:
    """One request of an execution."""

    def __init__(self, inputs=None):
        self._inputs = inputs or []

    def inputs(self):
        return self._inputs


class InferenceResponse:
    """One answer."""

    def __init__(self, output_tensors=(), error=None, parameters=None):
        self._outputs, self._error, self._params = output_tensors, error, parameters

    def output_tensors(self):
        return self._outputs

    def error(self):
        return self._error

    def has_error(self):
        return self._error is not None


def get_input_tensor_by_name(request, name):
    for t in request._inputs:
        if t._name == name:
            return t
    return None
