"""L0_model_queue, L0_batcher and L0_sequence_batcher: which requests are executed together, and when."""

import ast
import functools
import re
import subprocess
import sys

from harness import Tests
from models import CPU, FLOATS, parameters, version_folders

ZEROS = "custom_zero_1_float32"
ANY_LENGTH = (r"dims:.*\[.*\]", "dims: [ -1 ]")


def model_queue(h):
    """L0_model_queue; needs identity"""
    preferred = "preferred_batch_size: [ 4, 8 ] "
    delayed = preferred + "max_queue_delay_microseconds: 10000000 "
    override = "allow_timeout_override: true default_timeout_microseconds: 11000000"
    policies = f"default_queue_policy {{ timeout_action: DELAY {override} }} priority_queue_policy {{ key: 2 value: {{ timeout_action: REJECT {override} }} }}"
    cases = {
        "test_max_queue_size": preferred + "default_queue_policy { max_queue_size: 8 }",
        "test_policy_delay": delayed + "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100000 }",
        "test_policy_reject": delayed + "default_queue_policy { default_timeout_microseconds: 100000 }",
        "test_timeout_override": delayed + "default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 1000000 }",
        "test_priority_levels": delayed + "priority_levels: 2 default_priority_level: 2",
        "test_max_priority_levels": delayed + f"priority_levels: {2**64 - 1} default_priority_level: {2**32}",
        "test_priority_with_policy": delayed.replace("4, 8", "4, 8, 32") + "priority_levels: 2 default_priority_level: 2 " + policies,
    }
    for test, batching in cases.items():
        more = parameters(execute_delay_ms=5000) if test == "test_max_queue_size" else ""
        tail = f"{CPU}\ndynamic_batching {{ {batching} }}\n{more}"
        h.run(lambda tail=tail: queued(h, tail), Tests("L0_model_queue", "model_queue_test.py", [f"ModelQueueTest.{test}"], timing=True))


def queued(h, tail):
    """The model of the queue tests, and its ensemble."""
    r = zeros(h, 32, tail)
    return r.add(h.qa / "L0_model_queue/ensemble_zero_1_float32", versions=(1,))


def zeros(h, batch, tail):
    """A repository of the identity backend's model, with text appended to its configuration."""
    r = h.repo().add(h.qa / "custom_models" / ZEROS, versions=(1,))
    return r.edit(ZEROS, ANY_LENGTH, ("max_batch_size:.*", f"max_batch_size: {batch}"), append=tail)


def delays(h, file, test):
    """The delays of the scheduler that a test expects in its environment."""
    text, found = (h.qa / file).read_text(), {}
    pattern = r'environ\["(TRITONSERVER_(?:BACKLOG_)?DELAY_SCHEDULER)"\]\),?\s*,?\s*(\d+)'
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == test:
            for name, value in re.findall(pattern, ast.get_source_segment(text, node)):
                found.setdefault(name, value)
    return found


BatcherTests = functools.partial(Tests, "L0_batcher", "batcher_test.py", timing=True)
BATCHER_ENV = {"BACKENDS": "onnx", "BATCHER_TYPE": "FIXED"}
ONE_VERSION = (("^max_batch_size:.*", "max_batch_size: 8"), ("^version_policy:.*", "version_policy: { specific { versions: [1] }}"))
PREFERRED = "preferred_batch_size: [ 2, 6 ], max_queue_delay_microseconds: 10000000"
FIXED_TESTS = (
    "static_batch_preferred", "static_batch_lt_any_preferred", "static_batch_not_preferred", "static_batch_gt_max_preferred",
    "multi_batch_not_preferred", "multi_batch_gt_max_preferred", "multi_batch_sum_gt_max_preferred", "multi_same_output0",
    "multi_same_output1", "multi_different_outputs", "multi_different_output_order", "multi_batch_delayed_sum_gt_max_preferred",
    "multi_batch_use_biggest_preferred", "multi_batch_use_best_preferred", "multi_batch_delayed_use_max_batch",
)  # fmt: skip
VARIABLE_TESTS = (
    "multi_batch_not_preferred_different_shape", "multi_batch_preferred_different_shape",
    "multi_batch_different_shape_allow_ragged", "multi_batch_different_shape", "multi_batch_delayed_preferred_different_shape",
)  # fmt: skip
UNDELAYED_TESTS = (
    "preferred_batch_only_aligned", "preferred_batch_only_unaligned", "preferred_batch_only_use_biggest_preferred",
    "preferred_batch_only_use_no_preferred_size",
)  # fmt: skip


def batcher(h):
    """L0_batcher; needs onnx, identity"""
    groups = (
        (FIXED_TESTS, "FIXED", lambda: fixed(h, PREFERRED)),
        (VARIABLE_TESTS, "VARIABLE", lambda: variable(h)),
        (UNDELAYED_TESTS, "FIXED", lambda: fixed(h, "preferred_batch_size: [ 4, 6 ]")),
    )
    for names, kind, make in groups:
        for name in names:
            env = delays(h, "L0_batcher/batcher_test.py", f"test_{name}")
            h.run(make, BatcherTests([f"BatcherTest.test_{name}"], env=env, client_env={**env, **BATCHER_ENV, "BATCHER_TYPE": kind}))
    queue_delay(h)
    for preserve in (False, True):
        preserve_ordering(h, preserve)


def fixed(h, batching):
    """An ONNX model with dynamic batching."""
    r = h.repo().add(h.checkout.onnx() / FLOATS)
    return r.edit(FLOATS, *ONE_VERSION, append=f"dynamic_batching {{ {batching} }}\n{CPU}")


def variable(h):
    """Models with variable and with ragged inputs."""
    tail = f"dynamic_batching {{ {PREFERRED} }}\n{CPU}"
    ragged = ('name:.*"INPUT0"', 'name: "INPUT0"\nallow_ragged_batch: true')
    scatter = 'batch_output [ { target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" } ]'
    r = h.repo().add(h.checkout.variable() / FLOATS).edit(FLOATS, *ONE_VERSION, ("16", "-1"), append=tail)
    r.add(h.qa / "custom_models" / ZEROS, versions=(1,)).edit(ZEROS, *ONE_VERSION, ANY_LENGTH, ragged, append=tail)
    r.add(h.checkout.identity() / "onnx_nobatch_zero_1_float32", "onnx_zero_1_float32")
    return r.edit("onnx_zero_1_float32", ("nobatch_", ""), ONE_VERSION[0], ragged, append=f"{scatter} {tail}")


def queue_delay(h):
    """A queue delay without preferred sizes. Triton's test.sh does not change the configuration, so both tests run with 0."""
    tail = f"dynamic_batching {{ max_queue_delay_microseconds: 0 }}\n{CPU}\n{parameters(execute_delay_ms=100)}"
    for test, delay in (("default", 0), ("non_default", 20000)):
        env = {**BATCHER_ENV, "MAX_QUEUE_DELAY_MICROSECONDS": str(delay)}
        h.run(lambda: zeros(h, 100, tail), BatcherTests([f"BatcherTest.test_max_queue_delay_only_{test}"], client_env=env))


def preserve_ordering(h, preserve):
    """Two instances of different speed; the trace file says in which order the responses left."""
    instances = "instance_group [ { kind: KIND_CPU count: 2 } ]\n" + parameters(execute_delay_ms=100, instance_wise_delay_multiplier=4)
    tail = f"dynamic_batching {{ preferred_batch_size: [ 4 ]{' preserve_ordering: true' if preserve else ''} }}\n{instances}"
    trace = h.cwd / f"{'preserve' if preserve else 'not_preserve'}.log"
    flags = ["--trace-config", "level=TIMESTAMPS", "--trace-config", "rate=1", "--trace-config", f"triton,file={trace}"]

    def make():
        trace.unlink(missing_ok=True)
        return zeros(h, 4, tail)

    def verify(log):
        command = [sys.executable, "verify_timestamps.py", *(["-p"] if preserve else []), str(trace)]
        run = subprocess.run(command, cwd=h.checkout.copy("L0_batcher"), capture_output=True, text=True)
        return "" if run.returncode == 0 else "verify_timestamps: " + (run.stdout + run.stderr).strip()[-200:]

    env = {"TRITONSERVER_DELAY_SCHEDULER": "12"}
    names, variant = ["BatcherTest.test_multi_batch_preserve_ordering"], "preserve" if preserve else "no_preserve"
    h.run(make, BatcherTests(names, variant, flags, env, {**env, **BATCHER_ENV}, after=verify))


SequenceTests = functools.partial(Tests, "L0_sequence_batcher", "sequence_batcher_test.py", flags=["--log-verbose=1"], timing=True)
SEQUENCE_ENV = {
    "BACKENDS": "onnx", "ENSEMBLES": "1", "IMPLICIT_STATE": "0", "INITIAL_STATE_FILE": "0", "INITIAL_STATE_ZERO": "0",
    "USE_SINGLE_BUFFER": "0", "NO_BATCHING": "0", "BATCHER_TYPE": "FIXED",
}  # fmt: skip
BACKLOG = ("test_backlog", "test_half", "test_skip", "test_full")  # these wait for a full backlog


def sequence_batcher(h):
    """L0_sequence_batcher; needs onnx, identity"""
    file = "sequence_batcher_test.py"
    for name in h.names("L0_sequence_batcher", file, ["SequenceBatcherTest"]):
        test = name.split(".")[1]
        if test in ("test_ragged_batch", "test_ragged_batch_allowed"):
            continue
        delayed = {"TRITONSERVER_DELAY_SCHEDULER": "2", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "0"}
        if test.startswith("test_queue_delay"):
            env = {**SEQUENCE_ENV, **delayed, "MODEL_INSTANCES": "1"}
            h.run(lambda: sequences(h, 4, 1, queue_delay=True), SequenceTests([name], env=delayed, client_env=env))
            continue
        delayed["TRITONSERVER_DELAY_SCHEDULER"] = "12"
        own = delays(h, f"L0_sequence_batcher/{file}", test)
        env = {**delayed, **own} if test.startswith(BACKLOG) else own
        for batch, count in ((4, 1), (1, 4)):
            client_env = {**SEQUENCE_ENV, **env, "MODEL_INSTANCES": str(count)}
            tests = SequenceTests([name], f"instances{count}", env=env, client_env=client_env)
            h.run(lambda batch=batch, count=count: sequences(h, batch, count), tests)


def sequences(h, batch, count, queue_delay=False):
    """The sequence models and their ensembles; with a queue delay in three kinds of slot utilization."""
    single, ensembles = h.checkout.sequence(), h.checkout.sequence_ensembles()
    sources = [single / "onnx_sequence_int32", single / "onnx_sequence_bool", *sorted(ensembles.glob("*_onnx_sequence_int32"))]
    r, slots = h.repo(), {"": 0, "_half": 0.5, "_full": 1} if queue_delay else {"": None}
    for source in filter(lambda s: s.is_dir(), sources):
        for suffix, used in slots.items():
            direct = f"direct {{\nmax_queue_delay_microseconds: 3000000\nminimum_slot_utilization: {used}\n}}"
            changes = [("^max_batch_size:.*", f"max_batch_size: {batch}"), ("kind: KIND_[CG]PU", f"kind: KIND_CPU\ncount: {count}")]
            changes += [(source.name, source.name + suffix)] if suffix else []
            changes += [("sequence_batching {", f"sequence_batching {{\n{direct}")] if queue_delay else []
            r.add(source, source.name + suffix).edit(source.name + suffix, *changes)
    for model in ensembles.glob("nop_*"):
        r.add(model)
    return version_folders(r, [m for m in r.models() if m.startswith("nop_")])
