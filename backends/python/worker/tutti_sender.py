"""The response sender: responses that a model sends instead of returning them."""

import struct
import threading

import tutti_wire as wire
from tutti_errors import ErrorCode, TritonModelException
from tutti_process import process

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

_PLACE = struct.Struct("<II")


class InferenceResponseSender:
    """Sends the responses of one request. A sender that is collected without a final response ends the request."""

    def __init__(self, execution, index, decoupled):
        self._place, self._decoupled = _PLACE.pack(execution & 0xFFFFFFFF, index), decoupled
        self._lock = threading.Lock()
        self._sent, self._closed = 0, False

    def send(self, response=None, flags=0):
        """Sends a response. TRITONSERVER_RESPONSE_COMPLETE_FINAL marks the last one, which may be None. Blocks while the client
        is slow."""
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        self._count(response, flags)
        if response is None and not self._decoupled:
            return  # the one response was sent before
        final = flags or not self._decoupled
        body = encoded(response, self._place)
        _, reply = process.server("a response").call(wire.SEND, body, wire.FINAL if final else 0)
        if len(reply) >= wire.RESPONSE.size:
            state, code, text, _, _ = wire.decode_response(reply)
            if state == wire.ERROR and code != ErrorCode.CANCELLED:  # a send to a disconnected client succeeds
                raise TritonModelException("An error occurred while sending a response. " + text)

    def is_cancelled(self):
        """Reports whether the client cancelled the request or disconnected."""
        flags, _ = process.server("is_cancelled").call(wire.CANCELLED, self._place)
        return bool(flags & wire.TRUE)

    def _count(self, response, flags):
        with self._lock:
            if not self._decoupled:
                if response is not None and self._sent:
                    raise TritonModelException("Unable to send response. Non-decoupled model cannot send more than one response.")
                if response is None and not self._sent:
                    raise TritonModelException(
                        "Unable to send response. Non-decoupled model cannot send complete final before sending a response.")
            if self._closed:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
            self._closed = bool(flags)
            self._sent += 1

    def closed(self):
        """Reports whether no further response may be sent."""
        return self._closed or (self._sent > 0 and not self._decoupled)

    def close(self):
        """Rejects further responses. The caller ends the request."""
        self._closed = True

    def fail(self, text, error=None):
        """Ends the request with an error unless it has ended. The error has the code and the details of a TritonError, if one is given."""
        if self.closed() or process.side is None:
            return
        self._closed = True
        extra = wire.response_extra(text, error._details if error is not None else None)
        code = ErrorCode.INTERNAL if error is None else error.code()
        response = wire.RESPONSE.pack(wire.ERROR, code, 0, len(extra)) + extra
        process.side.send(wire.SEND, self._place + response, wire.FINAL)

    def __del__(self):
        if self.closed() or process.side is None or process.forks:
            return  # a forked process holds copies of senders that its worker still uses
        try:
            if self._decoupled:
                self._closed = True
                process.side.send(wire.SEND, self._place + wire.RESPONSE.pack(wire.NONE, 0, 0, 0), wire.FINAL)
            else:
                self.fail("model '%s' in '%s' dropped a request without a response" % (process.model, process.folder))
        except OSError:
            pass  # the server has exited


def encoded(response, place):
    """Returns the body of a SEND packet: the request's place in its execution, and a response."""
    if response is None:
        return place + wire.RESPONSE.pack(wire.NONE, 0, 0, 0)
    error = response.error()
    if error is not None:
        extra = wire.response_extra(error.message(), error._details)
        return place + wire.RESPONSE.pack(wire.ERROR, error.code(), 0, len(extra)) + extra
    return wire.encode_response(wire.raw_tensors(response.output_tensors()), [t._name for t in response.output_tensors()], params=response._params).after(place)
