#!/usr/bin/env python3
"""Times DALI's own Python run of the models of examples/backends/dali, batch 1: of the JPEG model in this process, and of the two-input model in a
process of its own behind multiprocessing's pipe, because DALI may end its process and a server keeps it apart.

    .runtime/dali-*/bin/python bench/peers/backends/dali.py

Prints a line of JSON: the version, and medians per call in microseconds of the processors' time, all threads' of both processes, and the
clock's. The counterpart is go test -run none -bench Overhead ./backends/dali; make bench-backends runs both.
"""

import glob
import importlib.metadata
import importlib.util
import json
import multiprocessing
import pathlib
import statistics
import sys
import time

sys.path.pop(0)  # this file has the name of a package

import numpy as np
from nvidia.dali.pipeline import Pipeline

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples/backends/dali"
ROUNDS, CALLS = 20, 200
ONE_BY_ONE = {"exec_pipelined": False, "exec_async": False, "prefetch_queue_depth": 1}


def used_by(pid):
    """Returns the seconds that the threads of a process have run."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as f:
            total += int(f.read().split()[0])
    return total / 1e9


def medians(call, pid=None):
    """Returns the medians over rounds of (processor, clock) time of one call, in microseconds. pid is a process that computes too."""
    used = time.process_time if pid is None else lambda: time.process_time() + used_by(pid)
    for _ in range(CALLS):
        call()
    cpu, wall = [], []
    for _ in range(ROUNDS):
        c, w = used(), time.perf_counter()
        for _ in range(CALLS):
            call()
        cpu.append((used() - c) / CALLS * 1e6)
        wall.append((time.perf_counter() - w) / CALLS * 1e6)
    return statistics.median(cpu), statistics.median(wall)


def serialized(model):
    """Returns the serialized pipeline of a model."""
    if (FOLDER / model / "1/model.dali").exists():
        return (FOLDER / model / "1/model.dali").read_bytes()
    spec = importlib.util.spec_from_file_location("definition", FOLDER / model / "1/dali.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pipe().serialize()


def caller(model):
    """Returns a function that runs a pipeline once with arrays by name, and returns its outputs as arrays."""
    pipeline = Pipeline.deserialize(serialized_pipeline=serialized(model), **ONE_BY_ONE)

    def call(given):
        for name, array in given.items():
            pipeline.feed_input(name, array)
        return [output.as_array() for output in pipeline.run()]

    return call


def serve(pipe, model):
    call = caller(model)
    while True:
        given = pipe.recv()
        if given is None:
            return
        pipe.send(call(given))


def main():
    numbers = np.array([[1, 2, 3, 4]], np.float32)
    image = np.fromfile(FOLDER / "jpeg_dali/progressive.jpg", np.uint8)[np.newaxis]
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=serve, args=(theirs, "simple_dali"), daemon=True)
    worker.start()

    def remote():
        ours.send({"INPUT0": numbers, "INPUT1": numbers})
        return ours.recv()

    costs = {"simple_dali, through a pipe": medians(remote, worker.pid)}
    ours.send(None)
    worker.join()
    call = caller("jpeg_dali")
    costs["jpeg_dali, arrays in and out"] = medians(lambda: call({"IMAGE": image}))
    version = next(d.version for d in importlib.metadata.distributions() if d.metadata["Name"].lower().startswith("nvidia-dali"))
    print(json.dumps({"version": version, "cases": {name: {"cpu_us": cpu, "clock_us": wall} for name, (cpu, wall) in costs.items()}}))


if __name__ == "__main__":
    main()
