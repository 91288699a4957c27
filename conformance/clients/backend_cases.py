"""The two-input model of every backend, against the numbers of its framework's own Python run.

A folder of examples/backends joins by having an expected.json; a model whose runtime is
not on this machine is skipped with the reason that the server gives.
"""

import json
import os
import pathlib
import re

import numpy as np

from guarded_cases import secure
from harness import DTYPES, Skip, case, equal

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "backends"
ABSENT = re.compile("run 'tutti runtime fetch (\\w+)'")  # in the reason of a model whose runtime has to be fetched
ALGORITHMS = ("gzip", "deflate")


def array(t):
    return np.array(t["data"], DTYPES[t["datatype"]]).reshape(t["shape"])


def ready(client, model):
    """Skips a model whose runtime is absent, and fails for any other reason that it is not ready, or where make prepared it."""
    answer = client.get_model_repository_index()
    models = answer if isinstance(answer, list) else [{"name": m.name, "state": m.state, "reason": m.reason} for m in answer.models]
    found = [m for m in models if m["name"] == model]
    assert found, f"the index has no {model}"
    if found[0].get("state") == "READY":
        return
    reason = found[0].get("reason", "")
    absent = ABSENT.search(reason)
    if absent and "TUTTI_TEST_" + absent.group(1).upper() not in os.environ:
        raise Skip(reason)
    raise AssertionError(f"{model} is not ready: {reason}")


def check(answer, want, atol, what):
    for t in want:
        got = answer.as_numpy(t["name"])
        assert got is not None, (what, t["name"])
        equal((got.dtype, list(got.shape)), (np.dtype(DTYPES[t["datatype"]]), t["shape"]), (what, t["name"]))
        np.testing.assert_allclose(got, array(t), rtol=0, atol=atol, err_msg=f"{what} {t['name']}")


def options(f):
    """Every encoding: binary or JSON inputs, binary or JSON outputs, and compression of requests and responses."""
    if not f.http:
        yield from ({"compression_algorithm": a} for a in (None, *ALGORITHMS))
        return
    for tensors in ((True, True), (True, False), (False, True), (False, False)):
        for packed in ((None, None), *((a, a) for a in ALGORITHMS), ("gzip", None), (None, "deflate")):
            yield {"binary": tensors, "request_compression_algorithm": packed[0], "response_compression_algorithm": packed[1]}


def served(f, client, model, requests):
    ready(client, model)
    for how in options(f):
        given = dict(how)
        binary_in, binary_out = given.pop("binary", (None, None))
        for r in requests:
            inputs = [f.input(t["name"], array(t), t["datatype"], **({} if binary_in is None else {"binary_data": binary_in})) for t in r["inputs"]]
            outputs = [f.output(t["name"], **({} if binary_out is None else {"binary_data": binary_out})) for t in r["outputs"]]
            answer = client.infer(model, inputs, outputs=outputs, request_id=r["name"], **given)
            response = answer.get_response()
            equal(response["id"] if f.http else response.id, r["name"])
            check(answer, r["outputs"], r.get("atol", 0), (model, r["name"], how))


# shows: backends.frameworks
def two_inputs(model, requests):
    """Makes a case for clear text and one for TLS."""

    def clear(f):
        with f.connect() as client:
            served(f, client, model, requests)

    def encrypted(f):
        with secure(f) as client:
            served(f, client, model, requests)

    for function, variant in ((clear, "backends"), (encrypted, "backends_tls")):
        function.__name__ = model
        case(variant=variant)(function)


def collect():
    for path in sorted(EXAMPLES.glob("*/expected.json")):
        content = json.loads(path.read_text())
        models = {}
        for r in content["requests"]:
            models.setdefault(r.get("ensemble") or content["ensemble"], []).append(r)
        for model, requests in models.items():
            two_inputs(model, requests)


collect()
