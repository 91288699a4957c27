#!/usr/bin/env python3
"""Write the ONNX model of the stateful example.

Run by hand after a change; needs onnx only. The model adds INPUT to the state TOTAL_IN
and puts the sum out twice: as OUTPUT and as the next state TOTAL_OUT.
"""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

FILE = Path(__file__).resolve().parent.parent / "examples/stateful/accumulator/1/model.onnx"


def main():
    def port(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2])

    nodes = [
        helper.make_node("Add", ["INPUT", "TOTAL_IN"], ["OUTPUT"]),
        helper.make_node("Identity", ["OUTPUT"], ["TOTAL_OUT"]),
    ]
    graph = helper.make_graph(nodes, "accumulator", [port("INPUT"), port("TOTAL_IN")], [port("OUTPUT"), port("TOTAL_OUT")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, FILE)


if __name__ == "__main__":
    main()
