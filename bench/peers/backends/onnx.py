"""Times ONNX Runtime's own Python call on the two-input model, batch 1, one thread.

    pip install onnxruntime==1.31.1 numpy && python bench/peers/backends/onnx.py

Prints a line of JSON: the version, and medians per call in microseconds of the processor's time and the clock's. The
counterpart is go test -run none -bench Overhead ./backends/onnx; make bench-backends runs both.
"""

import json
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

MODEL = Path(__file__).resolve().parents[3] / "examples/backends/onnx/simple_onnx/1/model.onnx"
ROUNDS, CALLS = 50, 2000


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
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
    given = {"INPUT0": np.ones((1, 4), np.float32), "INPUT1": np.array([[0, 7, 99]], np.int64)}
    names = ["OUTPUT0", "OUTPUT1"]
    cpu, wall = medians(lambda: session.run(names, given))
    print(json.dumps({"version": ort.__version__, "cases": {"simple_onnx": {"cpu_us": cpu, "clock_us": wall}}}))


main()
