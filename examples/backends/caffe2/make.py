"""Writes simple_caffe2's nets and expected.json, the results of Caffe2's own Python interface, which PyTorch 1.10.2 has for Python 3.9.

    python3.9 -m venv venv && venv/bin/pip install --no-deps torch==1.10.2 &&
    venv/bin/pip install six future protobuf==3.20.1 'numpy<1.24' typing_extensions &&
    venv/bin/python examples/backends/caffe2/make.py
"""

import json
from pathlib import Path

import numpy as np
from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace

HERE = Path(__file__).resolve().parent
VERSION = HERE / "simple_caffe2/1"


def write_model():
    predict, init = caffe2_pb2.NetDef(name="predict"), caffe2_pb2.NetDef(name="init")
    bias = np.linspace(-1, 1, 16).astype(np.float32)
    init.op.extend([core.CreateOperator("GivenTensorFill", [], ["bias"], shape=[16], values=bias.tolist())])
    predict.op.extend([
        core.CreateOperator("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"], name="sum"),
        core.CreateOperator("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"], name="difference"),
        core.CreateOperator("Add", ["OUTPUT1", "bias"], ["OUTPUT1"], name="shift", broadcast=1)])
    predict.external_input.extend(["INPUT0", "INPUT1", "bias"])
    predict.external_output.extend(["OUTPUT0", "OUTPUT1"])
    VERSION.mkdir(parents=True, exist_ok=True)
    (VERSION / "model.netdef").write_bytes(predict.SerializeToString())
    (VERSION / "init_model.netdef").write_bytes(init.SerializeToString())


def tensor(name, array):
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}


def request(predictor, name, rows):
    random = np.random.default_rng(rows)
    given = {k: random.uniform(-10, 10, (rows, 16)).astype(np.float32) for k in ("INPUT0", "INPUT1")}
    results = predictor.run(given)
    return {"name": name, "inputs": [tensor(*i) for i in given.items()],
            "outputs": [tensor(f"OUTPUT{i}", np.asarray(r)) for i, r in enumerate(results)], "atol": 1e-6}


def main():
    write_model()
    predictor = workspace.Predictor((VERSION / "init_model.netdef").read_bytes(), (VERSION / "model.netdef").read_bytes())
    requests = [request(predictor, "one row", 1), request(predictor, "three rows", 3)]
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text(f'{{"ensemble": "simple_caffe2", "requests": [\n{lines}\n]}}\n')


main()
