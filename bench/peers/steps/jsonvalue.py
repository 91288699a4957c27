"""Times what Python takes for the cases of steps/jsonvalue's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps.
"""

import json
import time

import numpy as np

DOCUMENT = ('{"user": {"name": "Ada", "id": 17}, "items": [{"name": "x", "score": 0.25}, {"name": "y", "score": 0.5}], '
            '"text": "' + "words " * 40 + '"}').encode()
DOCUMENTS = np.array([DOCUMENT] * 64, dtype=object)


def extract():
    parsed = [json.loads(d) for d in DOCUMENTS]
    ids = np.array([[p["user"]["id"]] for p in parsed], dtype=np.int32)
    return ids, np.array([[i["score"] for i in p["items"]] for p in parsed], dtype=np.float32)


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


print(json.dumps({"extract": cost(extract, len(DOCUMENTS))}))
