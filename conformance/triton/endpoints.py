"""L0_http, L0_grpc, L0_input_validation, L0_logging and L0_parameters: requests and responses of the two protocols."""

import re

import grpc as grpc_module
from harness import Tests
from models import IDENTITY, config, identity, simple, tensor

EXPLICIT = "--model-control-mode=explicit"
ZEROS = "onnx_zero_1_float32"


def small(h):
    """A repository of two of the documentation's models."""
    return identity(simple(h.checkout, h.repo()))


def filled(h, repo, test):
    """Adds models until there are as many as a test expects in the repository index."""
    count = int(re.search(r"assertEqual\(len\(ret(?:\.models)?\), (\d+)\)", (h.qa / test).read_text())[1])
    for i in range(count - len(repo.models())):
        identity(repo, f"filler_{i}")
    return repo


def http_repository(h):
    """The models of L0_http/http_test.py."""
    source, repo = h.checkout.identity(), h.repo()
    for model in (ZEROS, "onnx_zero_1_object", "onnx_zero_1_float16", "onnx_zero_3_float32"):
        repo.add(source / model)
    one = "onnx_zero_1_object_1_element"
    repo.add(source / "onnx_zero_1_object", one)
    path = repo / one / "config.pbtxt"
    path.write_text(path.read_text().replace("onnx_zero_1_object", one).replace("-1", "1", 1))
    queue = ZEROS + "_queue"
    policy = "dynamic_batching { max_queue_delay_microseconds: 1000000 preferred_batch_size: [ 8 ] default_queue_policy { max_queue_size: 1 } }"
    repo.add(source / ZEROS, queue).edit(queue, (ZEROS, queue), append=policy)
    return identity(identity(repo), "simple_identity_int64", "INT64")


def restricted_twice(h, flag, word):
    """Expects that a flag which restricts APIs is refused with a group that is repeated, and with one that is unknown."""
    repeated = f"{word} 'health' can not be specified in multiple config groups"
    unknown = f"unknown restricted {word} 'model-reposit'"
    for name, first, text in (("repeated", "model-repository", repeated), ("unknown", "model-reposit", unknown)):
        flags = [f"{flag}={first},health:k1=v1", f"{flag}=metadata,health:k2=v2"]
        h.refuse(f"restricted_{name}", lambda: small(h), [text], flags, prefix="")


def http(h):
    """L0_http; needs onnx, identity"""
    h.run(lambda: http_repository(h), Tests("L0_http", "http_test.py", flags=[EXPLICIT, "--load-model=*"]))
    aio = "python_http_aio_test.py"
    h.run(lambda: filled(h, small(h), f"L0_http/{aio}"), Tests("L0_http", aio, variant="aio"))
    h.run(lambda: small(h), Tests("L0_http", "http_client_plugin_test.py", variant="plugin"))
    flag = "--http-restricted-api"
    restricted_twice(h, flag, "api")
    flags = [f"{flag}=model-repository:admin-key=admin-value", f"{flag}=inference,metadata:infer-key=infer-value"]
    h.run(lambda: small(h), Tests("L0_http", "http_restricted_api_test.py", ["RestrictedAPITest"], "restricted", flags))


def generate(h):
    """L0_http, generate endpoints; needs python"""

    def repo():
        r = h.repo()
        for model in (h.qa / "L0_http/generate_models").iterdir():
            r.add(model)
        return r

    h.run(repo, Tests("L0_http", "generate_endpoint_test.py", flags=["--log-verbose=1"]))


def grpc(h):
    """L0_grpc; needs onnx, identity, python"""
    aio = "python_grpc_aio_test.py"
    h.run(lambda: filled(h, small(h), f"L0_grpc/{aio}"), Tests("L0_grpc", aio, variant="aio"))
    flag = "--grpc-restricted-protocol"
    restricted_twice(h, flag, "protocol")
    flags = [f"{flag}=model-repository:admin-key=admin-value", f"{flag}=inference,health:infer-key=infer-value"]
    h.run(lambda: small(h), Tests("L0_grpc", "python_unit_test.py", ["RestrictedProtocolTest"], "restricted", flags))

    def plugin():
        r = h.repo()
        for model in (h.qa / "L0_grpc/client_plugin_models").iterdir():
            r.add(model, versions=(1,))
        return r

    h.run(plugin, Tests("L0_grpc", "grpc_client_plugin_test.py", variant="plugin", flags=forwarding(".*")))
    h.check("health_service", lambda: small(h), grpc_health)


def grpc_health():
    """Queries grpc.health.v1 as grpc-health-probe does."""
    with grpc_module.insecure_channel("127.0.0.1:8001") as channel:
        got = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
    assert got == b"\x08\x01", got  # SERVING


def input_validation(h):
    """L0_input_validation; needs python, onnx, identity"""
    file, sums = "input_validation_test.py", "onnx_object_int32_int32"

    def repo():
        r = h.repo()
        for model in (h.qa / "L0_input_validation/models").iterdir():
            r.add(model)
        return r

    def shapes():  # stand-ins for models of TensorFlow and PyTorch
        r = repo().add(h.checkout.onnx() / sums)
        twin = "graphdef_object_int32_int32"
        r.add(h.checkout.onnx() / sums, twin).edit(twin, ("onnx_object", "graphdef_object"))
        delay = "dynamic_batching { max_queue_delay_microseconds: 1000000 }"
        text = config("pt_identity", IDENTITY, [tensor("INPUT0", "FP32", 8)], [tensor("OUTPUT0", "FP32", 8)], 8, delay)
        return r.put("pt_identity", text)

    h.run(repo, Tests("L0_input_validation", file, ["InputValTest"]))
    h.run(shapes, Tests("L0_input_validation", file, ["InputShapeTest"]))


def logging(h):
    """L0_logging; needs onnx"""
    h.run_each(lambda: simple(h.checkout, h.repo()), Tests("L0_logging", "logging_endpoint_test.py"))


def forwarding(pattern):
    """The flags that forward headers as parameters."""
    return ["--grpc-header-forward-pattern", pattern, "--http-header-forward-pattern", pattern]


def parameters(h):
    """L0_parameters; needs python, identity"""

    def repo():
        r = h.repo()
        for model in ("identity", "ensemble", "parameter"):
            r.add(h.qa / "L0_parameters/model_repository" / model, versions=(1,))
        return r

    flags = {
        "test_params": [],
        "test_headers": forwarding("my_header.*"),
        "test_header_forward_pattern_case_insensitive": forwarding("MY_HEADER.*"),
        "test_grpc_header_forward_pattern_case_sensitive": ["--grpc-header-forward-pattern", "(?-i)MY_HEADER.*"],
    }
    for name, given in flags.items():
        all_flags = [*given, "--exit-timeout-secs=120"]
        h.run(repo, Tests("L0_parameters", "parameters_test.py", variant=name, flags=all_flags, client_env={"TEST_HEADER": name}))
