"""Responses to inference requests: those that a model returns, and those that its own calls (BLS) receive."""

import json

from tutti_errors import TritonError, TritonModelException
from tutti_tensor import Tensor


class InferenceResponse:
    """The response to one request: output tensors, or an error."""

    __slots__ = ("_outputs", "_error", "_params", "__weakref__")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        if output_tensors is None:
            raise TypeError("InferenceResponse: expected 'output_tensors' of type list, found NoneType")
        outputs = list(output_tensors)
        for t in outputs:
            if type(t) is not Tensor and not isinstance(t, Tensor):
                if t is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise TypeError("InferenceResponse: expected 'output_tensors' of type list of Tensor, found %s" % kind_of(t))
        if error is not None and not isinstance(error, TritonError):
            raise TypeError("InferenceResponse: expected an error of type TritonError, found %s" % kind_of(error))
        self._outputs, self._error = outputs, error
        self._params = checked_parameters(parameters) if parameters is not None else None

    def output_tensors(self):
        """Returns the output tensors."""
        return self._outputs

    def has_error(self):
        """Reports whether the response is an error."""
        return self._error is not None

    def error(self):
        """Returns the error, or None."""
        return self._error

    def parameters(self):
        """Returns the response parameters as a JSON object."""
        return json.dumps(self._params or {})


def kind_of(v):
    """Returns the name of v's type, for error messages."""
    return type(v).__name__


def checked_parameters(parameters):
    """Returns a copy of parameters. Raises unless keys are str and values are bool, int or str."""
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


def get_output_tensor_by_name(inference_response, name):
    """Returns the output tensor with that name, or None."""
    for t in inference_response.output_tensors():
        if t._name == name:
            return t
    return None
