"""Times what numpy takes for the cases of steps/classify's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/classify.py
"""

import json
import time

import numpy as np

ROWS, CLASSES, K = 64, 1000, 5


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def main():
    scores = np.random.default_rng(1).normal(size=(ROWS, CLASSES)).astype(np.float32)

    def top_k():
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        part = np.argpartition(-p, K, axis=1)[:, :K]
        best = np.take_along_axis(p, part, axis=1)
        order = np.argsort(-best, axis=1)
        return np.take_along_axis(part, order, axis=1), np.take_along_axis(best, order, axis=1)

    def softmax(scores):
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    few = scores[:1, :10]
    print(json.dumps({
        "top 5 of 1000": cost(top_k, ROWS),
        "softmax of 10, one row": cost(lambda: softmax(few), 1),
        "softmax of 1000": cost(lambda: softmax(scores), ROWS),
        "sigmoid of 1000": cost(lambda: 1 / (1 + np.exp(-scores)), ROWS),
        "arg max of 1000": cost(lambda: scores.argmax(axis=1), ROWS),
    }))


main()
