"""L0_trace: the trace endpoint, and the spans that a collector receives."""

import shlex
import shutil
import sys

from harness import HERE, Tests
from models import CPU, IDENTITY, config, parameters, repeat, simple, tensor

FOLDER = "L0_trace"
ADD_SUB = "ensemble_add_sub_int32_int32_int32"
# Additional models, by a word in the test's name.
LOADED = {
    "bls": ["bls_simple"],
    "custom": ["custom_identity_int32"],
    "decoupled": ["repeat_int32"],
    "cancel": ["input_all_required", "dynamic_batch"],
    "pbe": ["trace_context"],
}
TRACING = (
    "level=TIMESTAMPS", "rate=1", "count=-1", "mode=opentelemetry", "opentelemetry,resource=test.key=test.value",
    "opentelemetry,resource=service.name=test_triton", "opentelemetry,url=localhost:10000/v1/traces",
)  # fmt: skip


def trace(h):
    """L0_trace, endpoint; needs onnx"""
    flags = ["--trace-config", "triton,file=global_unittest.log", "--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1"]
    h.run(lambda: simple(h.checkout, h.repo()), Tests(FOLDER, "trace_endpoint_test.py", flags=flags))


def opentelemetry(h):
    """L0_trace, OpenTelemetry without sagemaker; needs onnx, identity, repeat, python"""
    file = "opentelemetry_unittest.py"
    collector = h.checkout.copy(FOLDER) / "otelcol"  # the tests start it by this name
    collector.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(HERE / 'collector.py'))}\n")
    collector.chmod(0o755)
    for name in h.names(FOLDER, file, ["OpenTelemetryTest"]):
        if "sagemaker" in name:
            continue
        models = ["simple", ADD_SUB] + [m for word, more in LOADED.items() if word in name for m in more]
        flags = ["--model-control-mode=explicit", *(f"--load-model={m}" for m in models), *(f"--trace-config={t}" for t in TRACING)]
        h.run(lambda: traced(h), Tests(FOLDER, file, [name], flags=flags))


def traced(h):
    """The models of the OpenTelemetry tests."""
    r = simple(h.checkout, h.repo())
    r.add(h.checkout.ensembles() / "simple_onnx_int32_int32_int32", ADD_SUB, versions=(1,))
    r.edit(ADD_SUB, ("^name:.*", f'name: "{ADD_SUB}"'), ("model_name:.*", 'model_name: "simple"'), ("^version_policy.*", ""))
    for version in ("2", "3"):
        shutil.rmtree(r / ADD_SUB / version, ignore_errors=True)
    r.add(h.qa / FOLDER / "models/input_all_required")
    policy = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000000 max_queue_size: 8 }"
    batching = f"dynamic_batching {{ preferred_batch_size: [ 1 ] {policy} }}"
    floats = [tensor("INPUT0", "FP32", -1)], [tensor("OUTPUT0", "FP32", -1)]
    r.put("dynamic_batch", config("dynamic_batch", IDENTITY, *floats, 1, CPU, batching, parameters(execute_delay_ms=8000)))
    spans = parameters(execute_delay_ms=500, enable_custom_tracing="true", nested_span_count=6, single_activity_frequency=3)
    numbers = [tensor("INPUT0", "INT32", -1)], [tensor("OUTPUT0", "INT32", -1)]
    r.put("custom_identity_int32", config("custom_identity_int32", IDENTITY, *numbers, 1024, "instance_group [ { kind: KIND_CPU } ]", spans))
    repeat(r, False)
    r.put_python("bls_simple", h.qa / "python_models/bls_simple/bls_simple.py")
    return r.put_python("trace_context", h.qa / FOLDER / "trace_context.py")
