"""Models of the python backend: the workers' requests and responses, and the other requests of a batch when one fails."""

import json
import queue
import urllib.request
import zlib

import ml_dtypes
import numpy as np
from tritonclient.utils import InferenceServerException

from harness import GRPC, HTTP, LIMIT, ask, case, equal, has, refused, same, until
from stream_cases import Stream

FLOATS = np.linspace(-3, 4, 16, dtype=np.float32).reshape(1, 16)


def pair(f, a=FLOATS, b=FLOATS * 2):
    return [f.input("INPUT0", a), f.input("INPUT1", b)]


def text(f, name, value):
    return f.input(name, np.array([value], dtype=np.object_))


def ints(f, *values):
    return [f.input("IN", np.array(values, np.int32))]


def fine(f):
    """A request that must succeed after any earlier request."""
    same(f.infer("wrong", [text(f, "WHAT", "fine")]).as_numpy("OUT"), np.array([1, 2], np.float32))


# shows: backends.python
@case(variant="python")
def a_model_of_two_inputs(f):
    for rows, n in ((1, 16), (8, 3), (3, 0), (2, 300000)):
        a = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
        b = a[::-1] * 3
        got = f.infer("add_sub", pair(f, a, b))
        same(got.as_numpy("OUTPUT0"), a + b)
        same(got.as_numpy("OUTPUT1"), a - b)
    only = f.infer("add_sub", pair(f), outputs=[f.output("OUTPUT1")])
    same(only.as_numpy("OUTPUT1"), FLOATS - FLOATS * 2)
    assert only.as_numpy("OUTPUT0") is None


# shows: backends.python
@case(variant="python")
def bytes_of_a_python_model(f):
    texts = np.array([["abc", ""], ["é\n", "x" * 70000]], dtype=np.object_)
    want = np.array([[b"cba", b""], ["\né".encode(), b"x" * 70000]], dtype=np.object_)
    same(f.infer("reverse", [f.input("TEXT", texts)]).as_numpy("REVERSED"), want)
    raw = f.infer("reverse", [f.input("TEXT", np.array([[b"\xff\x00a"]], dtype=np.object_))])
    same(raw.as_numpy("REVERSED"), np.array([[b"a\x00\xff"]], dtype=np.object_))


# shows: backends.python.request
@case(variant="python")
def what_a_python_model_is_told(f):
    parameters = {"text": "t", "number": 3, "yes": True}
    more = np.ones((2, 2), np.float16)
    got = f.infer("told", [f.input("MORE", more)], request_id="r7", parameters=parameters, timeout=9000000)
    told = json.loads(got.as_numpy("OUT")[0])
    equal([told[k] for k in ("id", "correlation", "flags", "cancelled", "greeting", "outputs")], ["r7", 0, 0, False, "hello", ["OUT"]])
    equal({k: told["parameters"][k] for k in parameters}, parameters)
    equal(told["timeout"], 9000000)
    equal(told["inputs"], {"MORE": [10, [2, 2], True]})
    equal((told["input"]["data_type"], told["output"]["name"]), ("TYPE_FP16", "OUT"))
    args = told["args"]
    equal((args["model_name"], args["model_version"], args["model_instance_kind"]), ("told", "1", "CPU"))
    has(told["folder"], args["model_repository"])
    answer = got.get_response()
    found = answer["parameters"] if f.http else {k: v.WhichOneof("parameter_choice") for k, v in answer.parameters.items()}
    equal({k for k in found if k in ("text", "number", "yes")}, {"text", "number", "yes"})


# shows: backends.python.request
@case(variant="python")
def a_sequence_that_a_python_model_sees(f):
    for sequence in (zlib.crc32(f.name.encode()), "s-" + f.name):
        got = f.infer("told", ints(f, 1), sequence_id=sequence, sequence_start=True, sequence_end=True)
        told = json.loads(got.as_numpy("OUT")[0])
        equal((told["correlation"], told["flags"]), (sequence, 3))


# shows: backends.python.errors
@case(variant="python")
def a_python_model_that_is_wrong(f):
    def wrong(what, part, http="500", grpc="INTERNAL"):
        e = refused(f, lambda: f.infer("wrong", [text(f, "WHAT", what)]), part, http, grpc)
        has(e.message(), "wrong")
        fine(f)

    wrong("raise", "ValueError: the model gave up")
    wrong("sysexit", "SystemExit: leaving")
    wrong("number", "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2")
    wrong("empty", "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0")
    wrong("tuple", "Expected a list in the execute return, found type '<class 'tuple'>'")
    wrong("object", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'")
    wrong("none", "found None")
    wrong("complex", "complex64")


# shows: backends.python.errors
@case(variant="python")
def responses_that_differ_from_the_configuration(f):
    wanted = {"type": np.array([1, 2], np.float64), "shape": np.array([1, 2, 3], np.float32), "rank": np.array([[1, 2]], np.float32), "more": np.zeros(2, np.float32)}
    for what, array in wanted.items():
        answer = f.infer("wrong", [text(f, "WHAT", what)])
        same(answer.as_numpy("OUT"), array)
        assert answer.as_numpy("ANOTHER") is None, what
    for what in ("name", "missing"):
        answer = f.infer("wrong", [text(f, "WHAT", what)])
        assert answer.as_numpy("OUT") is None and answer.as_numpy("OTHER") is None, what


# shows: backends.python.errors
@case(variant="python")
def the_codes_of_a_python_model(f):
    for code, http, grpc in (
        ("UNKNOWN", "400", "UNKNOWN"), ("INTERNAL", "500", "INTERNAL"), ("NOT_FOUND", "404", "NOT_FOUND"),
        ("INVALID_ARG", "400", "INVALID_ARGUMENT"), ("UNAVAILABLE", "503", "UNAVAILABLE"), ("UNSUPPORTED", "501", "UNIMPLEMENTED"),
        ("ALREADY_EXISTS", "400", "ALREADY_EXISTS"),
    ):
        refused(f, lambda: f.infer("wrong", [text(f, "WHAT", code)]), "an error of kind " + code, http, grpc)
    # The gRPC client puts words of its own in the place of this text.
    refused(f, lambda: f.infer("wrong", [text(f, "WHAT", "CANCELLED")]), "an error of kind CANCELLED" if f.http else "", "400", "CANCELLED")
    fine(f)


# shows: backends.python.errors
@case(variant="python")
def a_python_model_that_prints_and_exits(f):
    same(f.infer("wrong", [text(f, "WHAT", "print")]).as_numpy("OUT"), np.array([1, 2], np.float32))
    for _ in range(2):
        e = refused(f, lambda: f.infer("wrong", [text(f, "WHAT", "exit")]), "Stub process 'wrong_0_0' is not healthy.", "503", "UNAVAILABLE")
        has(e.message(), "last words")
        fine(f)


# shows: backends.python.sender
@case(variant="python")
def a_response_that_is_sent_rather_than_returned(f):
    same(f.infer("wrong", [text(f, "WHAT", "sent")]).as_numpy("OUT"), np.array([1, 2], np.float32))
    refused(f, lambda: f.infer("wrong", [text(f, "WHAT", "dropped")]), "wrong", "500", "INTERNAL")
    fine(f)


# shows: backends.python.bls
@case(variant="python")
def inferences_of_a_python_model(f):
    for model in ("bls_sync", "bls_async"):
        for n in (16, 50000):
            a = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
            got = f.infer(model, pair(f, a, a * 2), request_id="r")
            same(got.as_numpy("OUTPUT0"), a + a * 2)
            same(got.as_numpy("OUTPUT1"), a - a * 2)
    refused(f, lambda: f.infer("bls_sync", pair(f), parameters={"model": "nobody"}), "asked in vain: ")
    refused(f, lambda: f.infer("bls_async", pair(f, FLOATS, FLOATS[:, :3])), "could not be broadcast", "500", "INTERNAL")


# shows: backends.python.bls
@case(variant="python")
def a_model_that_waits_for_itself(f):
    e = refused(f, lambda: f.infer("bls_sync", pair(f), parameters={"model": "bls_sync"}), "bls_sync", "503", "UNAVAILABLE")
    refused(f, lambda: f.infer("bls_sync", pair(f), parameters={"model": "bls_around"}),
            "model 'bls_sync' calls model 'bls_around', all of whose instances wait for it", "503", "UNAVAILABLE")
    has(e.message(), "instance")
    same(f.infer("bls_sync", pair(f)).as_numpy("OUTPUT0"), FLOATS + FLOATS * 2)


# shows: backends.python.bls
@case(variant="python")
def the_responses_of_a_decoupled_model_to_another(f):
    def sums(*values, **parameters):
        got = f.infer("bls_stream", ints(f, *values), parameters=parameters)
        return int(got.as_numpy("SUM")[0]), int(got.as_numpy("COUNT")[0])

    equal(sums(1, 2, 30), (33, 3))
    equal(sums(), (0, 0))
    equal(sums(*range(200)), (19900, 200))
    equal(sums(*range(200), take=3), (3, 3))
    refused(f, lambda: sums(1, -1, 2), "negative")
    refused(f, lambda: sums(1, 2, plain=True), "decoupled=True", "500", "INTERNAL")


# shows: backends.python.decoupled
@case(GRPC, variant="python")
def a_decoupled_python_model(f):
    got = Stream(f, [dict(model_name="repeat", inputs=ints(f, *range(50)), request_id="r1")]).answers(50)
    for i, (result, error) in enumerate(got):
        assert error is None, error
        equal((int(result.as_numpy("OUT")[0]), int(result.as_numpy("INDEX")[0])), (i, i))
        equal(result.get_response().parameters["left"].int64_param, 49 - i)
    (first, _), (_, bad) = Stream(f, [dict(model_name="repeat", inputs=ints(f, 5, -1, 6))]).answers(2)
    equal(int(first.as_numpy("OUT")[0]), 5)
    has(bad.message(), "negative")


# shows: backends.python.decoupled
@case(GRPC, variant="python")
def a_decoupled_coroutine(f):
    requests = [dict(model_name="square", inputs=ints(f, n), request_id=str(n)) for n in (3, 5)]
    got = [int(result.as_numpy("OUT")[0]) for result, error in Stream(f, requests).answers(8)]
    equal(sorted(got), [3, 3, 3, 5, 5, 5, 5, 5])
    ((_, error),) = Stream(f, [dict(model_name="square", inputs=ints(f, -2))]).answers(1)
    has(error.message(), "n is -2, expected none or more")


# shows: backends.python.decoupled
@case(GRPC, variant="python")
def requests_that_are_executed_again(f):
    requests = [dict(model_name="again", inputs=ints(f, n), request_id=str(n)) for n in (5, 3)]
    got = {"5": [], "3": []}
    for result, error in Stream(f, requests).answers(8):
        assert error is None, error
        got[result.get_response().id].append(int(result.as_numpy("OUT")[0]))
    equal(got, {"5": [5, 4, 3, 2, 1], "3": [3, 2, 1]})


# shows: backends.python.cancellation
@case(("grpc",), variant="python")
def a_stream_that_its_client_leaves(f):
    for _ in range(3):  # the one instance is free again each time
        got = queue.Queue()
        f.start_stream(lambda result, error: got.put((result, error)))
        f.async_stream_infer("endless", ints(f, 1))
        found = [got.get(timeout=LIMIT) for _ in range(5)]
        f.stop_stream(cancel_requests=True)
        equal([int(result.as_numpy("OUT")[0]) for result, _ in found], list(range(5)))


# shows: backends.python.cancellation
@case(GRPC, variant="python")
def a_request_that_its_client_leaves(f):
    def cancelled():
        return int(f.infer("patient", ints(f, 1)).as_numpy("OUT")[0])

    before = cancelled()
    try:
        f.infer("patient", ints(f, -1), client_timeout=0.3)
        raise AssertionError("expected that the client's patience ends")
    except InferenceServerException:
        pass  # whether the client or the server is first to end it decides the code
    until(lambda: cancelled() == before + 1, "the model sees that its request is cancelled")


# shows: backends.python.autocomplete
@case(variant="python")
def a_python_model_that_completes_itself(f):
    status, _, body = ask(f.args, "GET", "/v2/models/completed/config")
    config = json.loads(body)
    equal((status, config["max_batch_size"], [i["name"] for i in config["input"]]), (200, 4, ["IN", "BIAS"]))
    equal((config["output"][0]["data_type"], config["output"][0]["dims"]), ("TYPE_FP32", [-1]))
    assert "dynamic_batching" in config, config
    same(f.infer("completed", [f.input("IN", FLOATS)]).as_numpy("OUT"), FLOATS * 2)
    both = [f.input("IN", FLOATS), f.input("BIAS", np.ones((1, 1), np.float32))]
    same(f.infer("completed", both).as_numpy("OUT"), FLOATS * 2 + 1)


# shows: backends.python.dlpack
@case(variant="python")
def tensors_by_dlpack(f):
    data = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    for values in ([1, -2, 300], []):
        numbers = np.array(values, np.int16)
        inputs = [f.input("IN", data, "BF16"), f.input("NUMBERS", numbers)]
        got = f.infer("dlpack", inputs)
        same(got.as_numpy("DOUBLED"), numbers * np.int16(2))
        equal(got.as_numpy("OUT").astype(np.float32).tolist(), data.astype(np.float32).tolist())


# shows: backends.python.metrics
@case(HTTP, variant="python")
def metrics_of_a_python_model(f):
    def lines():
        with urllib.request.urlopen(f"http://{f.args.metrics}/metrics", timeout=LIMIT) as answer:
            text = answer.read().decode()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("measured"))}

    before = lines()
    out = f.infer("measured", [f.input("IN", np.array([2.5]))]).as_numpy("OUT")
    after = lines()
    labels = '{model="measured",version="1"}'
    equal(after["measured_total" + labels] - before["measured_total" + labels], 2.5)
    equal(after["measured_last" + labels], 2.5)
    equal(after["measured_inputs_count" + labels] - before["measured_inputs_count" + labels], 1)
    equal(out.tolist(), [after["measured_total" + labels], 2.5])
    refused(f, lambda: f.infer("measured", [f.input("IN", np.array([-1.0]))]), "a counter never falls", "500", "INTERNAL")


# shows: backends.python.control
@case(variant="python")
def a_python_model_that_loads_another(f):
    def do(what):
        return bool(f.infer("loader", [text(f, "DO", what)]).as_numpy("READY")[0])

    equal([do("unload"), do("load"), do("nothing"), f.is_model_ready("loaded")], [False, True, True, True])
    same(f.infer("loaded", [f.input("INPUT0", np.array([7], np.int32))]).as_numpy("OUTPUT0"), np.array([7], np.int32))
    equal(do("unload"), False)
    refused(f, lambda: do("absent"), "Failed to load model: ", "500", "INTERNAL")


# shows: backends.python.errors
@case(variant="python")
def a_python_model_that_cannot_start(f):
    equal(f.is_model_ready("broken"), False)
    status, _, body = ask(f.args, "POST", "/v2/repository/index", b"{}")
    (reason,) = [m["reason"] for m in json.loads(body) if m["name"] == "broken"]
    equal(status, 200)
    has(reason, "RuntimeError: the weights are missing")
    has(reason, "model.py")
