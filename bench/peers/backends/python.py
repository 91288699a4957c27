"""Times the two-input model of examples/backends/python in a process of its own behind multiprocessing's pipe, which is
what a server in Python does to have one interpreter per instance, batch 1.

    pip install numpy==2.4.6 && python bench/peers/backends/python.py

Prints a line of JSON: the version, and medians per call in microseconds of the processors' time, both processes', and the
clock's. The counterpart is go test -run none -bench Overhead ./backends/python; make bench-backends runs both.
"""

import glob
import json
import multiprocessing
import platform
import statistics
import time

import numpy as np

ROUNDS, CALLS = 50, 500


def compute(numbers, indices, table):
    return numbers * np.float32(0.5) + np.float32(2), table[indices]


def serve(pipe):
    table = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)
    while True:
        request = pipe.recv()
        if request is None:
            return
        pipe.send(compute(*request, table))


def used_by(pid):
    """Returns the seconds that the threads of a process have run."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as f:
            total += int(f.read().split()[0])
    return total / 1e9


def medians(call, pid):
    """Returns the medians over rounds of (processor, clock) time of one call, in microseconds."""
    for _ in range(CALLS):
        call()
    cpu, wall = [], []
    for _ in range(ROUNDS):
        c, w = time.process_time() + used_by(pid), time.perf_counter()
        for _ in range(CALLS):
            call()
        cpu.append((time.process_time() + used_by(pid) - c) / CALLS * 1e6)
        wall.append((time.perf_counter() - w) / CALLS * 1e6)
    return statistics.median(cpu), statistics.median(wall)


def main():
    numbers, indices = np.ones((1, 16), np.float32), np.array([[3, 7]], np.int64)
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    worker.start()

    def remote():
        ours.send((numbers, indices))
        return ours.recv()

    cpu, wall = medians(remote, worker.pid)
    print(json.dumps({"version": platform.python_version(), "cases": {"simple_python, through a pipe": {"cpu_us": cpu, "clock_us": wall}}}))
    ours.send(None)
    worker.join()


if __name__ == "__main__":
    main()
