"""Writes the models beside this file: pip install onnx==1.23.2 numpy && python make.py"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

HERE = pathlib.Path(__file__).parent


def port(name, kind, *dims):
    return h.make_tensor_value_info(name, kind, list(dims))


def save(name, nodes, inputs, outputs, weights=()):
    graph = h.make_graph(nodes, name, inputs, outputs, list(weights))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9, producer_name="tutti")
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def const(name, array):
    return onnx.numpy_helper.from_array(array, name)


# y = relu(x w); w[i][j] is 1 where j is i, and -1 where j is i + 1
weights = np.eye(16, dtype=np.float32) - np.eye(16, k=1, dtype=np.float32)
save("mlp", [h.make_node("MatMul", ["x", "w"], ["h"]), h.make_node("Relu", ["h"], ["y"])],
     [port("x", T.FLOAT, "batch", 16)], [port("y", T.FLOAT, "batch", 16)], [const("w", weights)])

# One identity per element type.
kinds = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE", "BFLOAT16"]
save("types", [h.make_node("Identity", [f"in_{k}"], [f"out_{k}"]) for k in kinds],
     [port(f"in_{k}", getattr(T, k), "batch", "n") for k in kinds],
     [port(f"out_{k}", getattr(T, k), "batch", "n") for k in kinds])

# The output's shape depends on the data.
save("nonzero", [h.make_node("NonZero", ["x"], ["y"])], [port("x", T.FLOAT, "n")], [port("y", T.INT64, 1, None)])

# Tensors without dimensions.
save("scalar", [h.make_node("Add", ["a", "b"], ["y"])],
     [port("a", T.FLOAT), port("b", T.FLOAT)], [port("y", T.FLOAT)])

# Outputs that no node computes: an input, and a weight.
save("through", [h.make_node("Neg", ["x"], ["y"])], [port("x", T.FLOAT, "n")],
     [port("y", T.FLOAT, "n"), port("x", T.FLOAT, "n"), port("c", T.FLOAT, 3)],
     [const("c", np.array([1, 2, 3], np.float32))])

# The output is declared as long as the input, and is not.
save("liar", [h.make_node("NonZero", ["x"], ["i"]), h.make_node("Squeeze", ["i", "axis"], ["y"])],
     [port("x", T.FLOAT, "n")], [port("y", T.INT64, "n")], [const("axis", np.array([0], np.int64))])

# An embedding: an index outside the table fails the run.
save("embed", [h.make_node("Gather", ["table", "i"], ["y"])], [port("i", T.INT64, "batch", 1)],
     [port("y", T.FLOAT, "batch", 1, 4)], [const("table", np.arange(40, dtype=np.float32).reshape(10, 4))])

# Kinds that are refused.
save("strings", [h.make_node("Identity", ["x"], ["y"])], [port("x", T.STRING, "n")], [port("y", T.STRING, "n")])
save("sequence", [h.make_node("SequenceConstruct", ["x", "x"], ["y"])], [port("x", T.FLOAT, 2)],
     [h.make_tensor_sequence_value_info("y", T.FLOAT, [2])])

# A batch that is not the first dimension's: fixed first dimension.
save("fixed", [h.make_node("Relu", ["x"], ["y"])], [port("x", T.FLOAT, 2, 3)], [port("y", T.FLOAT, 2, 3)])
