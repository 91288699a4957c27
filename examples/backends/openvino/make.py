#!/usr/bin/env python3
"""Makes the model and the reference answers of this folder.

    pip install openvino==2026.4.1 numpy && python examples/backends/openvino/make.py

The answers are those of OpenVINO's own Python run of the file.
"""

import json
import pathlib

import numpy as np
import openvino as ov
from openvino import opset13 as op

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "simple_openvino/1/model.xml"


def make():
    """OUTPUT0 = INPUT0 * 0.5 + 2; OUTPUT1 = rows of a table of 100 by 10."""
    table = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)
    first = op.parameter([-1, -1], np.float32, name="INPUT0")
    first.output(0).set_names({"INPUT0"})
    second = op.parameter([-1, -1], np.int64, name="INPUT1")
    second.output(0).set_names({"INPUT1"})
    scaled = op.add(op.multiply(first, op.constant(np.float32(0.5))), op.constant(np.float32(2)))
    scaled.output(0).set_names({"OUTPUT0"})
    rows = op.gather(op.constant(table), second, op.constant(np.int64(0)))
    rows.output(0).set_names({"OUTPUT1"})
    ov.save_model(ov.Model([scaled, rows], [first, second], "simple_openvino"), FILE, compress_to_fp16=False)


def tensor(name, array):
    datatype = {"float32": "FP32", "int64": "INT64"}[array.dtype.name]
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()}


def main():
    make()
    compiled = ov.Core().compile_model(FILE, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    requests = []
    for name, first, second in (
        ("one row", [[1, 2, 3, 4]], [[0, 7, 99]]),
        ("two rows", [[-1.5, 0.25], [1e6, -1e-6]], [[50], [51]]),
    ):
        given = {"INPUT0": np.array(first, np.float32), "INPUT1": np.array(second, np.int64)}
        answer = compiled(given)
        requests.append(
            {
                "name": name,
                "inputs": [tensor(k, v) for k, v in given.items()],
                "outputs": [tensor(k, answer[k]) for k in ("OUTPUT0", "OUTPUT1")],
                "atol": 1e-6,
            }
        )
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text('{"ensemble": "simple_openvino", "requests": [\n' + lines + "\n]}\n")


main()
