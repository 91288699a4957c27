"""Everything about the server that is no request: health, metadata, repository, statistics, settings, regions."""

import base64
import json

import numpy as np

from harness import FLAVOURS, GRPC, HTTP, LIMIT, ask, case, equal, has, http_module, region, refused, same, until

EXTENSIONS = [
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
    "model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
    "statistics", "trace", "logging",
]  # fmt: skip


# shows: health
@case()
def health(f):
    assert f.is_server_live() and f.is_server_ready()
    assert f.is_model_ready("two") and f.is_model_ready("two", "1")
    assert not f.is_model_ready("late")


# shows: grpc.health
@case(("grpc",))
def health_service(f):
    import grpc

    # The messages are small enough to write: status is field 1, SERVING is 1.
    with grpc.insecure_channel(f.args.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        equal(check(b"", timeout=LIMIT), b"\x08\x01")
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=LIMIT)
        equal(next(watch), b"\x08\x01")
        watch.cancel()
        has(channel.unary_unary("/grpc.health.v1.Health/List")(b"", timeout=LIMIT), b"\x08\x01")


# shows: grpc.reflection
@case(("grpc",))
def reflection(f):
    import grpc

    with grpc.insecure_channel(f.args.grpc) as channel:
        for version in ("v1", "v1alpha"):
            ask_services = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
            answer = next(ask_services(iter([b"\x3a\x00"]), timeout=LIMIT))  # field 7: list the services
            has(answer, b"inference.GRPCInferenceService")


# shows: metadata
@case()
def server_metadata(f):
    m = f.get_server_metadata()
    if f.http:
        equal(m["extensions"], EXTENSIONS)
        assert m["name"] and m["version"]
    else:
        equal(list(m.extensions), EXTENSIONS)
        equal(f.get_server_metadata(as_json=True)["name"], m.name)


# shows: metadata
@case()
def model_metadata(f):
    want = {
        "name": "two",
        "versions": ["1"],
        "platform": "identity",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 4]}, {"name": "INPUT1", "datatype": "INT32", "shape": [-1, 4]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 4]}, {"name": "OUTPUT1", "datatype": "INT32", "shape": [-1, 4]}],
    }
    if f.http:
        equal(f.get_model_metadata("two"), want)
        equal(f.get_model_metadata("two", "1"), want)
    else:
        got = f.get_model_metadata("two", "1", as_json=True)
        for t in got["inputs"] + got["outputs"]:
            t["shape"] = [int(n) for n in t["shape"]]
        equal(got, want)
    refused(f, lambda: f.get_model_metadata("nobody"), "Request for unknown model: 'nobody' is not found")


# shows: config
@case()
def model_config(f):
    if f.http:
        c = f.get_model_config("two")
        equal((c["name"], c["backend"], c["max_batch_size"], c["input"][1]["dims"]), ("two", "identity", 8, [4]))
        equal(c["version_policy"], {"latest": {"num_versions": 1}})
        assert c["input"][0]["is_shape_tensor"] is False  # zeros are printed
    else:
        c = f.get_model_config("two").config
        equal((c.name, c.backend, c.max_batch_size, list(c.input[1].dims)), ("two", "identity", 8, [4]))


# shows: statistics
@case()
def statistics(f):
    def successes(s):
        s = s["model_stats"][0] if f.http else s.model_stats[0]
        return int(s["inference_stats"]["success"]["count"]) if f.http else s.inference_stats.success.count

    before = successes(f.get_inference_statistics("two", "1"))
    t = [f.input("INPUT0", np.ones((1, 4), np.float32)), f.input("INPUT1", np.ones((1, 4), np.int32))]
    f.infer("two", t)
    equal(successes(f.get_inference_statistics("two")), before + 1)
    every = f.get_inference_statistics()
    assert len(every["model_stats"] if f.http else every.model_stats) > 14
    refused(f, lambda: f.get_inference_statistics("nobody"), "requested model 'nobody' is not available")


def index(f):
    """The repository index as {name: (version, state)}."""
    answer = f.get_model_repository_index()
    rows = answer if f.http else [{"name": m.name, "version": m.version, "state": m.state} for m in answer.models]
    return {r["name"]: (r.get("version", ""), r.get("state", "")) for r in rows}


# shows: repository
@case()
def load_and_unload(f):
    equal(index(f)["late"][1] in ("", "UNAVAILABLE"), True)
    equal(index(f)["two"], ("1", "READY"))
    f.load_model("late")
    assert f.is_model_ready("late")
    equal(index(f)["late"], ("1", "READY"))
    data = np.ones((1, 4), np.float32)
    same(f.infer("late", [f.input("INPUT0", data)]).as_numpy("OUTPUT0"), data)
    f.unload_model("late")
    until(lambda: index(f)["late"][1] == "UNAVAILABLE", "late is unloaded")
    assert not f.is_model_ready("late")
    refused(f, lambda: f.infer("late", [f.input("INPUT0", data)]), "Request for unknown model: 'late'", "404", "NOT_FOUND")


# shows: repository.dependents
@case()
def load_an_ensemble(f):
    f.load_model("late_chain")
    assert f.is_model_ready("late_chain") and f.is_model_ready("late")
    f.unload_model("late_chain", unload_dependents=True)
    until(lambda: not f.is_model_ready("late"), "late is unloaded with its ensemble")


OTHER = {
    "backend": "identity",
    "max_batch_size": 3,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]}],
}


# shows: repository.config
@case()
def load_with_a_config(f):
    f.load_model("late", config=json.dumps(OTHER))
    c = f.get_model_config("late")
    equal(c["max_batch_size"] if f.http else c.config.max_batch_size, 3)
    f.unload_model("late")


# shows: repository.files
@case()
def load_with_files(f):
    config = dict(OTHER, max_batch_size=5, input=[dict(OTHER["input"][0])], output=[dict(OTHER["output"][0], label_filename="names.txt")])
    f.load_model("uploaded", config=json.dumps(config), files={"file:1/unused.bin": b"\x00\xff", "file:names.txt": b"a\nb\nc\nd\n"})
    data = np.array([[1, 4, 2, 3]], np.float32)
    answer = f.infer("uploaded", [f.input("INPUT0", data)], outputs=[f.output("OUTPUT0", class_count=1)])
    equal(answer.as_numpy("OUTPUT0")[0][0].split(b":")[1:], [b"1", b"b"])
    f.unload_model("uploaded")
    until(lambda: not f.is_model_ready("uploaded"), "the upload is unloaded")


# shows: repository.errors
@case()
def load_failures(f):
    refused(f, lambda: f.load_model("nobody"), "failed to load 'nobody', failed to poll from model repository: model not found in any model repository", "500", "INTERNAL")
    refused(f, lambda: f.load_model("broken"), "load failed for model 'broken': version 1 is at UNAVAILABLE state: ", "400", "INVALID_ARGUMENT")
    f.unload_model("nobody")  # as in Triton, no failure
    broken = index(f)["broken"]
    equal(broken[1], "UNAVAILABLE")
    assert f.is_server_live()


# shows: trace
@case()
def trace_settings(f):
    def values(settings):
        if f.http:
            return settings
        return {k: list(v.value) if k == "trace_level" else v.value[0] for k, v in settings.settings.items()}

    before = values(f.get_trace_settings())
    equal(before["trace_level"], ["OFF"])
    after = values(f.update_trace_settings(settings={"trace_rate": "500", "log_frequency": "7"}))
    equal((after["trace_rate"], after["log_frequency"]), ("500", "7"))
    own = values(f.update_trace_settings("two", {"trace_rate": "9"}))
    equal(own["trace_rate"], "9")
    equal(values(f.get_trace_settings("two"))["trace_rate"], "9")
    equal(values(f.get_trace_settings("raw"))["trace_rate"], "500")
    equal(values(f.update_trace_settings("two", {"trace_rate": None}))["trace_rate"], "500")
    back = values(f.update_trace_settings(settings={"trace_rate": None, "log_frequency": None}))
    equal(back, before)
    refused(f, lambda: f.update_trace_settings(settings={"trace_rate": "x"}), "Unable to parse 'trace_rate', got: x")


# shows: logging
@case()
def log_settings(f):
    def values(settings):
        if f.http:
            return settings
        return {k: getattr(v, v.WhichOneof("parameter_choice")) for k, v in settings.settings.items()}

    before = values(f.get_log_settings())
    equal(sorted(before), ["log_error", "log_file", "log_format", "log_info", "log_verbose_level", "log_warning"])
    after = values(f.update_log_settings({"log_verbose_level": 1, "log_format": "ISO8601", "log_info": False}))
    equal((after["log_verbose_level"], after["log_format"], after["log_info"]), (1, "ISO8601", False))
    back = values(f.update_log_settings({k: v for k, v in before.items() if k != "log_file"}))
    equal(back, before)
    text = "log file location can not be updated through network protocol"
    refused(f, lambda: f.update_log_settings({"log_file": "x"}), text, "501", "UNIMPLEMENTED")
    if f.http:
        refused(f, lambda: f.update_log_settings({"log_format": "x"}), "invalid argument for --log_format, got: x", "503")
    else:
        refused(f, lambda: f.update_log_settings({"log_format": "x"}), "invalid argument for log_format, got: x")


# shows: shm.system
@case()
def system_regions(f):
    def rows(s):
        return {r["name"]: r for r in s} if f.http else {n: {"key": r.key, "offset": r.offset, "byte_size": r.byte_size} for n, r in s.regions.items()}

    with region(4096) as (_, key):
        f.register_system_shared_memory("one", key, 1024)
        f.register_system_shared_memory("two", key, 2048, offset=1024)
        try:
            got = rows(f.get_system_shared_memory_status())
            equal(sorted(got), ["one", "two"])
            equal((got["two"]["key"], got["two"]["offset"], got["two"]["byte_size"]), (key, 1024, 2048))
            equal(sorted(rows(f.get_system_shared_memory_status("one"))), ["one"])
            refused(f, lambda: f.register_system_shared_memory("one", key, 1024), "shared memory region 'one' already in manager", "400", "ALREADY_EXISTS")
            refused(f, lambda: f.register_system_shared_memory("big", key, 1 << 40), "failed to register shared memory region 'big': invalid args")
            refused(f, lambda: f.register_system_shared_memory("none", "/tutti-none", 1), "Unable to open shared memory region: '/tutti-none'", "500", "INTERNAL")
        finally:
            f.unregister_system_shared_memory("one")
            f.unregister_system_shared_memory("nobody")
            f.unregister_system_shared_memory()
        equal(rows(f.get_system_shared_memory_status()), {})
        text = "Unable to find system shared memory region: 'one'"
        refused(f, lambda: f.get_system_shared_memory_status("one"), text, "404", "NOT_FOUND")


# shows: shm.cuda
@case()
def cuda_regions(f):
    status = f.get_cuda_shared_memory_status()
    equal(len(status if f.http else status.regions), 0)
    try:
        f.register_cuda_shared_memory("gpu", base64.b64encode(b"\0" * 64), 0, 64)
    except f.module.InferenceServerException as e:
        has(e.message(), "failed to register shared memory region 'gpu': invalid args, GPUs not supported")
    else:
        raise AssertionError("there is no GPU")
    f.unregister_cuda_shared_memory("gpu")
    f.unregister_cuda_shared_memory()


# shows: client.plugins
@case()
def plugins(f):
    class Plugin(http_module.InferenceServerClientPlugin):
        def __call__(self, request):
            request.headers["x-plugin"] = "1"
            self.called = True

    plugin = Plugin()
    f.register_plugin(plugin)
    assert f.plugin() is plugin
    assert f.is_server_live(headers={"x-other": "2"}) and plugin.called
    f.unregister_plugin()
    assert f.plugin() is None
    f.register_plugin(f.auth.BasicAuth("user", "word"))
    assert f.is_server_live()
    f.unregister_plugin()


# shows: http.keepalive
@case()
def a_client_that_closes(f):
    with f.connect() as client:
        assert client.is_server_live()
    assert f.is_server_live()


# shows: client.timeouts
@case(GRPC)
def client_timeout(f):
    data = np.ones((1, 4), np.float32)
    for seconds in (0.05, 0.2):
        try:
            f.infer("waits", [f.input("INPUT0", data)], client_timeout=seconds)
        except f.module.InferenceServerException as e:
            # Both ends have the deadline: which of them ends the call first is a race.
            assert e.status() in ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED"), e
        else:
            raise AssertionError("the request was answered")
    same(f.infer("raw", [f.input("INPUT0", data)], client_timeout=LIMIT).as_numpy("OUTPUT0"), data)


# shows: metrics
@case(FLAVOURS)
def metrics(f):
    import urllib.request

    with urllib.request.urlopen(f"http://{f.args.metrics}/metrics", timeout=LIMIT) as answer:
        text = answer.read().decode()
    has(text, 'nv_inference_request_success{model="two",version="1"}')


# shows: http.versions_everywhere
@case(HTTP)
def paths_with_a_version(f):
    for path in ("", "/versions/1"):
        for end in ("", "/ready", "/config", "/stats"):
            status, _, body = ask(f.args, "GET", f"/v2/models/two{path}{end}")
            equal(status, 200, (path, end, body))
