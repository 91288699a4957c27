"""Times the two-input model of examples/backends/python the ways Python itself has: called in this process, and in a
process of its own behind multiprocessing's pipe, which is what a server in Python would do to have one interpreter per
instance. Prints microseconds per call: the median of the wall clock, and of this process's own time."""

import multiprocessing
import statistics
import time

import numpy as np

CALLS = 5000


def compute(numbers, indices, table):
    return numbers * np.float32(0.5) + np.float32(2), table[indices]


def new_table():
    return np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)


def serve(pipe):
    table = new_table()
    while True:
        request = pipe.recv()
        if request is None:
            return
        pipe.send(compute(*request, table))


def measure(name, call):
    wall, own = [], []
    for _ in range(CALLS // 10):
        call()
    for _ in range(CALLS):
        began, used = time.perf_counter_ns(), time.process_time_ns()
        call()
        own.append(time.process_time_ns() - used)
        wall.append(time.perf_counter_ns() - began)
    print("%-24s %7.1f us/call %7.1f us of this process" % (name, statistics.median(wall) / 1e3, statistics.median(own) / 1e3))


def main():
    numbers, indices = np.ones((1, 16), np.float32), np.array([[3, 7]], np.int64)
    table = new_table()
    measure("numpy, this process", lambda: compute(numbers, indices, table))
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    worker.start()

    def remote():
        ours.send((numbers, indices))
        return ours.recv()

    measure("multiprocessing.Pipe", remote)
    ours.send(None)
    worker.join()


if __name__ == "__main__":
    main()
