"""L0_metrics: which metrics exist with which flags, and how requests in the queue are counted."""

import re

from harness import Tests

FOLDER = "L0_metrics"
FILE = "metrics_config_test.py"
CLASS = "MetricsConfigTest"
QUANTILES = "0.1:0.0.1,0.7:0.01,0.75:0.01"
EXPLICIT = "--model-control-mode=explicit"
SUMMARIES = ["--metrics-config", "summary_latencies=true"]
UNCACHED = [EXPLICIT, "--load-model=identity_cache_off"]
CACHED = [EXPLICIT, "--load-model=identity_cache_on", "--cache-config", "local,size=1048576"]
NO_CACHE_METRICS = ["test_cache_counters_missing", "test_cache_summaries_missing"]
# Variant, flags and tests of each start of the server.
STARTS = (
    ("default", UNCACHED, ["test_inf_counters_exist", "test_inf_summaries_missing", *NO_CACHE_METRICS]),
    ("summaries", [*UNCACHED, *SUMMARIES], ["test_inf_counters_exist", "test_inf_summaries_exist", *NO_CACHE_METRICS]),
    (
        "no_counters",
        [*UNCACHED, *SUMMARIES, "--metrics-config", "counter_latencies=false"],
        ["test_inf_counters_missing", "test_inf_summaries_exist", *NO_CACHE_METRICS],
    ),
    (
        "cache",
        [*CACHED, *SUMMARIES, "--metrics-config", "counter_latencies=true"],
        ["test_inf_counters_exist", "test_inf_summaries_exist_with_cache", "test_cache_counters_exist", "test_cache_summaries_exist"],
    ),
    ("quantiles", [*UNCACHED, *SUMMARIES, "--metrics-config", f"summary_quantiles={QUANTILES}"], ["test_summaries_custom_quantiles"]),
)


def metrics(h):
    """L0_metrics; needs identity, python (namespaces), the local cache"""
    for variant, flags, tests in STARTS:
        env = {"SUMMARY_QUANTILES": QUANTILES} if variant == "quantiles" else {}
        h.run(lambda: unit(h), Tests(FOLDER, FILE, [f"{CLASS}.{t}" for t in tests], variant, flags, client_env=env))
    namespaces(h)
    env = {"MAX_BATCH_SIZE": "4", "MAX_QUEUE_DELAY_US": "100000"}
    h.run(lambda: queues(h), Tests(FOLDER, "metrics_queue_size_test.py", flags=["--log-verbose=1"], client_env=env, timing=True))


def unit(h):
    """The models of the unit tests."""
    r = h.repo()
    for model in (h.qa / FOLDER / "unit_test_models").iterdir():
        r.add(model, versions=(1,))
    return r


def namespaces(h):
    """Repositories with models of equal names."""
    path = h.checkout.copy(FOLDER) / FILE
    # The labels that the tests expect hold the path of the repository.
    where = f'"{h.work}/repo/metrics'
    path.write_text(re.sub(r'"[^"\n]*/qa/L0_metrics/model_namespacing_repos', lambda _: where, path.read_text()))
    for state, repositories in (("on", ["addsub_repo", "subadd_repo"]), ("off", ["addsub_repo"])):
        flags = [f"--model-namespacing={'true' if state == 'on' else 'false'}", "--allow-metrics=true"]
        test = f"{CLASS}.test_model_namespacing_label_with_namespace_{state}"
        h.run(lambda names=repositories: [spaced(h, n) for n in names], Tests(FOLDER, FILE, [test], flags=flags))


def spaced(h, name):
    """One of the repositories with models of equal names."""
    r = h.repo(name)
    for model in (h.qa / FOLDER / "model_namespacing_repos" / name).iterdir():
        r.add(model, versions=(1,))
    return r


def queues(h):
    """A slow model with each scheduler, and an ensemble."""
    delay = "max_queue_delay_microseconds: 100000"
    schedulers = {
        "default": "",
        "default_composing": "",
        "dynamic": f"dynamic_batching {{ {delay} }}",
        "dynamic_composing": f"dynamic_batching {{ {delay} }}",
        "max_queue_size": f"dynamic_batching {{ {delay} default_queue_policy {{ max_queue_size: 4 }} }}",
        "sequence_direct": f"sequence_batching {{ direct {{ {delay}, minimum_slot_utilization: 1.0 }} }}",
        "sequence_oldest": f"sequence_batching {{ oldest {{ {delay}, max_candidate_sequences: 4 }} }}",
    }
    r = h.repo()
    for name, scheduler in schedulers.items():
        r.add(h.qa / FOLDER / "identity_delay", name, versions=(1,))
        r.edit(name, ("^max_batch_size.*", "max_batch_size: 4"), append=scheduler)
    return r.add(h.qa / FOLDER / "ensemble_delay", "ensemble", versions=(1,))
