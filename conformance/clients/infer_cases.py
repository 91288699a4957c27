"""Requests and their responses: data types, framing, parameters, compression, shared memory."""

import json

import numpy as np

from harness import DTYPES, GRPC, HTTP, LIMIT, Skip, ask, case, equal, has, http_module, region, refused, same, sample, shm


# shows: infer infer.dtypes http.binary http.json grpc.raw
@case()
def every_dtype(f):
    for dtype in DTYPES:
        data = sample(dtype)
        answer = f.infer(f"id_{dtype.lower()}", [f.input("INPUT0", data, dtype)], request_id=f"r {dtype}")
        same(answer.as_numpy("OUTPUT0"), data, dtype)
        response = answer.get_response()
        equal(response["id"] if f.http else response.id, f"r {dtype}")
        output = answer.get_output("OUTPUT0")
        equal(output["datatype"] if f.http else output.datatype, dtype)
        assert answer.get_output("nothing") is None and answer.as_numpy("nothing") is None


# shows: http.json http.binary_data http.binary_data_output
@case(HTTP)
def json_and_binary_tensors(f):
    for dtype in DTYPES:
        if dtype in ("FP16", "BF16"):
            continue  # these have no JSON form
        data = sample(dtype)
        for binary_in in (True, False):
            for binary_out in (True, False):
                inputs = [f.input("INPUT0", data, dtype, binary_data=binary_in)]
                answer = f.infer(f"id_{dtype.lower()}", inputs, outputs=[f.output("OUTPUT0", binary_data=binary_out)])
                want = data
                if dtype == "BYTES" and not binary_out:  # JSON strings arrive as str
                    want = np.array([[b.decode() for b in row] for row in data], dtype=np.object_)
                same(answer.as_numpy("OUTPUT0"), want, (dtype, binary_in, binary_out))
                assert ("data" in answer.get_output("OUTPUT0")) != binary_out


# shows: http.json_half
@case(HTTP)
def half_precision_has_no_json(f):
    data = np.ones((1, 2), np.float16)
    inputs = [f.input("INPUT0", data, "FP16")]
    text = "sending FP16 data via JSON is not supported. Please use the binary data format for output OUTPUT0"
    refused(f, lambda: f.infer("id_fp16", inputs, outputs=[f.output("OUTPUT0", binary_data=False)]), text)
    body = {"inputs": [{"name": "INPUT0", "datatype": "BF16", "shape": [1, 1], "data": [1]}]}
    status, _, answer = ask(f.args, "POST", "/v2/models/id_bf16/infer", json.dumps(body).encode())
    equal(status, 400)
    has(answer.decode(), "receiving BF16 data via JSON is not supported. Please use the binary data format for input INPUT0")


# shows: infer.mixed http.mixed
@case()
def two_inputs(f):
    floats, ints = np.arange(8, dtype=np.float32).reshape(2, 4), np.arange(8, dtype=np.int32).reshape(2, 4)
    inputs = [f.input("INPUT1", ints, **({"binary_data": False} if f.http else {})), f.input("INPUT0", floats)]
    answer = f.infer("two", inputs)
    same(answer.as_numpy("OUTPUT0"), floats)
    same(answer.as_numpy("OUTPUT1"), ints)


# shows: infer.outputs
@case()
def chosen_outputs(f):
    floats, ints = np.ones((1, 4), np.float32), np.ones((1, 4), np.int32)
    inputs = [f.input("INPUT0", floats), f.input("INPUT1", ints)]
    wanted = f.output("OUTPUT1")
    equal(wanted.name(), "OUTPUT1")
    answer = f.infer("two", inputs, outputs=[wanted])
    same(answer.as_numpy("OUTPUT1"), ints)
    assert answer.as_numpy("OUTPUT0") is None


# shows: infer.version
@case()
def versions(f):
    data = np.ones((1, 2), np.float32)
    t = f.input("INPUT0", data)
    equal((t.name(), t.datatype(), list(t.shape())), ("INPUT0", "FP32", [1, 2]))
    answer = f.infer("id_fp32", [t], model_version="1").get_response()
    equal(answer["model_version"] if f.http else answer.model_version, "1")
    refused(f, lambda: f.infer("id_fp32", [t], model_version="7"), "Request for unknown model: 'id_fp32' version 7 is not found", "404", "NOT_FOUND")


# shows: infer.empty
@case()
def nothing_in_it(f):
    for shape in ((0, 3), (2, 0)):
        for dtype in ("FP32", "INT8", "BYTES"):
            data = np.empty(shape, DTYPES[dtype])
            t = f.module.InferInput("INPUT0", [1, 1], dtype)
            t.set_shape(list(shape))
            t.set_data_from_numpy(data)
            got = f.infer(f"id_{dtype.lower()}", [t]).as_numpy("OUTPUT0")
            equal(got.shape, shape, dtype)


# shows: infer.large
@case()
def a_large_tensor(f):
    data = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    same(f.infer("id_fp32", [f.input("INPUT0", data)]).as_numpy("OUTPUT0"), data)


# shows: infer.parameters infer.sequence_parameters infer.priority infer.timeout
@case()
def parameters(f):
    data = np.ones((1, 2), np.float32)
    options = {"text": "x", "flag": True, "count": 3, "ratio": 0.5}
    for sequence in (7, "a name"):
        answer = f.infer("id_fp32", [f.input("INPUT0", data)], sequence_id=sequence, sequence_start=True, sequence_end=True, priority=1, timeout=1_000_000, parameters=options)
        same(answer.as_numpy("OUTPUT0"), data)


# shows: ensembles
@case()
def an_ensemble(f):
    data = np.arange(4, dtype=np.float32).reshape(1, 4)
    answer = f.infer("chain", [f.input("IN", data)])
    same(answer.as_numpy("OUT"), data)
    if f.http:  # as a running Triton answers
        equal(answer.get_response().get("parameters"), {"sequence_id": 0, "sequence_start": False, "sequence_end": False})


# shows: ensembles backends.onnxruntime backends.native
@case()
def an_example(f):
    if not f.args.onnx:
        raise Skip("no ONNX Runtime")
    with open(f"{f.args.examples}/digits/two.jpg", "rb") as picture:
        data = np.array([[picture.read()]], dtype=np.object_)
    answer = f.infer("digits", [f.input("IMAGE", data)])
    equal(list(answer.as_numpy("labels")[0]), [b"two", b"nine", b"eight"])


# shows: infer.compression
@case()
def compression(f):
    data = np.zeros((64, 64), np.float32)
    for algorithm in ("gzip", "deflate"):
        if f.http:
            for request, response in ((algorithm, None), (None, algorithm), (algorithm, algorithm)):
                for binary in (True, False):
                    answer = f.infer(
                        "id_fp32",
                        [f.input("INPUT0", data, binary_data=binary)],
                        outputs=[f.output("OUTPUT0", binary_data=binary)],
                        request_compression_algorithm=request,
                        response_compression_algorithm=response,
                    )
                    same(answer.as_numpy("OUTPUT0"), data, (request, response, binary))
        else:
            answer = f.infer("id_fp32", [f.input("INPUT0", data)], compression_algorithm=algorithm)
            same(answer.as_numpy("OUTPUT0"), data, algorithm)


# shows: infer.classification
@case()
def classification(f):
    data = np.array([[0.5, 2.0, -1.0, 1.0], [4.0, 3.0, 2.0, 1.0]], np.float32)
    for model, source, names in (("labelled", "INPUT0", "OUTPUT0"), ("labelled_chain", "IN", "OUT")):
        answer = f.infer(model, [f.input(source, data)], outputs=[f.output(names, class_count=2)])
        got = answer.as_numpy(names)
        equal(got.shape, (2, 2))
        equal([v.decode().split(":")[1:] for v in got.flatten()], [["1", "dog"], ["3", "ant"], ["0", "cat"], ["1", "dog"]])
        equal([float(v.decode().split(":")[0]) for v in got.flatten()], [2.0, 1.0, 4.0, 3.0])
    more = f.infer("labelled", [f.input("INPUT0", data)], outputs=[f.output("OUTPUT0", class_count=9)])
    equal(more.as_numpy("OUTPUT0").shape, (2, 4))


# shows: shm.infer shm.system
@case()
def shared_memory(f):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    size = data.nbytes
    with region(2 * size) as (handle, key):
        assert key in shm.mapped_shared_memory_regions()
        shm.set_shared_memory_region(handle, [data])
        f.register_system_shared_memory("both", key, 2 * size)
        t = f.module.InferInput("INPUT0", [2, 3], "FP32")
        t.set_shared_memory("both", size)
        out = f.output("OUTPUT0")
        out.set_shared_memory("both", size, offset=size)
        try:
            answer = f.infer("id_fp32", [t], outputs=[out])
            output = answer.get_output("OUTPUT0")
            equal(list(output["shape"] if f.http else output.shape), [2, 3])
            assert not f.http or "data" not in output
            same(shm.get_contents_as_numpy(handle, np.float32, [2, 3], offset=size), data)
            out.unset_shared_memory()
            same(f.infer("id_fp32", [t], outputs=[out]).as_numpy("OUTPUT0"), data)
        finally:
            f.unregister_system_shared_memory("both")
        refused(f, lambda: f.infer("id_fp32", [t]), "Unable to find shared memory region: 'both'", "404", "NOT_FOUND")


# shows: shm.infer
@case()
def shared_memory_of_strings(f):
    words = np.array([[b"one", b"", b"three"]], dtype=np.object_)
    packed = http_module.serialize_byte_tensor(words)
    size = len(packed.item())
    with region(2 * size) as (handle, key):
        shm.set_shared_memory_region(handle, [packed])
        f.register_system_shared_memory("words", key, 2 * size)
        t = f.module.InferInput("INPUT0", [1, 3], "BYTES")
        t.set_shared_memory("words", size)
        out = f.output("OUTPUT0")
        out.set_shared_memory("words", size, offset=size)
        try:
            f.infer("id_bytes", [t], outputs=[out])
            got = shm.get_contents_as_numpy(handle, np.object_, [1, 3], offset=size)
            equal(list(got[0]), list(words[0]))
        finally:
            f.unregister_system_shared_memory()


# shows: infer.async
@case(("http",))
def asynchronous_http(f):
    data = np.ones((1, 2), np.float32)
    with f.connect(concurrency=4) as client:
        pending = [client.async_infer("id_fp32", [f.input("INPUT0", data * i)]) for i in range(20)]
        for i, p in enumerate(pending):
            same(p.get_result(timeout=LIMIT).as_numpy("OUTPUT0"), data * i)


# shows: http.binary http.raw
@case(HTTP)
def bodies_made_apart(f):
    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    cls = f.client_module.InferenceServerClient
    body, size = cls.generate_request_body([f.input("INPUT0", data)], request_id="apart")
    headers = {"Inference-Header-Content-Length": str(size)}
    status, answer, content = ask(f.args, "POST", "/v2/models/id_fp32/infer", body, headers)
    equal(status, 200)
    equal(answer["Content-Type"], "application/octet-stream")
    length = int(answer["Inference-Header-Content-Length"])
    result = cls.parse_response_body(content, header_length=length)
    same(result.as_numpy("OUTPUT0"), data)
    same(f.module.InferResult.from_response_body(content, header_length=length).as_numpy("OUTPUT0"), data)
    raw = {"Inference-Header-Content-Length": "0"}
    status, answer, content = ask(f.args, "POST", "/v2/models/raw/infer", data.tobytes(), raw)
    equal(status, 200, content)
    result = cls.parse_response_body(content, header_length=int(answer["Inference-Header-Content-Length"]))
    same(result.as_numpy("OUTPUT0"), data.reshape(1, 4))


# shows: grpc.contents
@case(GRPC)
def typed_contents(f):
    from tritonclient.grpc import service_pb2

    fields = {
        "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
        "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
        "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
    }  # fmt: skip
    stub = f.module.service_pb2_grpc.GRPCInferenceServiceStub
    with __import__("grpc").insecure_channel(f.args.grpc) as channel:
        for dtype, field in fields.items():
            data = sample(dtype)
            request = service_pb2.ModelInferRequest(model_name=f"id_{dtype.lower()}")
            tensor = request.inputs.add(name="INPUT0", datatype=dtype, shape=data.shape)
            getattr(tensor.contents, field).extend(data.flatten().tolist())
            answer = f.module.InferResult(stub(channel).ModelInfer(request, timeout=LIMIT))
            same(answer.as_numpy("OUTPUT0"), data, dtype)
