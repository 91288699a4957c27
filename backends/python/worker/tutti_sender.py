"""Responses that are sent rather than returned."""

import struct
import threading

import tutti_wire as wire
from tutti_errors import ErrorCode, TritonModelException
from tutti_here import here

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

_PLACE = struct.Struct("<II")


class InferenceResponseSender:
    """Sends the responses to one request. One that is dropped ends the request."""

    def __init__(self, execution, index, decoupled):
        self._place, self._decoupled = _PLACE.pack(execution & 0xFFFFFFFF, index), decoupled
        self._lock = threading.Lock()
        self._sent, self._closed = 0, False

    def send(self, response=None, flags=0):
        """Sends a response. flags say whether it is the last; the last alone may be None. Waits while the client is slow."""
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and flags == 0:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        self._count(response, flags)
        if response is None and not self._decoupled:
            return  # the one response was sent before
        final = flags or not self._decoupled
        body = encoded(response, self._place)
        said, reply = here.server("a response").ask(wire.SEND, body, wire.FINAL if final else 0)
        if len(reply) >= wire.ANSWER.size:
            state, code, text, _, _ = wire.decode_answer(reply)
            if state == wire.ERROR and code != ErrorCode.CANCELLED:  # a client that has gone takes all it is sent
                raise TritonModelException("An error occurred while sending a response. " + text)

    def is_cancelled(self):
        """Reports whether nobody waits for responses any more."""
        flags, _ = here.server("is_cancelled").ask(wire.CANCELLED, self._place)
        return bool(flags & wire.YES)

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
        """Reports whether the last response was sent, or need not be."""
        return self._closed or (self._sent > 0 and not self._decoupled)

    def close(self):
        """Takes no more responses: the request ends otherwise."""
        self._closed = True

    def fail(self, text):
        """Ends the request with an error, unless it has ended."""
        if self.closed() or here.side is None:
            return
        self._closed = True
        extra = wire.answer_extra(text)
        answer = wire.ANSWER.pack(wire.ERROR, ErrorCode.INTERNAL, 0, len(extra)) + extra
        here.side.tell(wire.SEND, self._place + answer, wire.FINAL)

    def __del__(self):
        if self.closed() or here.side is None or here.forks:
            return  # a forked process has copies of what its worker still uses
        try:
            if self._decoupled:
                self._closed = True
                here.side.tell(wire.SEND, self._place + wire.ANSWER.pack(wire.NONE, 0, 0, 0), wire.FINAL)
            else:
                self.fail("model '%s' in '%s' dropped a request without a response" % (here.model, here.folder))
        except OSError:
            pass  # the server is gone


def encoded(response, place):
    """Returns the body of a SEND: a request's place, and a response."""
    if response is None:
        return place + wire.ANSWER.pack(wire.NONE, 0, 0, 0)
    error = response.error()
    if error is not None:
        extra = wire.answer_extra(error.message())
        return place + wire.ANSWER.pack(wire.ERROR, error.code(), 0, len(extra)) + extra
    tensors = [(t._number, t._array.shape, wire.raw_of(t._number, t._array)) for t in response.output_tensors()]
    return wire.encode_answer(tensors, [t._name for t in response.output_tensors()], params=response._params).after(place)
