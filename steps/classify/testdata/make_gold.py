"""Writes gold.json.gz: what scipy and numpy say of scores, for the tests of this package.

    python3 -m venv .venv && .venv/bin/pip install numpy==2.4.6 scipy==1.17.1
    .venv/bin/python steps/classify/testdata/make_gold.py

Arrays are little-endian bytes in base64. Probabilities are computed in float64.
"""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
from scipy import special

# rows, classes, spread of the scores
SHAPES = [(3, 1, 1.0), (16, 2, 3.0), (8, 10, 2.0), (4, 1000, 4.0), (6, 37, 60.0), (5, 20, 3000.0)]


def packed(a, kind):
    return base64.b64encode(np.ascontiguousarray(a, kind).tobytes()).decode()


def main():
    rng, cases = np.random.default_rng(20), []
    for rows, classes, spread in SHAPES:
        scores = (rng.normal(size=(rows, classes)) * spread).astype("<f4")
        wide = scores.astype(np.float64)
        cases.append({
            "rows": rows,
            "classes": classes,
            "scores": packed(scores, "<f4"),
            "softmax": packed(special.softmax(wide, axis=1), "<f8"),
            "log_softmax": packed(special.log_softmax(wide, axis=1), "<f8"),
            "sigmoid": packed(special.expit(wide), "<f8"),
            "order": packed(np.argsort(-scores, axis=1, kind="stable"), "<i4"),
            "best": packed(np.argmax(scores, axis=1), "<i8"),
        })
    data = json.dumps(cases, separators=(",", ":")).encode()
    (Path(__file__).parent / "gold.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


main()
