"""Times what numpy takes for the cases of steps/normalize's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/normalize.py
"""

import json
import time

import numpy as np

ROWS, WIDTH = 64, 384


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def main():
    v = (np.arange(ROWS * WIDTH, dtype=np.float32) * 7919 % 1009 / 200).reshape(ROWS, WIDTH)
    unit = lambda: v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
    print(json.dumps({"unit of 384": cost(unit, ROWS)}))


main()
