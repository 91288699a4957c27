"""Drives both front ends with tritonclient.

usage: python tritonclient_check.py ECHOSERVER, where ECHOSERVER is the built
command server/servertest/echoserver. Needs: pip install tritonclient[http,grpc]
"""

import subprocess
import sys

import numpy as np
import tritonclient.grpc as tgrpc
import tritonclient.http as thttp

TYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}


def sample(name):
    if name == "BYTES":
        return np.array([[b"a", b""], [b"\xc3\xa9", b"long " * 20]], dtype=np.object_)
    return (np.arange(12).reshape(3, 4) * 0.75).astype(TYPES[name])


def tensor(client, name, data, dtype, **kw):
    t = client.InferInput(name, list(data.shape), dtype)
    t.set_data_from_numpy(data, **kw)
    return t


def same(got, want, what):
    assert got is not None, what
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.dtype, got.shape)
    assert (got == want).all(), (what, got, want)


def infer(http, grpc):
    for dtype in TYPES:
        data = sample(dtype)
        inputs = [tensor(tgrpc, "X", data, dtype)]
        same(grpc.infer("echo", inputs).as_numpy("X"), data, ("grpc", dtype))
        for binary_in in (True, False):
            for binary_out in (True, False):
                if dtype == "FP16" and not (binary_in and binary_out):
                    continue
                inputs = [tensor(thttp, "X", data, dtype, binary_data=binary_in)]
                outputs = [thttp.InferRequestedOutput("X", binary_data=binary_out)]
                answer = http.infer("echo", inputs, outputs=outputs, request_id="r1")
                want = data
                if dtype == "BYTES" and not binary_out:  # JSON strings arrive as str
                    want = np.array([[b.decode() for b in row] for row in data], dtype=np.object_)
                same(answer.as_numpy("X"), want, ("http", dtype, binary_in, binary_out))
                assert answer.get_response()["id"] == "r1"


def questions(http, grpc):
    for client in (http, grpc):
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("echo")
        assert not client.is_model_ready("unready")
    assert http.get_server_metadata()["name"] == grpc.get_server_metadata().name == "tutti"
    assert http.get_model_metadata("two")["inputs"][1]["name"] == "Y"
    assert grpc.get_model_metadata("two").inputs[1].name == "Y"
    assert http.get_model_config("raw_batch")["max_batch_size"] == 8
    assert grpc.get_model_config("raw_batch").config.max_batch_size == 8
    assert len(http.get_inference_statistics()["model_stats"]) == 2
    assert len(grpc.get_inference_statistics("echo").model_stats) == 1


def parameters(http, grpc):
    data = sample("FP32")
    extra = {"text": "x", "flag": True, "count": 3, "ratio": 0.5}
    kw = dict(sequence_id=7, sequence_start=True, priority=1, timeout=1000000, parameters=extra)
    answer = http.infer("params", [tensor(thttp, "X", data, "FP32")], **kw).get_response()
    assert answer["parameters"] == extra, answer
    answer = grpc.infer("params", [tensor(tgrpc, "X", data, "FP32")], **kw).get_response()
    assert answer.parameters["text"].string_param == "x" and answer.parameters["ratio"].double_param == 0.5


def failures(http, grpc):
    data = sample("FP32")
    for client, module in ((http, thttp), (grpc, tgrpc)):
        for model, text in (("nope", "unknown model: 'nope' is not found"), ("fail", "it went"), ("unready", "not at ready state")):
            try:
                client.infer(model, [tensor(module, "X", data, "FP32")])
            except module.InferenceServerException as e:
                assert text in e.message(), e
            else:
                raise AssertionError((client, model))


def main():
    server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    http = thttp.InferenceServerClient(server.stdout.readline().strip(), concurrency=4)
    grpc = tgrpc.InferenceServerClient(server.stdout.readline().strip())
    for check in (questions, infer, parameters, failures):
        check(http, grpc)
    pending = [http.async_infer("echo", [tensor(thttp, "X", sample("INT32"), "INT32")]) for _ in range(50)]
    for p in pending:
        same(p.get_result().as_numpy("X"), sample("INT32"), "async")
    http.close()
    grpc.close()
    server.stdin.close()
    assert server.wait(timeout=30) == 0
    print("ok: tritonclient over HTTP (JSON, binary) and gRPC")


if __name__ == "__main__":
    main()
