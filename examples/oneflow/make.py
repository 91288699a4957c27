#!/usr/bin/env python3
"""Makes the saved graph and the reference outputs of this folder:

    LD_LIBRARY_PATH=.runtime/oneflow/lib .runtime/oneflow/bin/python examples/oneflow/make.py

The outputs are those of OneFlow's own eager run.
"""

import json
import pathlib
import shutil

import numpy as np
import oneflow as flow

HERE = pathlib.Path(__file__).resolve().parent


class Simple(flow.nn.Module):
    def __init__(self):
        super().__init__()
        table = np.random.default_rng(2026).standard_normal((4, 3)).astype(np.float32)
        self.weight = flow.nn.Parameter(flow.tensor(table))

    def forward(self, x):
        return x * 0.5 + 2, flow.matmul(x, self.weight).relu()


class Graph(flow.nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, x):
        return self.module(x)


def tensor(name, array):
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}


def main():
    module = Simple()
    graph = Graph(module)
    graph(flow.zeros(1, 4))
    folder = HERE / "simple_oneflow/1/model"
    shutil.rmtree(folder, ignore_errors=True)
    flow.save(graph, str(folder))
    requests = []
    for name, rows in ("one row", [[1, 2, 3, 4]]), ("two rows", [[-1.5, 0, 2, 8], [2.25, 1, 0, -3]]):
        x = np.array(rows, np.float32)
        answers = [t.numpy() for t in module(flow.tensor(x))]
        requests.append({"name": name, "inputs": [tensor("INPUT_0", x)], "outputs": [tensor("OUTPUT_%d" % i, a) for i, a in enumerate(answers)], "atol": 1e-5})
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text('{"ensemble": "simple_oneflow", "requests": [\n%s\n]}\n' % lines)


main()
