"""Times what Python takes for the cases of steps/stringop's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps.
"""

import json
import re
import time

import numpy as np

TEXTS = np.array([("The Quick brown Fox, " * (1 + i % 4)).encode() for i in range(64)], dtype=object)
JUNK = re.compile(r"[^a-zA-Z ]+")


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def split():
    out = []
    for t in TEXTS:
        fields = t.decode().split()[:4]
        out.append([f.encode() for f in fields] + [b""] * (4 - len(fields)))
    return np.array(out, dtype=object)


print(json.dumps({
    "lower": cost(lambda: np.array([t.decode().lower().encode() for t in TEXTS], dtype=object), len(TEXTS)),
    "replace": cost(lambda: np.array([JUNK.sub("", t.decode()).encode() for t in TEXTS], dtype=object), len(TEXTS)),
    "split": cost(split, len(TEXTS)),
}))
