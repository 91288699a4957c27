"""Executes EXECUTE packets: reads requests from shared memory and writes responses to it."""

import sys
from time import perf_counter_ns
from types import CoroutineType

import numpy as np

import tutti_cuda
import tutti_wire as wire
from tutti_errors import TritonError, TritonModelException, carried, failure
from tutti_process import process
from tutti_request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, received
from tutti_response import InferenceResponse
from tutti_service import log_failure
from tutti_tensor import new_tensor

_NO_RESPONSE = wire.RESPONSE.pack(wire.NONE, 0, 0, 0)
_RESCHEDULED = wire.RESPONSE.pack(wire.RESCHEDULE, 0, 0, 0)

_nowhere = tutti_cuda.Placed(0, 0, 0)  # of a tensor without bytes

# The least size of inputs that outputs overwrite. Smaller ones stay in the processor's cache anyway.
_LARGE = 256 << 10

# How many decoded layouts of requests, and encoded responses, are cached, and the most bytes of a layout.
_MAX_LAYOUTS, _MAX_LAYOUT_BYTES = 256, 512


_UNEXECUTED = wire.RESPONSE.pack(wire.UNEXECUTED, 0, 0, 0)


class Execution:
    """Executes batches of requests with a model."""

    def __init__(self, regions, coroutine):
        self.regions, self.coroutine = regions, coroutine
        self.execute = None
        self.began = 0  # when the current EXECUTE was received
        self.inputs = self.outputs = ()
        self.places = {}
        self.decoupled = False
        self.layouts = {}  # by encoded request: its fixed fields and the descriptions of its tensors
        self.length = 0  # of the request whose layout was decoded last
        self.gpu = None  # tutti_cuda.Inputs of the current execution; None when it has none
        self.bodies = {}  # encoded responses and the next free offset, by name, number, shape and offset of the only output

    def serve(self, model, inputs, outputs, decoupled):
        """Sets the model that executes requests. inputs and outputs are lists of (name, data type) in index order."""
        self.execute = model.execute
        self.inputs, self.outputs = [name for name, _ in inputs], [name for name, _ in outputs]
        self.places = {name: i for i, name in enumerate(self.outputs)}
        self.decoupled = decoupled

    def run(self, ident, body):
        """Executes an EXECUTE packet. Returns the body and the flags of its DONE packet."""
        self.began = perf_counter_ns()
        count, source, target, within, used, _ = wire.EXECUTION.unpack_from(body)
        region = self.regions[source]
        if within:
            return self.run_serial(ident, body, count, region, self.regions[target], self.began + 1000 * within)
        self.gpu = None
        requests = self.decode(ident, body, count, region.map)
        gpu = self.gpu
        large = used >= _LARGE and not self.decoupled
        references = _references(requests) if large else 0
        try:
            responses = self.execute(requests)
            if isinstance(responses, CoroutineType):
                responses = self.wait(responses, requests)
            into = self.regions[target]
            views = self.views(responses, requests, region) if large and gpu is None else None
            if views is None:
                if large and _references(requests) == references and inputs_unused(requests, responses, region):
                    into = region
                done = self.encode(responses, requests, into)
            if gpu is not None:
                gpu.wait()
        except BaseException:
            self.close(requests)
            raise
        requests = responses = None
        if views is not None:
            if not region.viewed() and outputs_fill(region, (size for outputs, _ in views for *_, size in outputs)):
                into = region
            done = self.encode_views(views, region, into)
        if into is region:
            return done, wire.IN_PLACE | self.gpu_flag()
        return done, (wire.RETAINED if region.viewed() else 0) | self.gpu_flag()

    def run_serial(self, ident, body, count, region, into, until):
        """Executes the requests of an EXECUTE packet one after the other, each as a batch of its own. Returns as run does. It leaves the rest
        unexecuted when time is up, when a response comes later, because the model then still works on the request, and when CUDA is lost."""
        offset, parts, at, over = wire.EXECUTION.size, [b""], 0, False
        for index in range(count):
            if index and (over or perf_counter_ns() > until):
                parts += [_UNEXECUTED] * (count - index)
                break
            request, offset = self.decode_one(ident, index, body, offset, region.map)
            requests = [request]
            try:
                responses = self.execute(requests)
                if isinstance(responses, CoroutineType):
                    responses = self.wait(responses, requests)
                at = self.append(parts, responses, requests, into, at)
                over = responses is None or responses[0] is None
            except BaseException as e:  # includes SystemExit of the model
                tutti_cuda.probe()
                over = tutti_cuda.lost() is not None
                self.close(requests)
                parts.append(_raised(e))
        request = requests = responses = None
        parts[0] = self.executed(count, into)
        return b"".join(parts), wire.RETAINED if region.viewed() else 0

    def gpu_flag(self):
        """Ends the execution's own use of the GPU regions with its inputs. Returns the flag that says that the model still uses them."""
        gpu, self.gpu = self.gpu, None
        return wire.GPU if gpu is not None and gpu.retained() else 0

    def wait(self, coroutine, requests):
        """Waits for a coroutine. That of a decoupled model runs on in the background while further batches execute."""
        future = self.coroutine(coroutine)
        if not self.decoupled:
            return future.result()
        senders = [r.get_response_sender() for r in requests]
        future.add_done_callback(lambda f: _finished(f, senders))
        return None

    def decode(self, ident, body, count, memory):
        """Returns the requests of an EXECUTE packet. Their tensors view memory."""
        at, requests = wire.EXECUTION.size, []
        decode = self.decode_one if count == 1 else self.decode_new
        for index in range(count):
            request, at = decode(ident, index, body, at, memory)
            requests.append(request)
        return requests

    def decode_one(self, ident, index, body, at, memory):
        """Decodes the request at an offset, with a cached layout where there is one. Returns it and the offset after it."""
        text = bytes(body[at:at + self.length])  # the encoding says its length, so bytes that are a layout are the whole request
        known = self.layouts.get(text) or self.layout(body, at)
        if known is None:
            return self.decode_new(ident, index, body, at, memory)
        head, parts, size = known
        tensors = [new_tensor(name, np.ndarray(dims, dtype, memory, offset), number) for name, dims, dtype, offset, number in parts]
        request = received(tensors, head, None, (ident, index, self.decoupled), self.outputs)
        if self.decoupled:
            request.get_response_sender()
        return request, at + size

    def decode_new(self, ident, index, body, at, memory):
        """Decodes the request at an offset. Returns it and the offset after it."""
        *head, n, _, extra, _ = wire.REQUEST.unpack_from(body, at)
        at += wire.REQUEST.size
        tensors = []
        for _ in range(n):
            place, number, rank, shared, offset, size = wire.TENSOR.unpack_from(body, at)
            at += wire.TENSOR.size
            dims = wire.DIMS[rank].unpack_from(body, at)
            at += 8 * rank
            if shared:
                self.gpu = self.gpu or tutti_cuda.Inputs()
                array = self.gpu.array(shared, dims, offset, size)
            else:
                array = wire.view(memory, number, dims, offset, size)
            tensors.append(new_tensor(self.inputs[place], array, number))
        # Copied: the next packet overwrites the link's buffer, and the model may keep the request.
        reader = wire.Reader(bytes(body[at:at + extra]), 0) if extra else None
        request = received(tensors, head, reader, (ident, index, self.decoupled), self.outputs)
        if self.decoupled:
            request.get_response_sender()  # the request ends when the last reference to its sender is dropped
        return request, at + extra

    def layout(self, body, at):
        """Decodes and caches the fixed fields of a request, (name, dimensions, type, offset, number) of its tensors, and its length. Returns
        None for a request with BYTES tensors or an extra part, and for a long one."""
        *head, n, _, extra, _ = wire.REQUEST.unpack_from(body, at)
        if extra:
            return None
        start, parts = at, []
        at += wire.REQUEST.size
        for _ in range(n):
            place, number, rank, shared, offset, _ = wire.TENSOR.unpack_from(body, at)
            at += wire.TENSOR.size
            if number == wire.BYTES or shared:
                return None
            parts.append((self.inputs[place], wire.DIMS[rank].unpack_from(body, at), wire.TYPES[number], offset, number))
            at += 8 * rank
        size = at - start
        if size > _MAX_LAYOUT_BYTES:
            return None
        if len(self.layouts) == _MAX_LAYOUTS:
            self.layouts.clear()
        known = head, parts, size
        self.layouts[bytes(body[start:at])], self.length = known, size
        return known

    def encode(self, responses, requests, region):
        """Returns the body of the DONE packet for the return value of execute."""
        parts = [b""]
        self.append(parts, responses, requests, region, 0)
        parts[0] = self.executed(len(requests), region)
        return b"".join(parts)

    def executed(self, count, region):
        """Returns the head of the body of a DONE packet."""
        return wire.EXECUTED.pack(count, min(perf_counter_ns() - self.began, 0xFFFFFFFF), region.size)

    def append(self, parts, responses, requests, region, at):
        """Appends the encoded return value of execute to parts, and writes its tensors to the region from offset at. Returns the next free
        offset. When it raises it has appended nothing."""
        if len(requests) == 1 and type(responses) is list and len(responses) == 1 and type(responses[0]) is InferenceResponse:
            done = self.encode_only(responses[0], requests[0], region, at)
            if done is not None:
                parts.append(done[0])
                return done[1]
        if responses is None:
            responses = [None] * len(requests)
        self.check(responses, requests)
        placed, new = self.place(responses), []
        for response, request in zip(responses, requests):
            if response is None:
                new.append(self.no_response(request))
            elif response._error is not None:
                new.append(_failed(response._error))
            else:
                at = self.encode_one(new, response, region, at, placed)
        parts += new
        return at

    def encode_only(self, response, request, region, at):
        """Encodes a single response with a single numeric output, usually from the cache. Returns it and the next free offset, or None for
        any other response."""
        if len(response._outputs) != 1 or response._error is not None or response._params or request._sender is not None \
                or request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE or self.decoupled:
            return None
        t = response._outputs[0]
        number, array = t._number, t._array
        size = array.nbytes
        if number == wire.BYTES or at + size > region.size or not isinstance(array, np.ndarray):
            return None
        key = t._name, number, array.shape, at
        done = self.bodies.get(key)
        if done is None:
            parts = []
            free = self.encode_one(parts, response, region, at)
            if len(self.bodies) == _MAX_LAYOUTS:
                self.bodies.clear()
            done = self.bodies[key] = b"".join(parts), free
        elif size:
            wire.store(region.map, at, array)
        return done

    def views(self, responses, requests, region):
        """Returns the outputs and the extra part of each response if every output is an array in the memory of the inputs: (index,
        number, shape, offset, size) of each. Such outputs need no copy unless the model retains them. Returns None for others."""
        if type(responses) is not list or len(responses) != len(requests):
            return None
        found = []
        for response, request in zip(responses, requests):
            if type(response) is not InferenceResponse or response._error is not None or request._sender is not None \
                    or request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
                return None
            outputs, names = [], []
            for t in response._outputs:
                at = None if t._number == wire.BYTES or not isinstance(t._array, np.ndarray) else region.offset(t._array)
                if at is None:
                    return None
                index = self.places.get(t._name, wire.NAMED)
                if index == wire.NAMED:
                    names.append(t._name)
                outputs.append((index, t._number, t._array.shape, at, t._array.nbytes))
            found.append((outputs, wire.response_extra("", response._params, names) if names or response._params else b""))
        return found

    def encode_views(self, views, region, into):
        """Returns the body of the DONE packet for what views returned. It copies the outputs unless they stay in the region."""
        parts, free = [b""], 0
        for outputs, extra in views:
            parts.append(wire.RESPONSE.pack(wire.OK, 0, len(outputs), len(extra)))
            for index, number, shape, at, size in outputs:
                if into is not region:
                    into.grow(free + size)
                    into.copy(free, region, at, size)
                    at, free = free, wire.aligned(free + size)
                parts.append(wire.SHAPED[len(shape)].pack(index, number, len(shape), 0, at, size, *shape))
            parts.append(extra)
        parts[0] = self.executed(len(views), into)
        return b"".join(parts)

    def check(self, responses, requests):
        """Raises unless the return value of execute fits the requests."""
        if self.decoupled and any(a is not None for a in responses):
            raise TritonModelException("Python model '%s' is using the decoupled mode and the execute function must return None."
                                       % process.instance)
        if not isinstance(responses, list):
            raise TritonModelException("Expected a list in the execute return, found type '%s'." % type(responses))
        if len(responses) != len(requests):
            raise TritonModelException(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size "
                "is:%d, and InferenceResponse(s) size is:%d" % (len(requests), len(responses)))
        for response, request in zip(responses, requests):
            if response is None:
                continue
            if request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
                raise TritonModelException("Expected a None object in the execute function return list for reschduled request, "
                                           "found type '%s'." % type(response))
            if not isinstance(response, InferenceResponse):
                raise TritonModelException("Expected an 'InferenceResponse' object in the execute function return list, found type "
                                           "'%s'." % type(response))
            if request._sender is not None:
                request._sender._count(response, 1)

    def no_response(self, request):
        """Returns the encoded state of a request for which execute returned None."""
        if request._release == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
            if request._sender is not None:
                request._sender.close()
            return _RESCHEDULED
        if request._sender is None and not self.decoupled:
            text = ("model '%s' in '%s': expected an 'InferenceResponse' object in the execute function return list, found None and "
                    "nothing to send one" % (process.model, process.folder))
            extra = wire.response_extra(text)
            return wire.RESPONSE.pack(wire.ERROR, 1, 0, len(extra)) + extra
        return _NO_RESPONSE

    def place(self, responses):
        """Copies the output tensors at GPUs to regions of the server. Returns tutti_cuda.Placed by the id of the array, or None."""
        arrays = [t._array for response in responses if response is not None and response._error is None
                  for t in response._outputs if not isinstance(t._array, np.ndarray) and t._array.nbytes]
        return {id(array): placed for array, placed in zip(arrays, tutti_cuda.place(arrays))} if arrays else None

    def encode_one(self, parts, response, region, at, placed=None):
        """Appends an encoded response to parts and writes its tensors to the region from offset at. Returns the next free offset."""
        outputs, names = [], []
        for t in response._outputs:
            number, array = t._number, t._array
            index = self.places.get(t._name, wire.NAMED)
            if index == wire.NAMED:
                names.append(t._name)
            if not isinstance(array, np.ndarray):
                shape, p = array.shape, _nowhere if array.nbytes == 0 else placed[id(array)]
                outputs.append(wire.SHAPED[len(shape)].pack(index, number, len(shape), p.region, p.offset, p.nbytes, *shape))
                continue
            raw = wire.raw_of(number, array)
            size = raw.nbytes
            if size:
                if at + size > region.size:
                    region.grow(at + size)
                wire.store(region.map, at, raw)
            shape = array.shape
            outputs.append(wire.SHAPED[len(shape)].pack(index, number, len(shape), 0, at, size, *shape))
            at = wire.aligned(at + size)
        extra = wire.response_extra("", response._params, names) if names or response._params else b""
        parts.append(wire.RESPONSE.pack(wire.OK, 0, len(outputs), len(extra)))
        parts += outputs
        parts.append(extra)
        return at

    def close(self, requests):
        """Closes the response senders of an execution that failed."""
        for r in requests:
            if r._sender is not None:
                r._sender.close()


def outputs_fill(region, sizes):
    """Reports whether outputs fill a good part of the region. Small ones would keep all of it until their responses are sent."""
    return 4 * sum(sizes) >= region.size


def inputs_unused(requests, responses, region):
    """Reports whether responses may overwrite the inputs: they fill a good part of the region and no array views it. It drops
    the inputs of requests, to which nothing else may refer."""
    if not isinstance(responses, list) or not outputs_fill(region, map(_size, responses)):
        return False
    for r in requests:
        r._inputs = ()
    return not region.viewed()


def _references(requests):
    """Returns the number of references to a list of requests and to its elements."""
    return sys.getrefcount(requests) + sum(map(sys.getrefcount, requests))


def _size(response):
    return sum(t._array.nbytes for t in response._outputs) if isinstance(response, InferenceResponse) else 0


def _failed(error):
    extra = wire.response_extra(error.message(), error._details)
    return wire.RESPONSE.pack(wire.ERROR, error.code(), 0, len(extra)) + extra


def _raised(e):
    """Encodes the response to a request for which execute raised an exception."""
    error = carried(e)
    extra = wire.response_extra(failure(e).encode("utf-8", "replace"), error._details if error is not None else None)
    return wire.RESPONSE.pack(wire.RAISED, int(TritonError.INTERNAL if error is None else error.code()), 0, len(extra)) + extra


def _finished(future, senders):
    """Fails the open requests of a coroutine that raised. It also logs the exception, because no request may be open."""
    if future.cancelled() or future.exception() is None:
        return
    text = failure(future.exception())
    log_failure(text)
    for s in senders:
        s.fail(text, carried(future.exception()))
