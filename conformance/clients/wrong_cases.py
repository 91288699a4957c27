"""Requests that a client can get wrong: the status, the text, and a connection that goes on."""

import json

import numpy as np

from harness import GRPC, HTTP, LIMIT, ask, case, equal, has, refused, region, same


def fine(f):
    data = np.ones((1, 4), np.float32)
    same(f.infer("raw", [f.input("INPUT0", data)]).as_numpy("OUTPUT0"), data)


# shows: errors infer.errors
@case()
def wrong_tensors(f):
    row = np.ones((1, 4), np.float32)
    ints = np.ones((1, 4), np.int32)

    def both(a, b=ints, **options):
        return lambda: f.infer("two", [f.input("INPUT0", a), f.input("INPUT1", b)], request_id="w", **options)

    missing = "expected 2 inputs but got 1 inputs for model 'two'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required input(s)."
    refused(f, lambda: f.infer("two", [f.input("INPUT0", row)], request_id="w"), "[request id: w] " + missing)
    refused(f, lambda: f.infer("two", [f.input("INPUT0", row)]), "[request id: <id_unknown>] " + missing)
    refused(f, both(np.ones((1, 3), np.float32)), "unexpected shape for input 'INPUT0' for model 'two'. Expected [-1,4], got [1,3]")
    refused(f, both(ints), "inference input 'INPUT0' data-type is 'INT32', but model 'two' expects 'FP32'")
    refused(f, both(np.ones((9, 4), np.float32), np.ones((9, 4), np.int32)), "inference request batch-size must be <= 8 for 'two'")
    refused(f, both(row, np.ones((2, 4), np.int32)), "batch size does not match other inputs for 'two'")
    refused(f, both(row, outputs=[f.output("OUTPUT7")]), "unexpected inference output 'OUTPUT7' for model 'two'")
    refused(f, lambda: f.infer("raw", [f.input("INPUT7", row)]), "INPUT7")
    refused(f, lambda: f.infer("raw", [f.input("INPUT0", row), f.input("INPUT0", row)]), "input 'INPUT0' already exists in request")
    refused(f, both(row, outputs=[f.output("OUTPUT0"), f.output("OUTPUT0")]), "output 'OUTPUT0' already exists in request")
    refused(f, lambda: f.infer("nobody", [f.input("INPUT0", row)]), "Request for unknown model: 'nobody' is not found")
    refused(f, lambda: f.infer("raw", [f.input("INPUT0", row)], model_version="x"), "failed to get model version from specified version string 'x'") if not f.http else None
    fine(f)


# shows: errors infer.errors
@case()
def too_few_bytes(f):
    t = f.input("INPUT0", np.ones((1, 4), np.float32))
    t.set_shape([2, 4])
    refused(f, lambda: f.infer("raw", [t]), "input byte size mismatch for input 'INPUT0' for model 'raw'. Expected 32, got 16")
    for shape in ([-1, 4], [1 << 62, 4]):
        t.set_shape(shape)
        # Over HTTP a negative number is no number of a shape.
        refused(f, lambda: f.infer("raw", [t]), "shape" if f.http and shape[0] < 0 else "INPUT0", *(["500"] if f.http and shape[0] < 0 else []))
    words = f.input("INPUT0", np.array([b"one"], dtype=np.object_))
    words.set_shape([2])
    refused(f, lambda: f.infer("words", [words]), "expected 2 string elements for inference input 'INPUT0' for model 'words', got 1")
    fine(f)


# shows: shm.errors
@case()
def wrong_regions(f):
    t = f.module.InferInput("INPUT0", [1, 4], "FP32")
    t.set_shared_memory("nobody", 16)
    refused(f, lambda: f.infer("raw", [t]), "Unable to find shared memory region: 'nobody'", "404", "NOT_FOUND")
    with region(16) as (_, key):
        f.register_system_shared_memory("small", key, 16)
        try:
            for size, offset in ((16, 8), (1 << 40, 0), (16, 1 << 62)):
                t.set_shared_memory("small", size, offset)
                refused(f, lambda: f.infer("raw", [t]), "small")
            t = f.module.InferInput("INPUT0", [1, 4], "FP32")  # the client keeps an offset once given
            t.set_shared_memory("small", 8)
            refused(f, lambda: f.infer("raw", [t]), "input byte size mismatch for input 'INPUT0' for model 'raw'. Expected 16, got 8")
            out = f.output("OUTPUT0")
            out.set_shared_memory("small", 8)
            full = f.input("INPUT0", np.ones((1, 4), np.float32))
            text = "shared memory size specified with the request for output 'OUTPUT0' (8 bytes) should be at least 16 bytes to hold the results"
            refused(f, lambda: f.infer("raw", [full], outputs=[out]), text, "500", "INTERNAL")
        finally:
            f.unregister_system_shared_memory("small")
    fine(f)


# shows: errors http.errors
@case(("http",))
def wrong_bodies(f):
    def post(body, headers=None, path="/v2/models/raw/infer"):
        return ask(f.args, "POST", path, body, headers)

    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4]}

    def request(**extra):
        return json.dumps({"inputs": [dict(tensor, **extra)]}).encode()

    cases = [
        (500, b'{"inputs":[', {}, "failed to parse the request JSON buffer"),
        (500, b'{"inputs":7}', {}, "Unable to parse 'inputs'"),
        (400, request(), {}, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But no field is set"),
        (500, request(data=[1, 2, 3]), {}, "Shape does not match true shape of 'data' field"),
        (400, request(data=[1, 2, 3, 4]), {"Inference-Header-Content-Length": "x"}, "Unable to parse Inference-Header-Content-Length, got: x"),
        (400, request(data=[1, 2, 3, 4]), {"Inference-Header-Content-Length": "99999"}, "inference header size should be in range"),
        (501, request(data=[1, 2, 3, 4]), {"Content-Encoding": "br"}, "Unsupported compression type"),
        (400, request(data=[1, 2, 3, 4]), {"Content-Encoding": "gzip"}, ""),
        (400, json.dumps({"parameters": {"triton_x": 1}, "inputs": [dict(tensor, data=[1, 2, 3, 4])]}).encode(), {},
         "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
        (400, json.dumps({"parameters": {"x": [1]}, "inputs": [dict(tensor, data=[1, 2, 3, 4])]}).encode(), {}, "parameter 'x' has invalid type"),
        (500, b'{"parameters":' + b"[" * 200 + b"]" * 200 + b"}", {}, "attempt to get members for non-object"),
        (400, b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":' + b"[" * 200 + b"]" * 200 + b"}]}", {},
         "JSON nesting depth exceeds maximum allowed limit (100)"),
    ]  # fmt: skip
    for want, body, headers, text in cases:
        status, answer, content = post(body, headers)
        equal(status, want, (body[:80], content))
        equal(answer["Content-Type"], "text/plain" if headers else "application/json")  # as Triton: by when it is refused
        has(json.loads(content)["error"], text)
    status, _, content = ask(f.args, "GET", "/v2/models/raw/infer")
    equal((status, json.loads(content)), (405, {"error": "Method Not Allowed"}))
    status, _, content = ask(f.args, "GET", "/v2/nothing")
    equal((status, json.loads(content)), (404, {"error": "Not Found"}))
    fine(f)


# shows: errors grpc.errors
@case(("grpc",))
def wrong_messages(f):
    import grpc
    from tritonclient.grpc import service_pb2

    code = grpc.StatusCode.INVALID_ARGUMENT
    stub = f.module.service_pb2_grpc.GRPCInferenceServiceStub

    def request(raw=None, fp32=None, ints=None, **parameters):
        r = service_pb2.ModelInferRequest(model_name="raw")
        t = r.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 4])
        if fp32:
            t.contents.fp32_contents.extend(fp32)
        if ints:
            t.contents.int_contents.extend(ints)
        r.raw_input_contents.extend(raw or [])
        for k, v in parameters.items():
            setattr(r.parameters[k], *v)
        return r

    cases = [
        (request([b"\0" * 16], fp32=[1]), "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'raw'"),
        (request(ints=[1, 2, 3, 4]), "unexpected explicit tensor data for input tensor 'INPUT0' for model 'raw' of type 'INT32', expected datatype 'FP32'"),
        (request([b"\0" * 16], triton_x=("bool_param", True)), "parameter keys starting with 'triton_' are reserved for Triton usage"),
        (request([b"\0" * 16], sequence_id=("bool_param", True)), "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
        (request([b"\0" * 12]), "input byte size mismatch for input 'INPUT0' for model 'raw'. Expected 16, got 12"),
    ]
    with grpc.insecure_channel(f.args.grpc) as channel:
        for message, text in cases:
            try:
                stub(channel).ModelInfer(message, timeout=LIMIT)
            except grpc.RpcError as e:
                equal(e.code(), code, e.details())
                has(e.details(), text)
            else:
                raise AssertionError(text)
        stub(channel).ModelInfer(request([b"\0" * 16, b"more is ignored"]), timeout=LIMIT)
    fine(f)
