"""Executions: requests out of shared memory, and responses into it."""

import sys
from types import CoroutineType

import numpy as np

import tutti_wire as wire
from tutti_errors import TritonModelException, failure
from tutti_here import here
from tutti_request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceResponse, received
from tutti_service import log_failure
from tutti_tensor import made

_LEFT = wire.ANSWER.pack(wire.NONE, 0, 0, 0)
_AGAIN = wire.ANSWER.pack(wire.AGAIN, 0, 0, 0)

# From what size on inputs are written over: less stays in the cache anyhow.
_LARGE = 256 << 10

# How many layouts of requests are remembered, and of how many bytes at most.
_LAYOUTS, _LAYOUT = 64, 512


class Execution:
    """What is known of a model to execute it."""

    def __init__(self, regions, coroutine):
        self.regions, self.coroutine = regions, coroutine
        self.execute = None
        self.inputs = self.outputs = ()
        self.places = {}
        self.decoupled = False
        self.layouts = {}  # by the bytes of a description: a request's head, and its tensors'
        self.bodies = {}  # by name, number and shape of the only output of an only answer, and the region's size

    def serve(self, model, inputs, outputs, decoupled):
        """Executes requests with a model from now on. inputs and outputs are (name, data type), in the order of indices."""
        self.execute = model.execute
        self.inputs, self.outputs = [name for name, _ in inputs], [name for name, _ in outputs]
        self.places = {name: i for i, name in enumerate(self.outputs)}
        self.decoupled = decoupled

    def run(self, ident, body):
        """Executes an EXECUTE and returns the body and flags of its DONE."""
        count, source, target, _, used, _ = wire.EXECUTION.unpack_from(body)
        region = self.regions[source]
        requests = self.decode(ident, body, count, region.map)
        large = used >= _LARGE and not self.decoupled
        unkept = _references(requests) if large else 0
        try:
            answers = self.execute(requests)
            if isinstance(answers, CoroutineType):
                answers = self.wait(answers, requests)
            into = self.regions[target]
            if large and _references(requests) == unkept and done_with(requests, answers, region):
                into = region
            done = self.encode(answers, requests, into)
        except BaseException:
            self.close(requests)
            raise
        requests = answers = None
        if into is region:
            return done, wire.SAME
        return done, wire.KEPT if region.kept() else 0

    def wait(self, coroutine, requests):
        """Waits for a coroutine; that of a decoupled model goes on by itself, and others are executed meanwhile."""
        future = self.coroutine(coroutine)
        if not self.decoupled:
            return future.result()
        senders = [r.get_response_sender() for r in requests]
        future.add_done_callback(lambda f: _over(f, senders))
        return None

    def decode(self, ident, body, count, memory):
        """Returns the requests of an EXECUTE, whose tensors view memory."""
        at, requests = wire.EXECUTION.size, []
        if count == 1 and len(body) <= _LAYOUT:
            text = bytes(body[at:])
            known = self.layouts.get(text) or self.layout(text)
            if known is not None:
                head, parts = known
                tensors = [made(name, np.ndarray(dims, dtype, memory, offset), number) for name, dims, dtype, offset, number in parts]
                requests.append(received(tensors, head, None, (ident, 0, self.decoupled), self.outputs))
                if self.decoupled:
                    requests[0].get_response_sender()
                return requests
        for index in range(count):
            *head, n, _, extra, _ = wire.REQUEST.unpack_from(body, at)
            at += wire.REQUEST.size
            tensors = []
            for _ in range(n):
                place, number, rank, _, offset, size = wire.TENSOR.unpack_from(body, at)
                at += wire.TENSOR.size
                dims = wire.DIMS[rank].unpack_from(body, at)
                at += 8 * rank
                tensors.append(made(self.inputs[place], wire.view(memory, number, dims, offset, size), number))
            # The body is the link's buffer, which the next packet overwrites; a request may be kept.
            reader = wire.Reader(bytes(body[at:at + extra]), 0) if extra else None
            at += extra
            requests.append(received(tensors, head, reader, (ident, index, self.decoupled), self.outputs))
            if self.decoupled:
                requests[-1].get_response_sender()  # when all that holds it has gone, the request ends
        return requests

    def layout(self, text):
        """Returns and remembers the head and (name, dimensions, type, offset, number) of the tensors of a request, None when it
        has more than numbers."""
        *head, n, _, extra, _ = wire.REQUEST.unpack_from(text)
        at, parts = wire.REQUEST.size, []
        for _ in range(n):
            place, number, rank, _, offset, _ = wire.TENSOR.unpack_from(text, at)
            at += wire.TENSOR.size
            parts.append((self.inputs[place], wire.DIMS[rank].unpack_from(text, at), wire.TYPES[number], offset, number))
            at += 8 * rank
            if number == wire.BYTES:
                return None
        if extra:
            return None
        if len(self.layouts) == _LAYOUTS:
            self.layouts.clear()
        self.layouts[text] = head, parts
        return head, parts

    def encode(self, answers, requests, region):
        """Returns the body of the DONE for what execute returned."""
        if len(requests) == 1 and type(answers) is list and len(answers) == 1 and type(answers[0]) is InferenceResponse:
            done = self.encode_only(answers[0], requests[0], region)
            if done is not None:
                return done
        if answers is None:
            answers = [None] * len(requests)
        self.check(answers, requests)
        parts, at = [b""], 0
        for answer, request in zip(answers, requests):
            if answer is None:
                parts.append(self.left(request))
            elif answer._error is not None:
                parts.append(_failed(answer._error))
            else:
                at = self.encode_one(parts, answer, region, at)
        parts[0] = wire.EXECUTED.pack(len(requests), 0, region.size)
        return b"".join(parts)

    def encode_only(self, answer, request, region):
        """Does what encode does for one answer of one array of numbers, most of which was the same before; returns None for
        others."""
        if len(answer._outputs) != 1 or answer._error is not None or answer._params or request._sender is not None \
                or request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE or self.decoupled:
            return None
        t = answer._outputs[0]
        number, array = t._number, t._array
        size = array.nbytes
        if number == wire.BYTES or size > region.size:
            return None
        if size:
            wire.store(region.map, 0, array)
        key = t._name, number, array.shape, region.size
        done = self.bodies.get(key)
        if done is None:
            parts = [wire.EXECUTED.pack(1, 0, region.size)]
            self.encode_one(parts, answer, region, 0)
            done = b"".join(parts)
            if len(self.bodies) == _LAYOUTS:
                self.bodies.clear()
            self.bodies[key] = done
        return done

    def check(self, answers, requests):
        """Raises unless execute returned what it should."""
        if self.decoupled and any(a is not None for a in answers):
            raise TritonModelException("Python model '%s' is using the decoupled mode and the execute function must return None."
                                       % here.instance)
        if not isinstance(answers, list):
            raise TritonModelException("Expected a list in the execute return, found type '%s'." % type(answers))
        if len(answers) != len(requests):
            raise TritonModelException(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size "
                "is:%d, and InferenceResponse(s) size is:%d" % (len(requests), len(answers)))
        for answer, request in zip(answers, requests):
            if answer is None:
                continue
            if request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
                raise TritonModelException("Expected a None object in the execute function return list for reschduled request, "
                                           "found type '%s'." % type(answer))
            if not isinstance(answer, InferenceResponse):
                raise TritonModelException("Expected an 'InferenceResponse' object in the execute function return list, found type "
                                           "'%s'." % type(answer))
            if request._sender is not None:
                request._sender._count(answer, 1)

    def left(self, request):
        """Returns the answer for a request that has none here."""
        if request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
            if request._sender is not None:
                request._sender.close()
            return _AGAIN
        if request._sender is None and not self.decoupled:
            text = ("model '%s' in '%s': expected an 'InferenceResponse' object in the execute function return list, found None and "
                    "nothing to send one" % (here.model, here.folder))
            extra = wire.answer_extra(text)
            return wire.ANSWER.pack(wire.ERROR, 1, 0, len(extra)) + extra
        return _LEFT

    def encode_one(self, parts, answer, region, at):
        """Appends an answer and writes its tensors into a region from at on. Returns where they end."""
        outputs, names = [], []
        for t in answer._outputs:
            number, array = t._number, t._array
            raw = wire.raw_of(number, array)
            index = self.places.get(t._name, wire.NAMED)
            if index == wire.NAMED:
                names.append(t._name)
            size = raw.nbytes
            if size:
                if at + size > region.size:
                    region.grow(at + size)
                wire.store(region.map, at, raw)
            shape = array.shape
            outputs.append(wire.SHAPED[len(shape)].pack(index, number, len(shape), 0, at, size, *shape))
            at = -(-(at + size) // wire.ALIGN) * wire.ALIGN
        extra = wire.answer_extra("", answer._params, names) if names or answer._params else b""
        parts.append(wire.ANSWER.pack(wire.ANSWERED, 0, len(outputs), len(extra)))
        parts += outputs
        parts.append(extra)
        return at

    def close(self, requests):
        """Ends what may still send: the execution has failed, and all its requests with it."""
        for r in requests:
            if r._sender is not None:
                r._sender.close()


def done_with(requests, answers, region):
    """Reports whether the answers may be written over the inputs: they fill a good part of the region and nothing refers to the
    inputs. Of requests, which only the execution has, it drops them to see that."""
    if not isinstance(answers, list) or 4 * sum(map(_size, answers)) < region.size:
        return False
    for r in requests:
        r._inputs = ()
    return not region.kept()


def _references(requests):
    """Returns how many references there are to a list of requests and to what is in it."""
    return sys.getrefcount(requests) + sum(map(sys.getrefcount, requests))


def _size(answer):
    return sum(t._array.nbytes for t in answer._outputs) if isinstance(answer, InferenceResponse) else 0


def _failed(error):
    extra = wire.answer_extra(error.message())
    return wire.ANSWER.pack(wire.ERROR, error.code(), 0, len(extra)) + extra


def _over(future, senders):
    """Ends the requests that a coroutine left open by failing. No request may be left to be told, so it is logged here."""
    if future.cancelled() or future.exception() is None:
        return
    text = failure(future.exception())
    log_failure(text)
    for s in senders:
        s.fail(text)
