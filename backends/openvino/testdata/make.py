"""Makes the models of this folder. Needs openvino and numpy."""

import os

import numpy as np
import openvino as ov
from openvino import opset13 as op

HERE = os.path.dirname(os.path.abspath(__file__))


def param(name, shape, dtype=np.float32):
    p = op.parameter(shape, dtype, name=name)
    p.output(0).set_names({name})
    return p


def named(node, *names):
    node.output(0).set_names(set(names))
    return node


def save(name, outs, ins):
    ov.save_model(ov.Model(outs, ins, name), os.path.join(HERE, name + ".xml"), compress_to_fp16=False)
    weights = os.path.join(HERE, name + ".bin")
    if os.path.getsize(weights) == 0:
        os.remove(weights)


def f32(*values):
    return op.constant(np.array(values, np.float32))


# Differences of neighbours, cut at zero.
x = param("x", [-1, 16])
w = np.eye(16, dtype=np.float32) - np.eye(16, k=1, dtype=np.float32)
save("mlp", [named(op.relu(op.matmul(x, op.constant(w), False, False)), "y")], [x])

x = param("x", [2, 3])
save("fixed", [named(op.negative(x), "y")], [x])

x = param("x", [4, 3])
save("four", [named(op.multiply(x, f32(2)), "y")], [x])

a, b = param("a", []), param("b", [])
save("scalar", [named(op.add(a, b), "y")], [a, b])

x = param("x", [-1])
save("nonzero", [named(op.non_zero(x, "i64"), "y")], [x])

# The first dimension of the output is not the batch, though it looks like it.
x = param("x", [-1, 2])
save("liar", [named(op.concat([x, x], 0), "y")], [x])

# Handed through: the output has the input's name.
x = param("x", [-1, 1], ov.Type.string)
save("strings", [op.result(x)], [x])

x = param("x", [3, 1], ov.Type.string)
save("words", [op.result(x)], [x])

x = param("x", [-1, -1])
save("through", [named(op.negative(x), "y"), op.result(x)], [x])

# An output without a name of its own, and an input with two.
x = op.parameter([-1, 2], np.float32, name="x")
x.output(0).set_names({"x", "x:0"})
result = op.result(op.negative(x))
result.set_friendly_name("unnamed")
save("names", [result], [x])

x = op.parameter(ov.PartialShape.dynamic(), np.float32, name="x")
x.output(0).set_names({"x"})
save("unranked", [named(op.negative(x), "y")], [x])

x = param("x", [-1], ov.Type.i4)
save("int4", [named(op.convert(x, "f32"), "y")], [x])

TYPES = ["boolean", "bf16", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
ins = [param(t, [-1], getattr(ov.Type, t)) for t in TYPES]
save("types", [named(op.concat([i, i], 0), i.get_friendly_name() + "2") for i in ins], ins)

# As long as its input is large: cancellation has something to stop.
x = y = param("x", [-1, -1])
for _ in range(40):
    y = op.multiply(op.matmul(y, x, False, False), f32(0.01))
save("chain", [named(y, "y")], [x])


# TensorFlow's files, written by their field numbers: y = x * 2, float [?, 3].
def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(n):
    out = b""
    n &= (1 << 64) - 1
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def attr(key, value):
    return field(5, field(1, key) + field(2, value))


def node(name, kind, inputs=(), *attrs):
    return field(1, field(1, name) + field(2, kind) + b"".join(field(3, i) for i in inputs) + b"".join(attrs))


def dims(*extents):
    return b"".join(field(2, field(1, e)) for e in extents)


float_type = field(6, 1)
two = field(1, 1) + field(2, b"") + field(4, np.float32(2).tobytes())
graph = (
    node("x", "Placeholder", (), attr("dtype", float_type), attr("shape", field(7, dims(-1, 3))))
    + node("two", "Const", (), attr("dtype", float_type), attr("value", field(8, two)))
    + node("y", "Mul", ("x", "two"), attr("T", float_type))
)
with open(os.path.join(HERE, "frozen.pb"), "wb") as f:
    f.write(graph)


def tensor_info(name):
    return field(1, name) + field(2, 1) + field(3, dims(-1, 3))


signature = (
    field(1, field(1, "x") + field(2, tensor_info("x:0")))
    + field(2, field(1, "y") + field(2, tensor_info("y:0")))
    + field(3, "tensorflow/serving/predict")
)
meta = field(1, field(4, "serve")) + field(2, graph) + field(5, field(1, "serving_default") + field(2, signature))
os.makedirs(os.path.join(HERE, "saved"), exist_ok=True)
with open(os.path.join(HERE, "saved", "saved_model.pb"), "wb") as f:
    f.write(field(1, 1) + field(2, meta))
core = ov.Core()
for name in ("frozen.pb", "saved"):
    compiled = core.compile_model(os.path.join(HERE, name), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    print(name, compiled.inputs, compiled.outputs, compiled(np.ones((1, 3), np.float32))[0])
