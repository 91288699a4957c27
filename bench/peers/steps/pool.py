"""Times what numpy takes for the cases of steps/pool's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/pool.py
"""

import json
import time

import numpy as np

ROWS, TOKENS, WIDTH = 16, 128, 384


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def unit(v):
    return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)


def main():
    hidden = np.ones((ROWS, TOKENS, WIDTH), np.float32)
    mask = np.ones((ROWS, TOKENS), np.int64)
    seen = mask.astype(np.float32)[..., None]
    weights = seen * np.arange(1, TOKENS + 1, dtype=np.float32)[None, :, None]
    cases = {
        "mean of 128": lambda: unit((hidden * seen).sum(1) / np.maximum(seen.sum(1), 1e-9)),
        "max of 128": lambda: unit(np.where(seen == 0, np.float32(-1e9), hidden).max(1)),
        "weighted mean of 128": lambda: unit((hidden * weights).sum(1) / np.maximum(weights.sum(1), 1e-9)),
    }
    print(json.dumps({name: cost(run, ROWS) for name, run in cases.items()}))


main()
