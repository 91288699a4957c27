#!/usr/bin/env python3
"""Times OpenVINO's own Python call on the two-input model, batch 1, one thread.

    pip install openvino==2026.4.1 numpy && python bench/peers/backends/openvino.py

Prints a line of JSON: the version, and medians per call in microseconds of the processor's time and the clock's. The
counterpart is go test -run none -bench Overhead ./backends/openvino; make bench-backends runs both.
"""

import json
import pathlib
import statistics
import sys
import time

sys.path.pop(0)  # this file has the name of the package

import numpy as np
import openvino as ov

MODEL = pathlib.Path(__file__).resolve().parents[3] / "examples/backends/openvino/simple_openvino/1/model.xml"
ROUNDS, CALLS = 30, 1000


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
    one = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
    request = ov.Core().compile_model(MODEL, "CPU", one).create_infer_request()
    given = [np.ones((1, 4), np.float32), np.array([[0, 7, 99]], np.int64)]
    calls = {
        "simple_openvino": lambda: request.infer(given),
        "simple_openvino, arrays shared": lambda: request.infer(given, share_inputs=True, share_outputs=True),
    }
    cases = {}
    for name, call in calls.items():
        cpu, wall = medians(call)
        cases[name] = {"cpu_us": cpu, "clock_us": wall}
    print(json.dumps({"version": ov.__version__.split("-")[0], "cases": cases}))


main()
