"""Inferences that a model asks of others (BLS)."""

import queue

import tutti_wire as wire
from tutti_errors import TritonError, TritonModelException
from tutti_here import here
from tutti_tensor import made


def run(request, decoupled):
    """Sends a request and waits: for its response, or for the first of a decoupled call, whose iterator waits for the others."""
    side = _side()
    if decoupled:
        responses = ResponseIterator(side, request)
        responses._take()
        return responses
    ident, replies = side.start(wire.CALL, request.encoded(False))
    try:
        return response(replies.get()[1])
    finally:
        side.end(ident)


def start(request, decoupled):
    """Sends a request and returns a future of what run returns. No thread waits meanwhile, so any number may be on their way."""
    import asyncio  # it is there already where this is awaited

    loop = asyncio.get_running_loop()
    first = loop.create_future()

    def tell(flags, body):
        try:
            loop.call_soon_threadsafe(_settle, first, body)
        except RuntimeError:
            pass  # the loop has ended, and whoever waited with it

    side = _side()
    if decoupled:
        return asyncio.ensure_future(_first(ResponseIterator(side, request, tell), first))
    ident, _ = side.start(wire.CALL, request.encoded(False), take=tell)
    return asyncio.ensure_future(_only(side, ident, first))


def _settle(future, value):
    if not future.done():
        future.set_result(value)


async def _only(side, ident, first):
    import asyncio

    try:
        return response(await first)
    except asyncio.CancelledError:
        side.tell_of(wire.ABANDON, ident)
        raise
    finally:
        side.end(ident)


async def _first(responses, first):
    await first
    return responses


def _side():
    if not here.executing:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return here.server("an inference")


def response(body):
    """Returns the response that a reply holds. The last one of a decoupled model may be empty."""
    from tutti_request import InferenceResponse

    state, code, text, params, tensors = wire.decode_answer(body)
    if state == wire.ERROR:
        return InferenceResponse([], TritonError(text, code))
    r = InferenceResponse([made(name, array, number) for name, number, array in tensors])
    r._params = params or None
    return r


class ResponseIterator:
    """The responses of a decoupled call, as they come: those of a decoupled model end with an empty one unless the model marks
    another as the last. Going over them again, once all have come, starts anew."""

    def __init__(self, side, request, tell=None):
        self._side, self._over, self._kept, self._at = side, False, [], 0
        self._ident, self._replies = None, queue.SimpleQueue()
        put = self._replies.put  # not self, which is to be dropped while the call goes on

        def take(flags, body):
            put((flags, body))
            if tell is not None:
                tell(flags, body)

        self._ident, _ = side.start(wire.CALL, request.encoded(True), take=take)

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
        self._kept.append(response(body))

    def cancel(self):
        """Asks the model to end. What it sends nevertheless is among the responses."""
        if not self._over:
            self._side.tell_of(wire.CANCEL, self._ident)

    def __del__(self):
        if self._ident is None or self._over or self._side is not here.side:
            return
        try:
            self._side.end(self._ident)
            self._side.tell_of(wire.ABANDON, self._ident)
        except OSError:
            pass  # the server is gone
