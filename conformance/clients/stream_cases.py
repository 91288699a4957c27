"""Responses as they come: decoupled models, final markers, cancellation, generate."""

import json
import queue
import zlib

import numpy as np

from harness import GRPC, LIMIT, ask, case, equal, has, refused, same, until


def repeat(f, values, delay=0, wait=0):
    return [
        f.input("IN", np.array(values, np.int32)),
        f.input("DELAY", np.array([delay] * len(values), np.uint32)),
        f.input("WAIT", np.array([wait], np.uint32)),
    ]


def final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


class Stream:
    """Sends requests and returns the responses, with either client."""

    def __init__(self, f, requests, **options):
        self.f, self.requests, self.options = f, requests, options

    def answers(self, count):
        """Sends the requests and returns count pairs of result and error."""
        return self.aio(count) if self.f.aio else self.threads(count)

    def threads(self, count):
        got = queue.Queue()
        self.f.start_stream(lambda result, error: got.put((result, error)), **self.options)
        try:
            for r in self.requests:
                self.f.async_stream_infer(**r)
            return [got.get(timeout=LIMIT) for _ in range(count)]
        finally:
            self.f.stop_stream()

    def aio(self, count):
        async def requests():
            for r in self.requests:
                r = dict(r)
                if r.pop("enable_empty_final_response", False):
                    # The client of asyncio has no argument for it; the parameter is the same on the wire.
                    r["parameters"] = dict(r.get("parameters", {}), **{"triton_enable_empty_final_response": True})
                yield r

        async def run():
            got = []
            async for pair in self.f.default.client.stream_infer(requests(), **self.options):
                got.append(pair)
                if len(got) == count:
                    break
            return got

        self.f.is_server_live()  # makes the client
        return self.f.loop.run_until_complete(run())


def summands(f, number):
    return [f.input("INPUT", np.array([[number]], np.int32))]


# shows: config.sequences infer.sequence_parameters
@case()
def a_sequence(f):
    for sequence, offset in ((zlib.crc32(f.name.encode()), 0), ("s-" + f.name, 100)):
        total = 0
        for i in range(3):
            total += offset + i
            got = f.infer("sums", summands(f, offset + i), sequence_id=sequence, sequence_start=i == 0, sequence_end=i == 2)
            equal(int(got.as_numpy("OUTPUT")[0][0]), total)
    refused(f, lambda: f.infer("sums", summands(f, 1)), "must specify a non-zero or non-empty correlation ID")
    refused(
        f, lambda: f.infer("sums", summands(f, 1), sequence_id=98765),
        "inference request for sequence 98765 to model 'sums' must specify the START flag on the first request of the sequence",
    )


# shows: config.sequences stream
@case(GRPC)
def sequences_in_a_stream(f):
    names = ["a-" + f.name, "b-" + f.name]
    requests = [
        dict(model_name="sums", inputs=summands(f, 10 * i + k), request_id=f"{i}-{k}", sequence_id=name, sequence_start=k == 0, sequence_end=k == 3)
        for k in range(4) for i, name in enumerate(names)
    ]
    got = {}
    for result, error in Stream(f, requests).answers(len(requests)):
        assert error is None, error
        got[result.get_response().id] = int(result.as_numpy("OUTPUT")[0][0])
    for i in range(2):
        equal([got[f"{i}-{k}"] for k in range(4)], [10 * i * (k + 1) + k * (k + 1) // 2 for k in range(4)])


# shows: stream stream.decoupled
@case(GRPC)
def a_sequence_of_responses(f):
    got = Stream(f, [dict(model_name="repeat_int32", inputs=repeat(f, [4, 5, 6]), request_id="r1")]).answers(3)
    for i, (result, error) in enumerate(got):
        assert error is None, error
        equal(int(result.as_numpy("OUT")[0]), 4 + i)
        equal(int(result.as_numpy("IDX")[0]), i)
        equal(result.get_response().id, "r1")


# shows: stream.final
@case(("grpc",))
def the_empty_final_response(f):
    request = dict(model_name="repeat_int32", inputs=repeat(f, [7, 8]), request_id="r", enable_empty_final_response=True)
    got = [result for result, error in Stream(f, [request]).answers(3)]
    equal([final(r) for r in got], [False, False, True])
    last = got[-1].get_response()
    equal((len(last.outputs), last.model_name, last.id), (0, "repeat_int32", "r"))
    request = dict(model_name="repeat_int32", inputs=repeat(f, []), request_id="none", enable_empty_final_response=True)
    ((result, error),) = Stream(f, [request]).answers(1)
    assert error is None and final(result)


# shows: stream stream.order
@case(GRPC)
def ordinary_models_on_a_stream(f):
    data = [np.full((1, 2), i, np.float32) for i in range(20)]
    requests = [dict(model_name="id_fp32", inputs=[f.input("INPUT0", d)], request_id=str(i)) for i, d in enumerate(data)]
    for i, (result, error) in enumerate(Stream(f, requests, compression_algorithm="gzip").answers(len(data))):
        assert error is None, error
        equal(result.get_response().id, str(i))
        same(result.as_numpy("OUTPUT0"), data[i])
        assert final(result)


# shows: stream.errors
@case(GRPC)
def an_error_leaves_the_stream(f):
    bad = dict(model_name="nobody", inputs=[f.input("INPUT0", np.ones((1, 2), np.float32))], request_id="bad")
    good = dict(model_name="id_fp32", inputs=[f.input("INPUT0", np.ones((1, 2), np.float32))], request_id="good")
    (_, error), (result, none) = Stream(f, [bad, good]).answers(2)
    has(error.message(), "Request for unknown model: 'nobody' is not found")
    assert none is None
    equal(result.get_response().id, "good")


# shows: stream.grpc_errors
@case(("grpc",))
def an_error_ends_the_stream(f):
    bad = dict(model_name="nobody", inputs=[f.input("INPUT0", np.ones((1, 2), np.float32))])
    ((_, error),) = Stream(f, [bad], headers={"triton_grpc_error": "true"}).answers(1)
    has(error.message(), "Request for unknown model: 'nobody' is not found")
    equal(error.status(), "StatusCode.INVALID_ARGUMENT")


def cancels(f):
    """The cancelled requests that the server counts."""
    import urllib.request

    with urllib.request.urlopen(f"http://{f.args.metrics}/metrics", timeout=LIMIT) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("nv_inference_request_failure") and 'reason="CANCELED"' in line)


# shows: stream.cancel
@case(("grpc",))
def a_stream_cancelled(f):
    got = queue.Queue()
    f.start_stream(lambda result, error: got.put((result, error)))
    f.async_stream_infer("repeat_int32", repeat(f, [1] * 1000, delay=50))
    result, error = got.get(timeout=LIMIT)
    assert error is None, error
    f.stop_stream(cancel_requests=True)
    until(lambda: any(e is not None and e.status() == "StatusCode.CANCELLED" for _, e in iter_queue(got)), "the stream ends")
    assert f.is_server_live()


def iter_queue(q):
    while not q.empty():
        yield q.get()


# shows: stream.cancel
@case(("grpc_aio",))
def an_iterator_cancelled(f):
    import asyncio

    async def requests():
        yield dict(model_name="repeat_int32", inputs=repeat(f, [1] * 1000, delay=50))

    async def run():
        it = f.default.client.stream_infer(requests())
        result, error = await it.__anext__()
        assert error is None, error
        assert it.cancel()
        try:
            while True:
                await it.__anext__()
        except asyncio.CancelledError:
            return

    f.is_server_live()
    f.loop.run_until_complete(run())
    assert f.is_server_live()


# shows: infer.async infer.cancel
@case(("grpc",))
def asynchronous_grpc(f):
    data = np.ones((1, 2), np.float32)
    got = queue.Queue()
    for _ in range(20):
        f.async_infer("id_fp32", [f.input("INPUT0", data)], lambda result, error: got.put((result, error)))
    for _ in range(20):
        result, error = got.get(timeout=LIMIT)
        assert error is None, error
        same(result.as_numpy("OUTPUT0"), data)
    before = cancels(f)
    context = f.async_infer("waits", [f.input("INPUT0", np.ones((1, 4), np.float32))], lambda result, error: got.put((result, error)))
    pending = [int(f.get_inference_statistics("waits").model_stats[0].inference_count)]
    context.cancel()
    _, error = got.get(timeout=LIMIT)
    equal(error.status(), "StatusCode.CANCELLED", pending)
    assert cancels(f) >= before


# shows: infer.decoupled
@case()
def a_decoupled_model_needs_a_stream(f):
    if f.http:
        text = "HTTP end point doesn't support models with decoupled transaction policy"
    else:
        text = "ModelInfer RPC doesn't support models with decoupled transaction policy"
    refused(f, lambda: f.infer("repeat_int32", repeat(f, [1])), text, "501", "UNIMPLEMENTED")


# shows: generate
@case(("http",))
def generate(f):
    for path in ("/v2/models/words/generate", "/v2/models/words/versions/1/generate"):
        status, headers, body = ask(f.args, "POST", path, b'{"id":"g1","INPUT0":"hello","parameters":{"other":3}}')
        equal(status, 200, body)
        answer = json.loads(body)
        equal((answer["model_name"], answer["model_version"], answer["OUTPUT0"], answer["id"]), ("words", "1", "hello", "g1"))
    status, _, body = ask(f.args, "POST", "/v2/models/repeat_int32/generate", b'{"IN":[1,2],"DELAY":[0,0],"WAIT":0}')
    has(body.decode(), "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses")
    equal(status, 200)
    status, _, body = ask(f.args, "POST", "/v2/models/words/generate", b"{}")
    equal(status, 400, body)
    has(body.decode(), "expected 1 inputs but got 0 inputs for model 'words'")


# shows: generate_stream
@case(("http",))
def generate_stream(f):
    for path in ("/v2/models/repeat_int32/generate_stream", "/v2/models/repeat_int32/versions/1/generate_stream"):
        status, headers, body = ask(f.args, "POST", path, b'{"IN":[1,2,3],"DELAY":[0,0,0],"WAIT":0}')
        equal(status, 200, body)
        equal(headers["Content-Type"], "text/event-stream; charset=utf-8")
        events = [json.loads(e.removeprefix("data: ")) for e in body.decode().split("\n\n") if e]
        equal([(e["IDX"], e["OUT"]) for e in events], [(0, 1), (1, 2), (2, 3)])
    status, _, body = ask(f.args, "POST", "/v2/models/words/generate_stream", b'{"INPUT0":"x"}')
    equal(status, 200, body)
