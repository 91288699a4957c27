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

# Ragged: the elements of a whole batch, and where each request's end. y doubles the elements, sum adds up each request's,
# counts and longest say what the batch was.
save("ragged", [
    h.make_node("Add", ["x", "x"], ["y"]),
    h.make_node("CumSum", ["x", "axis"], ["sums"]),
    h.make_node("Concat", ["zero", "sums"], ["from0"], axis=0),
    h.make_node("Gather", ["from0", "ends"], ["at"], axis=0),
    h.make_node("Slice", ["at", "one", "last"], ["above"]),
    h.make_node("Slice", ["at", "axes0", "minus1"], ["below"]),
    h.make_node("Sub", ["above", "below"], ["sum"]),
    h.make_node("Shape", ["longest"], ["size"]),
    h.make_node("Shape", ["sum"], ["n"]),
    h.make_node("Expand", ["size", "n"], ["width"]),
], [port("x", T.FLOAT, "total"), port("ends", T.INT32, "bounds"), port("longest", T.FLOAT, "most")],
    [port("y", T.FLOAT, "total"), port("sum", T.FLOAT, None), port("width", T.INT64, None)],
    [const("axis", np.array(0, np.int64)), const("zero", np.array([0], np.float32)), const("one", np.array([1], np.int64)),
     const("last", np.array([2**31 - 1], np.int64)), const("axes0", np.array([0], np.int64)), const("minus1", np.array([-1], np.int64))])

# An image network without a batch dimension of its own: each class is the sum of all elements, times a weight.
save("image", [h.make_node("ReduceSum", ["data_0", "axes"], ["all"], keepdims=1), h.make_node("Mul", ["all", "w"], ["fc6_1"])],
     [port("data_0", T.FLOAT, 1, 3, 224, 224)], [port("fc6_1", T.FLOAT, 1, 1000, 1, 1)],
     [const("axes", np.array([1, 2, 3], np.int64)), const("w", (np.arange(1000, dtype=np.float32) / 1000).reshape(1, 1000, 1, 1))])

# The greatest of a column, which no rows have none of.
save("peak", [h.make_node("ReduceMax", ["x"], ["top"], axes=[0], keepdims=1), h.make_node("Sub", ["top", "x"], ["y"])],
     [port("x", T.FLOAT, "batch", "n")], [port("y", T.FLOAT, "batch", "n")])
