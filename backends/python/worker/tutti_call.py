"""Calls of other models from a model (business logic scripting, BLS)."""

import queue

import tutti_wire as wire
from tutti_errors import TritonModelException, received
from tutti_process import process
from tutti_response import InferenceResponse
from tutti_tensor import new_tensor


def run(request, decoupled):
    """Sends a request and waits for the response. A decoupled call waits for the first response; its iterator waits for the rest."""
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
    """Sends a request and returns a future of the result of run. No thread is blocked, so any number of calls may be in flight."""
    import asyncio  # imported already by any caller that can await

    loop = asyncio.get_running_loop()
    first = loop.create_future()

    def notify(flags, body):
        try:
            loop.call_soon_threadsafe(_settle, first, body)
        except RuntimeError:
            pass  # the loop is closed, so nothing awaits the response

    side = _side()
    if decoupled:
        return asyncio.ensure_future(_first(ResponseIterator(side, request, notify), first))
    ident, _ = side.start(wire.CALL, request.encoded(False), take=notify)
    return asyncio.ensure_future(_only(side, ident, first))


def _settle(future, value):
    if not future.done():
        future.set_result(value)


async def _only(side, ident, first):
    import asyncio

    try:
        return response(await first)
    except asyncio.CancelledError:
        side.send_for(wire.ABANDON, ident)
        raise
    finally:
        side.end(ident)


async def _first(responses, first):
    await first
    return responses


def _side():
    if not process.executing:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return process.server("an inference")


def response(body):
    """Decodes the response in the body of a reply. The last response of a decoupled model may be empty."""
    state, code, text, params, tensors = wire.decode_response(body)
    if state == wire.ERROR:
        return InferenceResponse([], received(text, code, params))
    r = InferenceResponse([new_tensor(name, array, number) for name, number, array in tensors])
    r._params = params or None
    return r


class ResponseIterator:
    """Iterates over the responses of a decoupled call as they arrive. The last one is empty unless the model marked a response
    as final. After the last response, a new iteration starts again from the first."""

    def __init__(self, side, request, notify=None):
        self._side, self._done, self._received, self._at = side, False, [], 0
        self._ident, self._replies = None, queue.SimpleQueue()
        put = self._replies.put  # not self: the iterator may be collected while the call runs

        def take(flags, body):
            put((flags, body))
            if notify is not None:
                notify(flags, body)

        self._ident, _ = side.start(wire.CALL, request.encoded(True), take=take)

    def __iter__(self):
        if self._done and self._at >= len(self._received):
            self._at = 0
        return self

    def __next__(self):
        if self._at == len(self._received):
            self._take()
        if self._at == len(self._received):
            raise StopIteration
        self._at += 1
        return self._received[self._at - 1]

    def _take(self):
        if self._done:
            return
        flags, body = self._replies.get()
        if flags & wire.FINAL:
            self._done = True
            self._side.end(self._ident)
        self._received.append(response(body))

    def cancel(self):
        """Requests cancellation of the call. Responses that the model still sends are delivered."""
        if not self._done:
            self._side.send_for(wire.CANCEL, self._ident)

    def __del__(self):
        if self._ident is None or self._done or self._side is not process.side:
            return
        try:
            self._side.end(self._ident)
            self._side.send_for(wire.ABANDON, self._ident)
        except OSError:
            pass  # the server has exited
