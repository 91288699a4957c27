"""Runs Triton's own QA tests against a server that takes tritonserver's flags.

usage: python run.py --source CHECKOUT [--baseline FILE] [--own-net] [--out FILE] [FAMILY | FAMILY/TEST ...]
       python run.py --list
CHECKOUT is a checkout of triton-inference-server/server, branch r24.10: the tests, the generators of models and the models
come from it, and nothing of it is kept here. Names are FAMILY[VARIANT]/CLASS.METHOD, and globs of them. With --baseline only
the tests that FILE lists run, and one that did not run has failed. The last line is "N passed of M"; the exit status is 1
when a test failed.

The interpreter runs clients and generators as well: Python 3.11 with the packages of
conformance/testdata/requirements-triton.txt. The tests query the ports 8000, 8001, 8002 and 10000 of this machine.
"""

import argparse
import json
import pathlib
import sys
import time
import traceback

import endpoints
import ensembles
import goldens
import lifecycle
import metrics
import scheduling
import tracing
from harness import Harness, family_of
from serving import ROOT, own_network

SERVER = f"{ROOT}/bin/tutti serve --allow-client-shm=true"
FAMILIES = {
    "model_config": goldens.model_config,
    "model_config_general": goldens.model_config_general,
    "simple_ensemble": ensembles.simple_ensemble,
    "optional_input": ensembles.optional_input,
    "http": endpoints.http,
    "generate": endpoints.generate,
    "grpc": endpoints.grpc,
    "input_validation": endpoints.input_validation,
    "model_queue": scheduling.model_queue,
    "batcher": scheduling.batcher,
    "infer": ensembles.infer,
    "lifecycle": lifecycle.lifecycle,
    "trace": tracing.trace,
    "logging": endpoints.logging,
    "parameters": endpoints.parameters,
    "response_cache": ensembles.response_cache,
    "metrics": metrics.metrics,
    "decoupled": ensembles.decoupled,
    "sequence_batcher": scheduling.sequence_batcher,
    "opentelemetry": tracing.opentelemetry,
}


def arguments():
    """The command line."""
    p = argparse.ArgumentParser()
    p.add_argument("--source", type=pathlib.Path, help="checkout of triton-inference-server/server, branch r24.10")
    p.add_argument("--server", default=SERVER, help="command that starts the server, with its flags (%(default)s)")
    p.add_argument("--libraries", type=pathlib.Path, help="folder of libraries made for Triton, NAME/libtriton_NAME.so, that models use in place of the server's own backends")
    p.add_argument("--work", type=pathlib.Path, default=ROOT / "bin" / "triton", help="folder for models, copies of tests, and logs (%(default)s)")
    p.add_argument("--baseline", type=pathlib.Path, help="run and judge only the tests that this file lists, for example baseline.json")
    p.add_argument("--own-net", action="store_true", help="run in a network namespace of its own (needs root): several runs fit on one machine")
    p.add_argument("--retries", type=int, default=1, help="how often a failed test that asserts on milliseconds runs again, alone (%(default)s)")
    p.add_argument("--out", type=pathlib.Path, help="write the results as JSON")
    p.add_argument("--list", action="store_true", help="print the families only")
    p.add_argument("select", nargs="*", metavar="NAME", help="family, or glob of test names; all without one")
    return p.parse_args()


def passed(path):
    """The tests that a baseline lists, or that passed in a file of --out."""
    content = json.loads(path.read_text())
    if "passed" in content:
        return set(content["passed"])
    return {name for name, result in content["tests"].items() if result["result"] == "pass"}


def check_arguments(args):
    """Ends the program when a family or the checkout does not exist."""
    unknown = [s for s in args.select if family_of(s) not in FAMILIES and "*" not in s]
    if unknown:
        sys.exit(f"unknown: {' '.join(unknown)}; expected some of {' '.join(FAMILIES)}")
    if not args.source or not (args.source / "qa" / "L0_infer").is_dir():
        sys.exit(f"--source is {args.source}, expected a checkout of triton-inference-server/server: {args.source}/qa/L0_infer is not there")


def run_families(harness):
    """Runs the selected families, and returns the seconds that each took."""
    seconds = {}
    for name, family in FAMILIES.items():
        if harness.select and not any(family_of(s) == name or "*" in family_of(s) for s in harness.select):
            continue
        harness.family, start, before = name, time.time(), len(harness.results)
        try:
            family(harness)
        except Exception as e:  # whatever is wrong with one, the others run
            traceback.print_exc()
            harness.record(f"{name}/setup", "fail", repr(e))
        if len(harness.results) > before:
            seconds[name] = round(time.time() - start, 1)
    return seconds


def print_table(results, seconds):
    """Prints a line for each family."""
    print("\nfamily                    passed  failed  skipped   seconds")
    for name, took in seconds.items():
        all_of = [r["result"] for test, r in results.items() if family_of(test) == name]
        print(f"{name:24} {all_of.count('pass'):7} {all_of.count('fail'):7} {all_of.count('skip'):8} {took:9}")


def main():
    """Runs the tests that the command line selects."""
    args = arguments()
    if args.list:
        for name, family in FAMILIES.items():
            print(f"{name:24} {family.__doc__.splitlines()[0]}")
        return 0
    check_arguments(args)
    if args.own_net:
        own_network()
    harness = Harness(args, passed(args.baseline) if args.baseline else None)
    seconds = run_families(harness)
    results = harness.judged()
    print_table(results, seconds)
    if args.out:
        args.out.write_text(json.dumps({"families": seconds, "tests": dict(sorted(results.items()))}, indent=0) + "\n")
    counted = [r["result"] for r in results.values() if r["result"] != "skip"]
    print(f"{counted.count('pass')} passed of {len(counted)}")
    return int("fail" in counted)


if __name__ == "__main__":
    sys.exit(main())
