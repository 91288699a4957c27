#!/usr/bin/env python3
"""Send the same requests to servers of one scenario and compare their responses.

    check.py identity3 127.0.0.1:8000
    check.py text 127.0.0.1:8000 127.0.0.1:9000 --grpc 127.0.0.1:8001 127.0.0.1:9001

Answers that arithmetic gives are compared with it, those of text and image with the
first server's. Every question is asked alone over HTTP as JSON, then all again at
once, so that batches form. The HTTP servers need the standard library only; --binary
(KServe's binary extension) and --grpc need tritonclient with what it imports.
Prints a line a server and protocol; exit code 1: an answer differs.
"""

import argparse
import base64
import concurrent.futures
import json
import math
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
ARITHMETIC = {
    "identity3": lambda x: 2 * (x + 1) - 3,
    "python3": lambda x: 2 * (x + 1) - 3,
    "parallel": lambda x: 2 * x + x * x + (x + 10),
    "identities": lambda x: x,
}


def questions(scenario):
    """(model, input's name, datatype, shape, list of questions), each a flat list."""
    if scenario == "text":
        lines = (ROOT / "bench/testdata/text_mix.txt").read_text(encoding="utf-8").splitlines()
        return "ensemble", "TEXT", "BYTES", [1, 1], [[line.encode()] for line in lines[:64]]
    if scenario == "image":
        files = sorted((ROOT / "bench/testdata/pictures").glob("*.jpg"))
        return "image", "IMAGE", "BYTES", [1, 1], [[f.read_bytes()] for f in files * 4]
    rows = [[(i * 16 + j) / 4 for j in range(32)] for i in range(32)]
    return scenario, "INPUT0", "FP32", [2, 16], rows


def as_json(address, model, name, datatype, shape, question):
    """The outputs by name, requested as JSON, which cannot hold bytes that are not UTF-8."""
    data = [v.decode() for v in question] if datatype == "BYTES" else question
    body = {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]}
    return post(address, model, json.dumps(body).encode(), {"Content-Type": "application/json"})


def as_binary_input(address, model, name, datatype, shape, question):
    """The same with the input behind the JSON, as the binary extension has it."""
    data = b"".join(len(v).to_bytes(4, "little") + v for v in question)
    put = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
    header = json.dumps({"inputs": [put]}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))}
    return post(address, model, header + data, headers)


def as_base64(address, model, name, datatype, shape, question):
    """Images as text, for servers without the binary extension."""
    return as_json(address, model, name, datatype, shape, [base64.b64encode(v) for v in question])


def post(address, model, body, headers):
    request = urllib.request.Request(f"http://{address}/v2/models/{model}/infer", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {o["name"]: o["data"] for o in json.loads(answer.read())["outputs"]}


def with_tritonclient(module, client, model, name, datatype, shape, question):
    """The outputs by name through one of tritonclient's modules."""
    import numpy as np

    kind = np.object_ if datatype == "BYTES" else np.float32
    put = module.InferInput(name, shape, datatype)
    put.set_data_from_numpy(np.array(question, kind).reshape(shape))
    result, outputs = client.infer(model, [put]), {}
    answer = result.get_response()
    for o in answer["outputs"] if isinstance(answer, dict) else answer.outputs:
        key = o["name"] if isinstance(o, dict) else o.name
        flat = result.as_numpy(key).ravel().tolist()
        outputs[key] = [v.decode() if isinstance(v, bytes) else v for v in flat]
    return outputs


def same(a, b):
    """Whether two responses agree: text exactly, numbers to TOLERANCE."""
    if a.keys() != b.keys():
        return False
    for name in a:
        if len(a[name]) != len(b[name]):
            return False
        for x, y in zip(a[name], b[name]):
            equal = x == y if isinstance(x, str) else math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            if not equal:
                return False
    return True


def answers(ask, asked, at_once):
    """The response to every request, sent one after another or many at a time."""
    model, name, datatype, shape, rows = asked
    with concurrent.futures.ThreadPoolExecutor(16 if at_once else 1) as pool:
        return list(pool.map(lambda row: ask(model, name, datatype, shape, row), rows))


def report(label, found, wanted):
    wrong = sum(not same(f, w) for f, w in zip(found, wanted))
    print(f"{label}: {len(found) - wrong} of {len(found)} answers as expected")
    return wrong == 0


def callers(options):
    """(label, a function that sends a request) for every server and protocol; a tritonclient client serves one thread only."""
    plain = as_json if options.scenario != "image" else as_base64 if options.base64 else as_binary_input
    for address in options.http:
        yield f"{address} HTTP", lambda *q, a=address: plain(a, *q), True
    if options.binary:
        import tritonclient.http as http

        for address in options.http:
            client = http.InferenceServerClient(address)
            yield f"{address} HTTP binary", lambda *q, c=client: with_tritonclient(http, c, *q), False
    if options.grpc:
        import tritonclient.grpc as grpc

        for address in options.grpc:
            client = grpc.InferenceServerClient(address)
            yield f"{address} gRPC", lambda *q, c=client: with_tritonclient(grpc, c, *q), True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenario", choices=[*ARITHMETIC, "text", "image"])
    parser.add_argument("http", nargs="+", help="host:port of each server's HTTP")
    parser.add_argument("--grpc", nargs="*", default=[], help="host:port of each server's gRPC")
    parser.add_argument("--binary", action="store_true", help="ask over the binary extension of HTTP as well")
    parser.add_argument("--base64", action="store_true", help="send pictures as base64 text")
    options = parser.parse_args()

    asked, wanted, good = questions(options.scenario), None, True
    if options.scenario in ARITHMETIC:
        wanted = [{"OUTPUT0": [ARITHMETIC[options.scenario](x) for x in row]} for row in asked[4]]
    for label, ask, parallel in callers(options):
        try:
            found = answers(ask, asked, False)
        except OSError as err:
            print(f"{label}: {err}")
            return 1
        wanted = wanted or found
        good &= report(label, found, wanted)
        if parallel:
            good &= report(label + ", 16 at once", answers(ask, asked, True), wanted)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
