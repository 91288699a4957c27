#!/usr/bin/env python3
"""Write the small ONNX models of the parallel example and its expected.json.

Run by hand after a change; needs onnx and numpy only. The expected answers are
worked out here with numpy, not by running the models.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/parallel"
ROWS, WIDTH = 100, 10
I32, F32 = TensorProto.INT32, TensorProto.FLOAT

# Rounded, so that every maths library gives the same table.
TABLE = np.round(np.sin(np.outer(np.arange(1, ROWS + 1), np.arange(1, WIDTH + 1))), 4).astype(np.float32)


def scalar(name, value):
    return numpy_helper.from_array(np.array(value, np.float32), name)


def save(name, nodes, inputs, outputs, weights=()):
    """One model folder's 1/model.onnx; inputs and outputs are (name, type, dims)."""
    ports = [[helper.make_tensor_value_info(*p) for p in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, name, *ports, list(weights))
    model = helper.make_model(
        graph, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.checker.check_model(model, full_check=True)
    path = FOLDER / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def models():
    node, ids = helper.make_node, ("INPUT0", I32, ["batch", "n"])
    save(
        "scale_shift",
        [
            node("Cast", ["INPUT0"], ["real"], to=F32),
            node("Mul", ["real", "half"], ["scaled"]),
            node("Add", ["scaled", "two"], ["OUTPUT0"]),
        ],
        [ids],
        [("OUTPUT0", F32, ["batch", "n"])],
        [scalar("half", 0.5), scalar("two", 2)],
    )
    save(
        "embedding_table",
        [node("Gather", ["table", "INPUT0"], ["OUTPUT0"], axis=0)],
        [ids],
        [("OUTPUT0", F32, ["batch", "n", WIDTH])],
        [numpy_helper.from_array(TABLE, "table")],
    )
    save(
        "join",
        [
            node("Unsqueeze", ["SCALED", "last"], ["column"]),
            node("Concat", ["column", "EMBEDDED"], ["JOINED"], axis=-1),
        ],
        [("SCALED", F32, ["batch", "n"]), ("EMBEDDED", F32, ["batch", "n", WIDTH])],
        [("JOINED", F32, ["batch", "n", WIDTH + 1])],
        [numpy_helper.from_array(np.array([-1], np.int64), "last")],
    )
    save(
        "row_mean",
        [node("ReduceMean", ["ROWS"], ["MEAN"], axes=[1], keepdims=0)],
        [("ROWS", F32, ["batch", "n", WIDTH + 1])],
        [("MEAN", F32, ["batch", WIDTH + 1])],
    )


def port(name, datatype, array):
    flat = np.asarray(array).ravel()
    data = [round(float(v), 7) for v in flat] if datatype == "FP32" else flat.tolist()
    return {"name": name, "datatype": datatype, "shape": list(np.shape(array)), "data": data}


def request(ensemble, name, ids, note=None):
    """One entry of expected.json for a matrix of ids."""
    ids = np.array(ids)
    scaled, embedded = (ids * 0.5 + 2).astype(np.float32), TABLE[ids]
    joined = np.concatenate([scaled[..., None], embedded], axis=-1)
    inputs = [port("INPUT0", "INT32", ids)]
    outputs = [port("SCALED", "FP32", scaled), port("EMBEDDED", "FP32", embedded), port("JOINED", "FP32", joined)]
    if ensemble == "parallel_nested":
        outputs = [port("MEAN", "FP32", joined.mean(axis=1)), port("JOINED", "FP32", joined)]
        if note is not None:
            inputs.append(port("NOTE", "BYTES", note))
            outputs.append(port("NOTE_OUT", "BYTES", note))
    return {"ensemble": ensemble, "name": name, "inputs": inputs, "outputs": outputs, "atol": 1e-5}


def expected():
    requests = [
        request("parallel", "four_ids", [[1, 2, 3, 99]]),
        request("parallel", "one_id", [[0]]),
        request("parallel", "two_rows", [[0, 50, 7], [99, 7, 7]]),
        request("parallel_nested", "with_note", [[5, 10, 15]], [["kept as it came: żółw"]]),
        request("parallel_nested", "without_note", [[5, 10, 15]]),
        request("parallel_nested", "two_rows", [[1, 2], [98, 99]], [["first"], ["second"]]),
    ]
    lines = [json.dumps(r, ensure_ascii=False) for r in requests]
    text = '{"ensemble": "parallel", "requests": [\n' + ",\n".join(lines) + "\n]}\n"
    (FOLDER / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    models()
    expected()
