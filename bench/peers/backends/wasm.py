"""Times Wasmtime's own Python call on the two-input model, batch 1: the inputs into the memory of the module, the call, and the
outputs out of it, with the interface of docs/wasm.md.

    pip install wasmtime==50.0.1 numpy && python bench/peers/backends/wasm.py

Prints a line of JSON: the version, and medians per call in microseconds of the processor's time and the clock's. The
counterpart is go test -run none -bench Overhead ./backends/wasm; make bench-backends runs both.
"""

import importlib.metadata
import json
import pathlib
import statistics
import sys
import time

import numpy as np

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/backends/wasm"
sys.path.insert(0, str(EXAMPLE))

from make import Guest  # noqa: E402

ROUNDS, CALLS = 50, 200


def medians(call):
    """Returns the medians over rounds of (processor, clock) time of one call, in microseconds."""
    for _ in range(CALLS):
        call()
    cpu, wall = [], []
    for _ in range(ROUNDS):
        c, w = time.process_time(), time.perf_counter()
        for _ in range(CALLS):
            call()
        cpu.append((time.process_time() - c) / CALLS * 1e6)
        wall.append((time.perf_counter() - w) / CALLS * 1e6)
    return statistics.median(cpu), statistics.median(wall)


def main():
    guest = Guest(EXAMPLE / "simple_wasm/1/model.wasm")
    given = {"INPUT0": np.array([[1, 2, 3, 4]], np.float32), "INPUT1": np.array([[1, 2, 3, 4]], np.float32)}
    whole = medians(lambda: guest.execute(given))
    function, store = guest.exports["tutti_execute"], guest.store
    guest.execute(given)
    bare = medians(lambda: function(store, guest.at, 2))
    cases = {"simple_wasm": whole, "simple_wasm, the call alone": bare}
    version = importlib.metadata.version("wasmtime")
    print(json.dumps({"version": version, "cases": {k: {"cpu_us": c, "clock_us": w} for k, (c, w) in cases.items()}}))


main()
