"""Writes simple_onnx's model and expected.json, the answers of ONNX Runtime's own Python interface.

    pip install onnx==1.23.2 onnxruntime==1.31.1 numpy && python examples/backends/onnx/make.py
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h

HERE = Path(__file__).resolve().parent
MODEL = HERE / "simple_onnx/1/model.onnx"
TYPES = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}


def write_model():
    def const(name, array):
        return onnx.numpy_helper.from_array(array, name)

    def port(name, kind, *dims):
        return h.make_tensor_value_info(name, kind, list(dims))

    table = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)
    graph = h.make_graph(
        [h.make_node("Mul", ["INPUT0", "half"], ["h"]), h.make_node("Add", ["h", "two"], ["OUTPUT0"]),
         h.make_node("Gather", ["table", "INPUT1"], ["OUTPUT1"])],
        "simple", [port("INPUT0", T.FLOAT, "batch", "n"), port("INPUT1", T.INT64, "batch", "m")],
        [port("OUTPUT0", T.FLOAT, "batch", "n"), port("OUTPUT1", T.FLOAT, "batch", "m", 10)],
        [const("half", np.array(0.5, np.float32)), const("two", np.array(2, np.float32)), const("table", table)])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9, producer_name="tutti")
    onnx.checker.check_model(model)
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    MODEL.write_bytes(model.SerializeToString(deterministic=True))


def tensor(name, array):
    return {"name": name, "datatype": TYPES[array.dtype], "shape": list(array.shape), "data": array.ravel().tolist()}


def request(session, name, numbers, indices):
    given = {"INPUT0": np.array(numbers, np.float32), "INPUT1": np.array(indices, np.int64)}
    names = [o.name for o in session.get_outputs()]
    answers = session.run(names, given)
    return {"name": name, "inputs": [tensor(*i) for i in given.items()],
            "outputs": [tensor(*o) for o in zip(names, answers)], "atol": 1e-6}


def main():
    write_model()
    session = ort.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    requests = [request(session, "one row", [[1, 2, 3, 4]], [[0, 7, 99]]),
                request(session, "two rows", [[-1.5, 0], [2.25, 1e6]], [[1], [42]])]
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text(f'{{"ensemble": "simple_onnx", "requests": [\n{lines}\n]}}\n')


main()
