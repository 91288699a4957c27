"""Times what numpy takes for the cases of steps/embed's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/embed.py
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import json
import time

import numpy as np

N, WIDTH, K = 10000, 384, 10


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def main():
    rng, found = np.random.default_rng(1), {}
    matrix = rng.normal(size=(N, WIDTH)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    for rows in (1, 8):
        queries = rng.normal(size=(rows, WIDTH)).astype(np.float32)

        def search():
            q = queries / np.linalg.norm(queries, axis=1, keepdims=True)
            scores = q @ matrix.T
            part = np.argpartition(-scores, K, axis=1)[:, :K]
            best = np.take_along_axis(scores, part, axis=1)
            order = np.argsort(-best, axis=1)
            return np.take_along_axis(part, order, axis=1), np.take_along_axis(best, order, axis=1)

        found[f"10 of 10000 x 384, rows {rows}"] = cost(search, rows)
    print(json.dumps(found))


main()
