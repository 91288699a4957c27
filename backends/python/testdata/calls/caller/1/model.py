"""Runs the case that CASE names, which raises unless what it checks is so."""

import multiprocessing
import sys

import numpy as np
import triton_python_backend_utils as pb

NUMBERS = np.arange(8, dtype=np.float32)
HOST = pb.PreferredMemory(pb.TRITONSERVER_MEMORY_CPU)  # where NumPy reads, whatever place a called model has


def plain(data=NUMBERS, model="plain", names=("IN",), **more):
    return pb.InferenceRequest(model_name=model, inputs=[pb.Tensor(n, data) for n in names], requested_output_names=["OUT"], preferred_memory=HOST, **more)


def stream(count, what):
    inputs = [pb.Tensor("COUNT", np.array([count], np.int32)), pb.Tensor("WHAT", np.array([what], np.object_))]
    return pb.InferenceRequest(model_name="stream", inputs=inputs, requested_output_names=["OUT"], preferred_memory=HOST)


def values(responses):
    """Returns the responses' values, None for one without."""
    found = []
    for r in responses:
        assert not r.has_error(), r.error().message()
        found.append(int(r.output_tensors()[0].as_numpy()[0]) if r.output_tensors() else None)
    return found


def equal(got, want):
    assert got == want, "found %r, want %r" % (got, want)


def raises(kind, part, f, *args, **more):
    try:
        f(*args, **more)
    except kind as e:
        assert type(e) is kind and part in str(e), "found %s: %s, want %s: %s" % (type(e).__name__, e, kind.__name__, part)
        return
    raise AssertionError("expected %s: %s" % (kind.__name__, part))


def fails(part, response):
    assert response.has_error(), "expected the error %r" % part
    assert part in response.error().message(), "found %r, want %r" % (response.error().message(), part)
    equal(response.output_tensors(), [])


def called(_):
    """In a process of its own."""
    return plain().exec().output_tensors()[0].as_numpy().tolist()


class Cases:
    def empty_last_response(self):
        responses = stream(4, "").exec(decoupled=True)
        equal(values(responses), [0, 1, 2, 3, None])
        raises(StopIteration, "", next, responses)
        equal(values(responses), [0, 1, 2, 3, None])

    def decoupled_call_of_a_model_that_is_not(self):
        equal([len(r.output_tensors()) for r in plain().exec(decoupled=True)], [1])

    def names_of_type_bytes(self):
        request = pb.InferenceRequest(model_name=b"plain", inputs=[pb.Tensor("IN", NUMBERS)], requested_output_names=[b"OUT"], request_id=b"r", preferred_memory=HOST)
        equal((request.model_name(), request.request_id(), request.requested_output_names()), ("plain", "r", {"OUT"}))
        assert not request.exec().has_error()

    def pool_of_processes(self):
        with multiprocessing.get_context("fork").Pool(3) as pool:
            equal(pool.map(called, range(9)), [NUMBERS.tolist()] * 9)
        equal(called(0), NUMBERS.tolist())

    def model_that_ignores_its_cancellation(self):
        responses = stream(4, "ignore").exec(decoupled=True)
        first = next(responses)
        responses.cancel()
        equal(values([first, *responses]), [0, 1, 2, 3, None])

    def model_that_sees_its_cancellation(self):
        responses = stream(4, "obey").exec(decoupled=True)
        first = next(responses)
        responses.cancel()
        equal(values([first, *responses]), [0, None])
        responses.cancel()

    def dropped_iterator(self):
        next(stream(4, "obey").exec(decoupled=True))  # the model is free again, or the next call would never end
        equal(values(stream(1, "").exec(decoupled=True)), [0, None])

    def timeout(self):
        fails("Request timeout expired", plain(np.zeros(1 << 20, np.float32), "timed", timeout=5).exec())
        assert not plain(model="timed", timeout=11000000000).exec().has_error()
        equal(called(0), NUMBERS.tolist())

    def unknown_model(self):
        fails("Failed for execute the inference request. Model 'nobody' is not ready.", plain(model="nobody").exec())

    def decoupled_model_without_saying_so(self):
        fails("Please use 'decoupled=True' argument", stream(1, "").exec())

    def large_tensors(self):
        data = np.random.default_rng(1).standard_normal(10 << 20).astype(np.float32)
        for array in (data, data.reshape(2, -1)[:, ::3].reshape(-1), np.asfortranarray(data.reshape(1 << 10, -1)).T.reshape(-1)):
            assert (plain(array).exec().output_tensors()[0].as_numpy() == array).all()

    def references_of_dlpack(self):
        t = pb.Tensor("IN", NUMBERS)
        before = sys.getrefcount(t)
        capsule = t.to_dlpack()
        equal(sys.getrefcount(t), before + 1)
        again = pb.Tensor.from_dlpack("OUT", capsule)
        equal(again.as_numpy().tolist(), NUMBERS.tolist())
        del capsule, again
        equal(sys.getrefcount(t), before)

    def arguments_of_requests(self):
        raises(TypeError, "requested_output_names", pb.InferenceRequest, model_name="m", inputs=[], requested_output_names=[None])
        raises(TypeError, "model_name", pb.InferenceRequest, inputs=[], requested_output_names=["OUT"])
        raises(TypeError, "inputs", pb.InferenceRequest, model_name="m", inputs=None, requested_output_names=[])
        raises(TypeError, "Correlation ID", pb.InferenceRequest, model_name="m", inputs=[], requested_output_names=[], correlation_id=None)
        raises(TypeError, "request_id", pb.InferenceRequest, request_id=None, model_name="m", inputs=[], requested_output_names=[])
        raises(pb.TritonModelException, "should not be empty", pb.InferenceRequest, model_name="m", inputs=[None], requested_output_names=[])
        raises(pb.TritonModelException, "should not be empty", pb.InferenceRequest, model_name="m", inputs=[], requested_output_names=[""])

    def arguments_of_responses(self):
        raises(TypeError, "output_tensors", pb.InferenceResponse, output_tensors=None)
        raises(pb.TritonModelException, "should not be empty", pb.InferenceResponse, output_tensors=[None])
        raises(pb.TritonModelException, "bool/int/str, found type <class 'float'>", pb.InferenceResponse, [], parameters={"half": 0.5})
        raises(pb.TritonModelException, "have type str, found type <class 'int'>", pb.InferenceResponse, [], parameters={1: "one"})
        raises(pb.TritonModelException, "Expect dict, got <class 'list'>", pb.InferenceResponse, [], parameters=[])

    def arguments_of_the_log(self):
        raises(TypeError, "message", pb.Logger.log, None)
        raises(TypeError, "level", pb.Logger.log, "text", None)

    def metrics_of_a_deleted_family(self):
        family = pb.MetricFamily("caller_deleted", "A family.", pb.MetricFamily.COUNTER)
        metric = family.Metric(labels={"a": "b"})
        metric.increment(2)
        equal(metric.value(), 2)
        del family
        for do in (lambda: metric.increment(1), metric.value):
            raises(pb.TritonModelException, "Invalid metric operation as the corresponding 'MetricFamily' has been deleted", do)

    def metrics_without_their_first_family(self):
        families = [pb.MetricFamily("caller_twice", "A family.", pb.MetricFamily.GAUGE) for _ in range(2)]
        metrics = [f.Metric(labels={"a": "b"}) for f in families]
        metrics[0].set(3)
        del families[0]
        equal(metrics[1].value(), 3)

    def buckets(self):
        family = pb.MetricFamily("caller_sizes", "A family.", pb.MetricFamily.HISTOGRAM)
        for wrong in ([1, 1, 2, 5, 5], [2, 1]):
            raises(pb.TritonModelException, "", family.Metric, labels={}, buckets=wrong)
        raises(pb.TritonModelException, "Missing required buckets.", family.Metric, labels={"a": "b"})
        family.Metric(labels={"a": "b"}, buckets=[0.5, 1]).observe(1)


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        getattr(Cases(), request.inputs()[0].as_numpy()[0].decode())()
        return pb.InferenceResponse([pb.Tensor("OUT", np.array(["fine"], np.object_))])
