"""Writes gold.json.gz: numpy's nearest vectors, for the tests of this package.

    python3 -m venv .venv && .venv/bin/pip install numpy==2.4.6
    .venv/bin/python steps/embed/testdata/make_gold.py

Matrices are NPY files, other arrays little-endian bytes, all in base64. Products are summed in float64.
"""

import base64
import gzip
import io
import json
from pathlib import Path

import numpy as np

# vectors, width, queries, k, type
SHAPES = [(1, 1, 1, 1, "<f4"), (50, 3, 4, 7, "<f8"), (200, 33, 5, 10, "<f4"), (300, 128, 3, 300, "<f4"), (90, 385, 2, 5, "<f8")]


def text(data):
    return base64.b64encode(data).decode()


def main():
    rng, cases = np.random.default_rng(44), []
    for n, width, rows, k, kind in SHAPES:
        m = rng.normal(size=(n, width)).astype(kind)
        q = rng.normal(size=(rows, width)).astype("<f4")
        file = io.BytesIO()
        np.save(file, m)
        wide, ask = m.astype("<f4").astype(float), q.astype(float)
        case = {"width": width, "k": k, "matrix": text(file.getvalue()), "queries": text(q.tobytes())}
        unit = lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)
        for metric, scores in (("dot", ask @ wide.T), ("cosine", unit(ask) @ unit(wide).T)):
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            best = np.take_along_axis(scores, order, axis=1)
            if k > 1 and np.min(-np.diff(best, axis=1)) < 1e-6:
                print(f"{n} x {width}, {metric}: two scores are {np.min(-np.diff(best, axis=1)):.1e} apart")
            case[metric] = {"scores": text(best.astype("<f8").tobytes()), "indices": text(order.astype("<i8").tobytes())}
        cases.append(case)
    data = json.dumps(cases, separators=(",", ":")).encode()
    (Path(__file__).parent / "gold.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


main()
