"""Inferences that a model asks of others (BLS)."""

import tutti_wire as wire
from tutti_errors import TritonError, TritonModelException
from tutti_here import here
from tutti_tensor import made


def run(request, decoupled):
    """Asks and waits for the response, or for nothing: the iterator does."""
    side = _side()
    if decoupled:
        return ResponseIterator(side, request)
    ident, replies = side.start(wire.CALL, request.encoded())
    try:
        flags, body = replies.get()
        return _only(side, ident, request, flags, body)
    finally:
        side.end(ident)


async def start(request, decoupled):
    """Asks and awaits the response. That no thread waits meanwhile lets any number be on their way."""
    import asyncio  # it is there already where this is awaited

    side = _side()
    if decoupled:
        return ResponseIterator(side, request)
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def take(flags, body):
        try:
            loop.call_soon_threadsafe(_settle, future, (flags, body))
        except RuntimeError:
            pass  # the loop has ended, and whoever waited with it

    ident, _ = side.start(wire.CALL, request.encoded(), take=take)
    try:
        flags, body = await future
        return _only(side, ident, request, flags, body)
    except asyncio.CancelledError:
        side.tell_of(wire.ABANDON, ident)
        raise
    finally:
        side.end(ident)


def _settle(future, value):
    if not future.done():
        future.set_result(value)


def _side():
    if not here.executing:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return here.server("an inference")


def _only(side, ident, request, flags, body):
    if not flags & wire.FINAL:
        side.tell_of(wire.ABANDON, ident)
        raise TritonModelException(
            "Model %s is using the decoupled. The current BLS request call doesn't support models using the decoupled transaction "
            "policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
            % request.model_name())
    return response(body)


def response(body):
    """Returns the response that a reply holds."""
    from tutti_request import InferenceResponse

    state, code, text, params, tensors = wire.decode_answer(body)
    if state == wire.ERROR:
        return InferenceResponse([], TritonError(text, code))
    return InferenceResponse([made(name, array, number) for name, number, array in tensors], None, params)


class ResponseIterator:
    """The responses of a decoupled model, as they come. Going over them again, once all have come, starts anew."""

    def __init__(self, side, request):
        self._side, self._over, self._kept, self._at = side, False, [], 0
        self._ident = None
        self._ident, self._replies = side.start(wire.CALL, request.encoded())

    def __iter__(self):
        if self._over and self._at >= len(self._kept):
            self._at = 0
        return self

    def __next__(self):
        if self._at == len(self._kept):
            self._take()
        if self._at == len(self._kept):
            raise StopIteration
        self._at += 1
        return self._kept[self._at - 1]

    def _take(self):
        if self._over:
            return
        flags, body = self._replies.get()
        if flags & wire.FINAL:
            self._over = True
            self._side.end(self._ident)
        if body[0] != wire.NONE:
            self._kept.append(response(body))

    def cancel(self):
        """Wants no more responses. Those on their way may still come."""
        if not self._over:
            self._side.tell_of(wire.ABANDON, self._ident)

    def __del__(self):
        if self._ident is None or self._over:
            return
        try:
            self._side.end(self._ident)
            self._side.tell_of(wire.ABANDON, self._ident)
        except OSError:
            pass  # the server is gone
