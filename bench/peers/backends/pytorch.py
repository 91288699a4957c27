#!/usr/bin/env python3
"""PyTorch's own Python call on the two-input model, to be compared with ours.

The model of examples/backends/pytorch, one row, one thread, in inference mode: tensors made from numpy arrays without a
copy, the call, and numpy views of the outputs, which is what a model.py would do; and the bare call over tensors that
are made once. Prints one line of JSON: the version, and medians in microseconds per call of the
processor's time and the clock's. make bench-backends runs it beside BenchmarkOverhead of backends/pytorch.

Needs torch 2.13.0 and numpy. Usage: pytorch.py [MODEL]
"""

import json
import pathlib
import statistics
import sys
import time

import numpy as np
import torch

ROUNDS, CALLS = 15, 2000
default = pathlib.Path(__file__).parents[3] / "examples" / "backends" / "pytorch" / "simple_pytorch" / "1" / "model.pt"


def measure(call):
    for _ in range(200):
        call()
    wall, cpu = [], []
    for _ in range(ROUNDS):
        w, c = time.perf_counter(), time.process_time()
        for _ in range(CALLS):
            call()
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
    return tuple(round(statistics.median(t) / CALLS * 1e6, 2) for t in (wall, cpu))


torch.set_num_threads(1)
model = torch.jit.load(sys.argv[1] if len(sys.argv) > 1 else str(default))
x = np.zeros((1, 3), np.float32)
index = np.zeros((1, 2), np.int64)
tensors = torch.from_numpy(x), torch.from_numpy(index)


def with_arrays():
    y, picked = model(torch.from_numpy(x), torch.from_numpy(index))
    return y.numpy(), picked.numpy()


with torch.inference_mode():
    cases = {"simple_pytorch": measure(with_arrays), "simple_pytorch, tensors made": measure(lambda: model(*tensors))}
cases = {name: {"clock_us": wall, "cpu_us": cpu} for name, (wall, cpu) in cases.items()}
print(json.dumps({"version": torch.__version__, "cases": cases}))
