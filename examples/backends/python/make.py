"""Writes expected.json: what numpy gives for the two-input model, without the backend and without its model.py.

    pip install numpy && python examples/backends/python/make.py
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TYPES = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}
TABLE = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)


def tensor(name, array):
    return {"name": name, "datatype": TYPES[array.dtype], "shape": list(array.shape), "data": array.ravel().tolist()}


def request(name, numbers, indices):
    given = {"INPUT0": np.array(numbers, np.float32), "INPUT1": np.array(indices, np.int64)}
    scaled = np.add(np.multiply(given["INPUT0"], 0.5, dtype=np.float32), 2, dtype=np.float32)
    answers = {"OUTPUT0": scaled, "OUTPUT1": np.take(TABLE, given["INPUT1"], axis=0)}
    return {"name": name, "inputs": [tensor(*i) for i in given.items()], "outputs": [tensor(*o) for o in answers.items()],
            "atol": 1e-6}


def main():
    requests = [request("one row", [[1, 2, 3, 4]], [[0, 7, 99]]),
                request("two rows", [[-1.5, 0], [2.25, 1e6]], [[1], [42]])]
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text(f'{{"ensemble": "simple_python", "requests": [\n{lines}\n]}}\n')


main()
