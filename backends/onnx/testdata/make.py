"""Writes the models beside this file: pip install onnx==1.23.2 numpy && python make.py"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

HERE = pathlib.Path(__file__).parent


def port(name, kind, *dims):
    return h.make_tensor_value_info(name, kind, list(dims))


def save(name, nodes, inputs, outputs, weights=(), opset=17, domain=""):
    graph = h.make_graph(nodes, name, inputs, outputs, list(weights))
    opsets = [h.make_opsetid("", opset)] + ([h.make_opsetid(domain, 1)] if domain else [])
    model = h.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="tutti")
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def const(name, array):
    return onnx.numpy_helper.from_array(array, name)


# y = relu(x w); w[i][j] is 1 where j is i, and -1 where j is i + 1
weights = np.eye(16, dtype=np.float32) - np.eye(16, k=1, dtype=np.float32)
save("mlp", [h.make_node("MatMul", ["x", "w"], ["h"]), h.make_node("Relu", ["h"], ["y"])],
     [port("x", T.FLOAT, "batch", 16)], [port("y", T.FLOAT, "batch", 16)], [const("w", weights)])

# The same product in 8 bit integers, quantised while it executes, and with weights in half precision.
save("mlp_int8", [
    h.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]), h.make_node("MatMulInteger", ["xq", "w", "xz"], ["i"]),
    h.make_node("Cast", ["i"], ["f"], to=T.FLOAT), h.make_node("Mul", ["f", "xs"], ["h"]), h.make_node("Relu", ["h"], ["y"]),
], [port("x", T.FLOAT, "batch", 16)], [port("y", T.FLOAT, "batch", 16)], [const("w", weights.astype(np.int8))])
save("mlp_fp16", [
    h.make_node("Cast", ["x"], ["a"], to=T.FLOAT16), h.make_node("MatMul", ["a", "w"], ["b"]), h.make_node("Relu", ["b"], ["c"]),
    h.make_node("Cast", ["c"], ["y"], to=T.FLOAT),
], [port("x", T.FLOAT, "batch", 16)], [port("y", T.FLOAT, "batch", 16)], [const("w", weights.astype(np.float16))])

# Products behind layer normalisations two of whose 16 channels are 40 times as large as the others, as transformers have them. Only two
# products read the first one, and a residual connection reads the second one, too.
channels = np.where(np.isin(np.arange(16), [3, 11]), 40, 1).astype(np.float32)


def behind(turn):
    """A matrix whose rows for the large channels are small."""
    return (np.sin(np.arange(256).reshape(16, 16) * 1.7 + turn) / channels[:, None]).astype(np.float32)


save("encoder", [
    h.make_node("LayerNormalization", ["x", "scale1", "shift1"], ["first"], axis=-1),
    h.make_node("MatMul", ["first", "w1"], ["a"]), h.make_node("MatMul", ["first", "w2"], ["b"]),
    h.make_node("Add", ["a", "b"], ["c"]),
    h.make_node("LayerNormalization", ["c", "scale2", "shift2"], ["second"], axis=-1),
    h.make_node("Gemm", ["second", "w3", "b3"], ["d"], transB=1),
    h.make_node("Mul", ["second", "half"], ["e"]), h.make_node("Add", ["d", "e"], ["f"]), h.make_node("MatMul", ["f", "w4"], ["y"]),
], [port("x", T.FLOAT, "batch", 16)], [port("y", T.FLOAT, "batch", 16)], [
    const("scale1", channels), const("shift1", channels / 8), const("scale2", channels), const("shift2", -channels / 8),
    const("w1", behind(0)), const("w2", behind(1)), const("w3", behind(2).T.copy()), const("b3", np.linspace(-1, 1, 16, dtype=np.float32)),
    const("half", np.array(0.5, np.float32)), const("w4", behind(3)),
])

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

# Strings: handed on, each joined to itself, and one without dimensions.
save("strings", [h.make_node("Identity", ["x"], ["y"]), h.make_node("StringConcat", ["x", "x"], ["twice"])],
     [port("x", T.STRING, "batch", "n")], [port("y", T.STRING, "batch", "n"), port("twice", T.STRING, "batch", "n")], opset=20)
save("word", [h.make_node("StringConcat", ["x", "x"], ["y"])], [port("x", T.STRING)], [port("y", T.STRING)], opset=20)
save("through_strings", [h.make_node("StringConcat", ["x", "x"], ["y"])], [port("x", T.STRING, "n")],
     [port("y", T.STRING, "n"), port("x", T.STRING, "n"), port("c", T.STRING, 2)], [const("c", np.array(["", "a\0b"], object))], opset=20)

# Outputs whose shape the runtime alone knows, of the types that are hard to come by.
picked = ["FLOAT16", "BFLOAT16", "BOOL", "STRING"]
save("pick", [h.make_node("NonZero", ["keep"], ["at"]), h.make_node("Squeeze", ["at"], ["i"])]
     + [h.make_node("Gather", [f"in_{k}", "i"], [f"out_{k}"]) for k in picked],
     [port("keep", T.BOOL, "n")] + [port(f"in_{k}", getattr(T, k), "n") for k in picked],
     [port(f"out_{k}", getattr(T, k), None) for k in picked])

# Adds one to x, n times: as long as one likes.
body = h.make_graph([h.make_node("Identity", ["on"], ["go"]), h.make_node("Add", ["was", "one"], ["is"])], "body",
                    [port("i", T.INT64), port("on", T.BOOL), port("was", T.FLOAT, "m")], [port("go", T.BOOL), port("is", T.FLOAT, "m")],
                    [const("one", np.array([1], np.float32))])
save("loop", [h.make_node("Squeeze", ["n"], ["times"]), h.make_node("Loop", ["times", "", "x"], ["y"], body=body)],
     [port("n", T.INT64, 1), port("x", T.FLOAT, "m")], [port("y", T.FLOAT, "m")])

# As much memory as one likes.
save("fill", [h.make_node("ConstantOfShape", ["shape"], ["all"]), h.make_node("Add", ["all", "one"], ["more"]),
              h.make_node("ReduceSum", ["more"], ["y"], keepdims=0)],
     [port("shape", T.INT64, 1)], [port("y", T.FLOAT)], [const("one", np.array([1], np.float32))])

# Weights in a file of their own.
far = const("w", np.arange(64, dtype=np.float32))
onnx.external_data_helper.set_external_data(far, "far.bin")
(HERE / "far.bin").write_bytes(far.raw_data)
far.ClearField("raw_data")
save("far", [h.make_node("Add", ["x", "w"], ["y"])], [port("x", T.FLOAT, "batch", 64)], [port("y", T.FLOAT, "batch", 64)], [far])

# An operator of a library, and operators of a time to come.
save("custom", [h.make_node("Twice", ["x"], ["y"], domain="tutti.test")], [port("x", T.FLOAT, "n")], [port("y", T.FLOAT, "n")],
     domain="tutti.test")
save("future", [h.make_node("Relu", ["x"], ["y"])], [port("x", T.FLOAT, "n")], [port("y", T.FLOAT, "n")], opset=999)

# Kinds that are refused.
save("complex", [h.make_node("Identity", ["x"], ["y"])], [port("x", T.COMPLEX64, "n")], [port("y", T.COMPLEX64, "n")])
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
