"""Writes operators.json.gz: nets of Caffe2 with the outputs of Caffe2 itself, for each supported operator.

    python3.9 -m venv venv && venv/bin/pip install --no-deps torch==1.10.2 &&
    venv/bin/pip install six future protobuf==3.20.1 'numpy<1.24' typing_extensions &&
    venv/bin/python backends/caffe2/testdata/make.py
"""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace

TYPES = {"float32": "FP32", "float64": "FP64", "int32": "INT32", "int64": "INT64", "bool": "BOOL", "uint8": "UINT8", "int8": "INT8",
         "int16": "INT16", "uint16": "UINT16"}
FILLS = {"float32": ("GivenTensorFill", float), "float64": ("GivenTensorDoubleFill", float), "int32": ("GivenTensorIntFill", int),
         "int64": ("GivenTensorInt64Fill", int), "bool": ("GivenTensorBoolFill", bool), "int16": ("GivenTensorInt16Fill", int)}
random = np.random.default_rng(2026)
cases = []


def f32(*shape, low=-2.0, high=2.0):
    return random.uniform(low, high, shape).astype(np.float32)


def op(kind, ins, outs, **args):
    ins = [ins] if isinstance(ins, str) else ins
    outs = [outs] if isinstance(outs, str) else outs
    return core.CreateOperator(kind, ins, outs, **args)


def fill(name, array):
    kind, cast = FILLS[str(array.dtype)]
    return op(kind, [], name, shape=list(array.shape), values=[cast(x) for x in array.ravel()])


def tensor(name, array):
    array = np.ascontiguousarray(array)
    return {"name": name, "datatype": TYPES[str(array.dtype)], "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def case(name, ops, inputs, outputs, weights=None, init=(), atol=2e-5):
    """Runs operators on inputs. weights are filled by the init net, after its own operators init."""
    ops = ops if isinstance(ops, list) else [ops]
    workspace.ResetWorkspace()
    predict, fills = caffe2_pb2.NetDef(name="predict"), caffe2_pb2.NetDef(name="init")
    predict.op.extend(ops)
    predict.external_input.extend(list(inputs) + list(weights or {}) + [o for i in init for o in i.output if o not in inputs])
    predict.external_output.extend(outputs)
    fills.op.extend(init)
    fills.op.extend(fill(k, v) for k, v in (weights or {}).items())
    assert workspace.RunNetOnce(fills)
    for k, v in inputs.items():
        workspace.FeedBlob(k, v)
    assert workspace.RunNetOnce(predict)
    cases.append({
        "name": name, "predict": base64.b64encode(predict.SerializeToString()).decode(), "init": base64.b64encode(fills.SerializeToString()).decode(),
        "atol": atol, "inputs": [tensor(k, v) for k, v in inputs.items()],
        "outputs": [tensor(k, np.asarray(workspace.FetchBlob(k))) for k in outputs],
    })


def unary():
    x = f32(2, 3, 4)
    for kind in ("Abs Atan Ceil Cos Cosh Exp Floor Negative Relu Sigmoid Sign Sin Sinh Softplus Softsign Tanh Sqr Cube Swish Elu LeakyRelu Selu "
                 "HardSigmoid Copy StopGradient Alias EnsureCPUOutput EnsureDense Clip Scale Softmax ThresholdedRelu").split():
        case(kind, op(kind, "x", "y"), {"x": x}, ["y"])
    for kind in "Log Sqrt Rsqrt Reciprocal".split():
        case(kind, op(kind, "x", "y"), {"x": f32(2, 3, low=0.1)}, ["y"])
    for kind in "Acos Asin Tan".split():
        case(kind, op(kind, "x", "y"), {"x": f32(2, 3, low=-0.9, high=0.9)}, ["y"])
    case("Elu alpha", op("Elu", "x", "y", alpha=0.3), {"x": x}, ["y"])
    case("LeakyRelu alpha", op("LeakyRelu", "x", "y", alpha=0.2), {"x": x}, ["y"])
    case("Selu args", op("Selu", "x", "y", alpha=1.2, scale=1.5), {"x": x}, ["y"])
    case("Clip args", op("Clip", "x", "y", min=-0.5, max=1.0), {"x": x}, ["y"])
    case("Clip min", op("Clip", "x", "y", min=-0.5), {"x": x}, ["y"])
    case("Scale arg", op("Scale", "x", "y", scale=2.5), {"x": x}, ["y"])
    case("Pow exponent", op("Pow", "x", "y", exponent=1.7), {"x": np.abs(x) + np.float32(0.1)}, ["y"])
    case("Pow", op("Pow", ["x", "e"], "y", broadcast=1), {"x": np.abs(x) + np.float32(0.1)}, ["y"], {"e": f32(4)})
    case("Not", op("Not", "x", "y"), {"x": random.integers(0, 2, (2, 3)).astype(bool)}, ["y"])
    case("Relu in place", [op("Relu", "x", "a"), op("Negative", "a", "a"), op("Exp", "a", "a"), op("Add", ["a", "a"], "y")], {"x": x}, ["y"])
    case("input overwritten", [op("Relu", "x", "x"), op("Negative", "x", "y")], {"x": x}, ["y"])
    case("intermediate outputs", [op("Relu", "x", "a"), op("Exp", "a", "b"), op("Negative", "a", "a")], {"x": x}, ["a", "b"])
    case("Dropout", op("Dropout", "x", ["y", "mask"], is_test=1, ratio=0.5), {"x": x}, ["y"])
    case("Dropout one output", op("Dropout", "x", ["y"], is_test=1), {"x": x}, ["y"])
    for to, name in ((caffe2_pb2.TensorProto.INT32, "int32"), (caffe2_pb2.TensorProto.INT64, "int64"), (caffe2_pb2.TensorProto.DOUBLE, "double"),
                     (caffe2_pb2.TensorProto.BOOL, "bool"), (caffe2_pb2.TensorProto.UINT8, "uint8")):
        case("Cast " + name, op("Cast", "x", "y", to=to), {"x": np.abs(x) * 3}, ["y"])
    case("Cast name", op("Cast", "x", "y", to="int64"), {"x": x}, ["y"])
    for axis in (0, 1, 2, -1):
        case(f"Softmax axis {axis}", op("Softmax", "x", "y", axis=axis), {"x": x}, ["y"])
    case("Softmax images", op("Softmax", "x", "y"), {"x": f32(2, 5, 1, 1)}, ["y"])
    case("Softmax spread", op("Softmax", "x", "y"), {"x": f32(2, 3, 2, 2)}, ["y"])
    case("PRelu", op("PRelu", ["x", "s"], "y"), {"x": f32(2, 3, 2, 2)}, ["y"], {"s": f32(3)})
    case("PRelu one", op("PRelu", ["x", "s"], "y"), {"x": f32(2, 3, 2, 2)}, ["y"], {"s": f32(1)})
    case("PRelu matrix", op("PRelu", ["x", "s"], "y"), {"x": f32(2, 3)}, ["y"], {"s": f32(3)})


def pairs():
    a, b = f32(2, 3, 4), f32(2, 3, 4)
    for kind in "Add Sub Mul Div".split():
        case(kind, op(kind, ["a", "b"], "y"), {"a": a, "b": b}, ["y"])
        case(kind + " int32", op(kind, ["a", "b"], "y"), {"a": (a * 9).astype(np.int32), "b": np.abs(b * 5).astype(np.int32) + 1}, ["y"])
        case(kind + " broadcast", op(kind, ["a", "b"], "y", broadcast=1), {"a": a}, ["y"], {"b": f32(4)})
        case(kind + " broadcast axis", op(kind, ["a", "b"], "y", broadcast=1, axis=1), {"a": a}, ["y"], {"b": f32(3)})
        case(kind + " broadcast first", op(kind, ["a", "b"], "y", broadcast=1, axis=0), {"a": a}, ["y"], {"b": f32(2)})
    case("Add broadcast two", op("Add", ["a", "b"], "y", broadcast=1, axis=0), {"a": a}, ["y"], {"b": f32(2, 3)})
    case("Add broadcast scalar", op("Add", ["a", "b"], "y", broadcast=1), {"a": a}, ["y"], {"b": f32(1)})
    case("Add broadcast suffix", op("Add", ["a", "b"], "y", broadcast=1), {"a": a}, ["y"], {"b": f32(3, 4)})
    case("Add broadcast C", op("Add", ["a", "b"], "y", broadcast=1, axis_str="C", order="NCHW"), {"a": f32(2, 3, 2, 2)}, ["y"], {"b": f32(3)})
    case("Mul in place", op("Mul", ["a", "b"], "b"), {"a": a}, ["b"], {"b": b})
    case("Add numpy", op("Add", ["a", "b"], "y"), {"a": a, "b": f32(2, 1, 4)}, ["y"])
    case("Add numpy ranks", op("Add", ["a", "b"], "y"), {"a": f32(4), "b": b}, ["y"])
    for kind in "EQ NE LT LE GT GE".split():
        case(kind, op(kind, ["a", "b"], "y"), {"a": (a * 2).astype(np.int32), "b": (b * 2).astype(np.int32)}, ["y"])
    case("LT float", op("LT", ["a", "b"], "y", broadcast=1), {"a": a}, ["y"], {"b": f32(4)})
    p, q = random.integers(0, 2, (2, 3)).astype(bool), random.integers(0, 2, (2, 3)).astype(bool)
    for kind in "And Or".split():
        case(kind, op(kind, ["a", "b"], "y"), {"a": p, "b": q}, ["y"])
    for kind in "Sum Max Min Mean".split():
        case(kind, op(kind, ["a", "b", "c"], "y"), {"a": a, "b": b, "c": f32(2, 3, 4)}, ["y"])
        case(kind + " one", op(kind, ["a"], "y"), {"a": a}, ["y"])
    case("Sum int32", op("Sum", ["a", "b", "c"], "y"), {"a": (a * 9).astype(np.int32), "b": (b * 9).astype(np.int32)}, ["y"], {"c": (a * 3).astype(np.int32)})
    case("Sum in place", op("Sum", ["a", "b"], "a"), {"b": b}, ["a"], {"a": a})


def matrices():
    x = f32(3, 8)
    case("FC", op("FC", ["x", "w", "b"], "y"), {"x": x}, ["y"], {"w": f32(5, 8), "b": f32(5)})
    case("FC images", op("FC", ["x", "w", "b"], "y"), {"x": f32(2, 3, 2, 2)}, ["y"], {"w": f32(5, 12), "b": f32(5)})
    case("FC axis 2", op("FC", ["x", "w", "b"], "y", axis=2), {"x": f32(2, 3, 8)}, ["y"], {"w": f32(5, 8), "b": f32(5)})
    case("FC weights 4D", op("FC", ["x", "w", "b"], "y"), {"x": f32(2, 3, 2, 2)}, ["y"], {"w": f32(5, 3, 2, 2), "b": f32(5)})
    case("FCTransposed", op("FCTransposed", ["x", "w", "b"], "y"), {"x": x}, ["y"], {"w": f32(8, 5), "b": f32(5)})
    case("FC large", op("FC", ["x", "w", "b"], "y"), {"x": f32(2, 64)}, ["y"], {"w": f32(33, 64), "b": f32(33)}, atol=1e-4)
    case("MatMul", op("MatMul", ["x", "w"], "y"), {"x": x}, ["y"], {"w": f32(8, 5)})
    case("MatMul trans", op("MatMul", ["x", "w"], "y", trans_a=1, trans_b=1), {"x": f32(8, 3)}, ["y"], {"w": f32(5, 8)})
    case("MatMul axes", op("MatMul", ["x", "w"], "y", axis_a=2, axis_b=2), {"x": f32(2, 3, 8)}, ["y"], {"w": f32(2, 4, 5)})
    case("BatchMatMul", op("BatchMatMul", ["x", "w"], "y"), {"x": f32(2, 3, 4), "w": f32(2, 4, 5)}, ["y"])
    case("BatchMatMul trans", op("BatchMatMul", ["x", "w"], "y", trans_a=1, trans_b=1), {"x": f32(2, 4, 3), "w": f32(2, 5, 4)}, ["y"])
    case("BatchMatMul broadcast", op("BatchMatMul", ["x", "w"], "y", broadcast=1), {"x": f32(2, 2, 3, 4)}, ["y"], {"w": f32(4, 5)})


def windows():
    x = f32(2, 4, 7, 9)
    w, b = f32(6, 4, 3, 3), f32(6)
    for name, args in {"plain": dict(kernel=3), "pad stride": dict(kernel=3, pad=1, stride=2), "sides": dict(kernel=3, pad_t=0, pad_l=1, pad_b=2, pad_r=1),
                       "lists": dict(kernels=[3, 3], strides=[2, 1], pads=[1, 0, 1, 2], dilations=[1, 2]), "hw": dict(kernel_h=3, kernel_w=3, stride_h=1, stride_w=2),
                       "dilation": dict(kernel=3, dilation=2), "valid": dict(kernel=3, legacy_pad=1), "same": dict(kernel=3, legacy_pad=2),
                       "same stride": dict(kernel=3, legacy_pad=2, stride=2), "caffe": dict(kernel=3, legacy_pad=3, stride=2, pad=1),
                       "order": dict(kernel=3, order="NCHW", exhaustive_search=1)}.items():
        case("Conv " + name, op("Conv", ["x", "w", "b"], "y", **args), {"x": x}, ["y"], {"w": w, "b": b}, atol=1e-4)
    case("Conv no bias", op("Conv", ["x", "w"], "y", kernel=3), {"x": x}, ["y"], {"w": w}, atol=1e-4)
    case("Conv group", op("Conv", ["x", "w", "b"], "y", kernel=3, group=2), {"x": x}, ["y"], {"w": f32(6, 2, 3, 3), "b": b}, atol=1e-4)
    case("Conv depthwise", op("Conv", ["x", "w", "b"], "y", kernel=3, group=4, pad=1), {"x": x}, ["y"], {"w": f32(4, 1, 3, 3), "b": f32(4)}, atol=1e-4)
    case("Conv same even", op("Conv", ["x", "w", "b"], "y", kernel=2, stride=2, legacy_pad=2), {"x": x}, ["y"], {"w": f32(3, 4, 2, 2), "b": f32(3)}, atol=1e-4)
    case("Conv same point", op("Conv", ["x", "w", "b"], "y", kernel=1, stride=2, legacy_pad=2), {"x": f32(2, 4, 6, 8)}, ["y"], {"w": f32(3, 4, 1, 1), "b": f32(3)}, atol=1e-4)
    case("Conv 1D", op("Conv", ["x", "w", "b"], "y", kernels=[3], strides=[2], pads=[1, 1]), {"x": f32(2, 4, 9)}, ["y"], {"w": f32(5, 4, 3), "b": f32(5)}, atol=1e-4)
    case("Conv 3D", op("Conv", ["x", "w", "b"], "y", kernels=[2, 2, 2]), {"x": f32(1, 2, 4, 5, 3)}, ["y"], {"w": f32(3, 2, 2, 2, 2), "b": f32(3)}, atol=1e-4)
    case("Conv1D", op("Conv1D", ["x", "w", "b"], "y", kernels=[3]), {"x": f32(2, 4, 9)}, ["y"], {"w": f32(5, 4, 3), "b": f32(5)}, atol=1e-4)
    case("Conv2D", op("Conv2D", ["x", "w", "b"], "y", kernel=3), {"x": x}, ["y"], {"w": w, "b": b}, atol=1e-4)
    case("Conv3D", op("Conv3D", ["x", "w", "b"], "y", kernels=[2, 2, 2]), {"x": f32(1, 2, 4, 5, 3)}, ["y"], {"w": f32(3, 2, 2, 2, 2), "b": f32(3)}, atol=1e-4)
    for name, args in {"plain": dict(kernel=3), "stride": dict(kernel=3, stride=2, pad=1), "adj": dict(kernel=3, stride=2, pad=1, adj=1)}.items():
        case("ConvTranspose " + name, op("ConvTranspose", ["x", "w", "b"], "y", **args), {"x": f32(2, 4, 5, 3)}, ["y"], {"w": f32(4, 6, 3, 3), "b": b}, atol=1e-4)
    case("ConvTranspose no bias", op("ConvTranspose", ["x", "w"], "y", kernel=2, stride=2), {"x": f32(1, 4, 5, 3)}, ["y"], {"w": f32(4, 3, 2, 2)}, atol=1e-4)
    case("ConvTranspose group", op("ConvTranspose", ["x", "w", "b"], "y", kernel=2, stride=2, group=2), {"x": f32(1, 4, 5, 3)}, ["y"], {"w": f32(4, 3, 2, 2), "b": f32(6)}, atol=1e-4)
    for kind in ("MaxPool", "AveragePool"):
        for name, args in {"plain": dict(kernel=3), "stride": dict(kernel=2, stride=2), "pad": dict(kernel=3, stride=2, pad=1), "valid": dict(kernel=3, stride=2, legacy_pad=1),
                           "same": dict(kernel=3, stride=2, legacy_pad=2), "caffe": dict(kernel=3, stride=2, legacy_pad=3), "caffe even": dict(kernel=2, stride=2, legacy_pad=3),
                           "caffe pad": dict(kernel=3, stride=2, pad=1, legacy_pad=3), "caffe pad even": dict(kernel=2, stride=2, pad=1, legacy_pad=3),
                           "global": dict(global_pooling=1), "lists": dict(kernels=[2, 3], strides=[1, 2], pads=[1, 0, 0, 1])}.items():
            case(f"{kind} {name}", op(kind, "x", "y", **args), {"x": x}, ["y"])
        for size in (6, 8, 10, 11):
            for args in (dict(kernel=3, stride=2), dict(kernel=2, stride=2, pad=1), dict(kernel=5, stride=3, pad=2), dict(kernel=3, stride=3, pad=1)):
                case(f"{kind} caffe {size} {args}", op(kind, "x", "y", legacy_pad=3, **args), {"x": f32(1, 1, size, size)}, ["y"])
        case(kind + "2D", op(kind + "2D", "x", "y", kernel=3, stride=2), {"x": x}, ["y"])
        case(kind + "1D", op(kind + "1D", "x", "y", kernels=[3], strides=[2]), {"x": f32(2, 3, 9)}, ["y"])
        case(kind + "3D", op(kind + "3D", "x", "y", kernels=[2, 2, 2], strides=[2, 2, 2]), {"x": f32(1, 2, 4, 5, 6)}, ["y"])
        case(kind + " 1D", op(kind, "x", "y", kernels=[3], strides=[2], pads=[1, 1]), {"x": f32(2, 3, 9)}, ["y"])
        case(kind + " 3D", op(kind, "x", "y", kernels=[2, 2, 2], strides=[2, 2, 2]), {"x": f32(1, 2, 4, 5, 6)}, ["y"])
    case("AveragePool padding counted", op("AveragePool", "x", "y", kernel=3, stride=2, pad=1, count_include_pad=1), {"x": x}, ["y"])
    case("AveragePool caffe padding counted", op("AveragePool", "x", "y", kernel=3, stride=2, pad=1, legacy_pad=3, count_include_pad=1), {"x": f32(1, 1, 8, 8)}, ["y"])
    for mode in ("constant", "reflect", "edge"):
        case("PadImage " + mode, op("PadImage", "x", "y", pad_t=1, pad_l=2, pad_b=3, pad_r=0, mode=mode, value=0.5), {"x": x}, ["y"])
    for scales in ((2.0, 2.0), (1.5, 3.0), (0.5, 0.7), (1.3, 2.6)):
        for kind in ("ResizeNearest", "UpsampleBilinear"):
            case(f"{kind} {scales}", op(kind, "x", "y", width_scale=scales[0], height_scale=scales[1]), {"x": x}, ["y"])


def norms():
    x = f32(2, 6, 4, 3)
    bn = {"s": f32(6), "b": f32(6), "m": f32(6), "v": f32(6, low=0.2)}
    case("SpatialBN", op("SpatialBN", ["x", "s", "b", "m", "v"], "y", is_test=1, epsilon=1e-3, momentum=0.9), {"x": x}, ["y"], bn)
    case("LRN", op("LRN", "x", ["y", "scale"], size=3, alpha=0.3, beta=0.75, bias=1.5, order="NCHW"), {"x": x}, ["y"])
    case("LRN 5", op("LRN", "x", ["y", "scale"], size=5, alpha=1e-2, beta=0.75, order="NCHW"), {"x": x}, ["y"])
    case("InstanceNorm", op("InstanceNorm", ["x", "s", "b"], ["y"], epsilon=1e-3), {"x": x}, ["y"], {"s": f32(6), "b": f32(6)})
    case("LayerNorm", op("LayerNorm", "x", ["y", "mean", "std"], epsilon=1e-3), {"x": x}, ["y", "mean", "std"])
    case("LayerNorm axis", op("LayerNorm", "x", ["y", "mean", "std"], axis=2), {"x": x}, ["y", "mean", "std"])
    case("LayerNorm affine", op("LayerNorm", ["x", "g", "b"], ["y", "mean", "std"], axis=3, elementwise_affine=True), {"x": x}, ["y", "std"], {"g": f32(3), "b": f32(3)})
    case("GroupNorm", op("GroupNorm", ["x", "g", "b"], ["y", "mean", "std"], group=3, epsilon=1e-3), {"x": x}, ["y"], {"g": f32(6), "b": f32(6)}, atol=1e-4)
    case("AffineChannel", op("AffineChannel", ["x", "g", "b"], "y"), {"x": x}, ["y"], {"g": f32(6), "b": f32(6)})
    for axis in (0, 1, -1):
        case(f"Normalize {axis}", op("Normalize", "x", "y", axis=axis), {"x": x}, ["y"])


def shapes():
    x = f32(2, 6, 4)
    case("Reshape", op("Reshape", "x", ["y", "old"], shape=[0, -1]), {"x": x}, ["y", "old"])
    case("Reshape fixed", op("Reshape", "x", ["y", "old"], shape=[-1, 3, 8]), {"x": x}, ["y"])
    case("Reshape input", op("Reshape", ["x", "s"], ["y", "old"]), {"x": x}, ["y"], {"s": np.array([0, 24], np.int64)})
    case("Reshape input int32", op("Reshape", ["x", "s"], ["y", "old"]), {"x": x}, ["y"], {"s": np.array([0, 4, 6], np.int32)})
    case("Reshape back", [op("Reshape", "x", ["a", "old"], shape=[0, 24]), op("Exp", "a", "a"), op("Reshape", ["a", "old"], ["y", "other"])], {"x": x}, ["y"])
    case("Shape", op("Shape", "x", "y"), {"x": x}, ["y"])
    case("Shape axes", op("Shape", "x", "y", axes=[2, 0]), {"x": x}, ["y"])
    for axis in (0, 1, 2, 3):
        case(f"Flatten {axis}", op("Flatten", "x", "y", axis=axis), {"x": x}, ["y"])
    case("FlattenToVec", op("FlattenToVec", "x", "y"), {"x": x}, ["y"])
    case("ResizeLike", op("ResizeLike", ["x", "l"], "y"), {"x": x, "l": f32(2, 3, 8)}, ["y"])
    case("Transpose", op("Transpose", "x", "y"), {"x": x}, ["y"])
    case("Transpose axes", op("Transpose", "x", "y", axes=[0, 2, 1]), {"x": x}, ["y"])
    case("NCHW2NHWC", op("NCHW2NHWC", "x", "y"), {"x": f32(2, 3, 4, 5)}, ["y"])
    case("NHWC2NCHW", op("NHWC2NCHW", "x", "y"), {"x": f32(2, 4, 5, 3)}, ["y"])
    case("Squeeze", op("Squeeze", "x", "y", dims=[1, 3]), {"x": f32(2, 1, 3, 1)}, ["y"])
    case("ExpandDims", op("ExpandDims", "x", "y", dims=[1, 4]), {"x": x}, ["y"])
    case("Concat", op("Concat", ["x", "z"], ["y", "split_info"]), {"x": x, "z": f32(2, 5, 4)}, ["y", "split_info"])
    case("Concat axis", op("Concat", ["x", "z", "x"], ["y", "split_info"], axis=2), {"x": x, "z": f32(2, 6, 3)}, ["y", "split_info"])
    case("Concat last", op("Concat", ["x", "z"], ["y", "split_info"], axis=-1), {"x": x, "z": f32(2, 6, 3)}, ["y"])
    case("Concat order", op("Concat", ["x", "z"], ["y", "split_info"], order="NCHW"), {"x": f32(2, 3, 2, 2), "z": f32(2, 4, 2, 2)}, ["y"])
    case("Concat add_axis", op("Concat", ["x", "z"], ["y", "split_info"], axis=1, add_axis=1), {"x": x, "z": f32(2, 6, 4)}, ["y", "split_info"])
    case("Split", op("Split", "x", ["a", "b"]), {"x": x}, ["a", "b"])
    case("Split axis", op("Split", "x", ["a", "b", "c"], axis=2, split=[1, 2, 1]), {"x": x}, ["a", "b", "c"])
    case("Split input", op("Split", ["x", "s"], ["a", "b"], axis=1), {"x": x}, ["a", "b"], {"s": np.array([2, 4], np.int32)})
    case("Slice", op("Slice", "x", "y", starts=[0, 1, 0], ends=[-1, 3, -1]), {"x": x}, ["y"])
    case("Slice end", op("Slice", "x", "y", starts=[0, 0, 1], ends=[-1, -1, -2]), {"x": x}, ["y"])
    case("Slice short", op("Slice", "x", "y", starts=[0, 2], ends=[-1, 5]), {"x": x}, ["y"])
    case("Slice negative", op("Slice", "x", "y", starts=[0, -4, 0], ends=[-1, -2, -1]), {"x": x}, ["y"])
    case("Slice inputs", op("Slice", ["x", "s", "e"], "y"), {"x": x}, ["y"], {"s": np.array([0, 1, 0], np.int32), "e": np.array([-1, 3, -1], np.int32)})
    case("Gather", op("Gather", ["t", "i"], "y"), {"i": np.array([[1, 0], [3, 2]], np.int64)}, ["y"], {"t": f32(5, 3)})
    case("Gather int32", op("Gather", ["t", "i"], "y"), {"i": np.array([4, 0, 3], np.int32)}, ["y"], {"t": f32(5, 3)})
    case("Gather axis", op("Gather", ["x", "i"], "y", axis=1), {"x": x}, ["y"], {"i": np.array([5, 0, 3], np.int32)})
    case("Tile", op("Tile", "x", "y", tiles=3, axis=1), {"x": x}, ["y"])
    case("ChannelShuffle", op("ChannelShuffle", "x", "y", group=3), {"x": f32(2, 6, 2, 3)}, ["y"])
    case("ConstantFill like", op("ConstantFill", "x", "y", value=2.5), {"x": x}, ["y"])
    case("ConstantFill init", op("Add", ["x", "c"], "y"), {"x": x}, ["y"], init=[op("ConstantFill", [], "c", shape=[4], value=1.5)])
    case("ConstantFill int", op("Add", ["x", "c"], "y"), {"x": np.arange(4, dtype=np.int64)}, ["y"], init=[op("ConstantFill", [], "c", shape=[4], value=7)])
    case("ConstantFill large", op("Add", ["x", "c"], "y"), {"x": f32(2, 1024)}, ["y"], init=[op("ConstantFill", [], "c", shape=[2, 1024], value=1.5)])
    case("fills", [op("Cast", "i", "a", to="float"), op("Cast", "l", "b", to="float"), op("Cast", "d", "c", to="float"), op("Cast", "o", "e", to="float"),
                   op("Cast", "s", "f", to="float"), op("Sum", ["x", "a", "b", "c", "e", "f"], "y")],
         {"x": f32(4)}, ["y"], {"i": np.array([1, -2, 3, 4], np.int32), "l": np.array([1, 1 << 20, 3, 4], np.int64), "d": np.array([0.25, 2, 3, 4]), "o": np.array([True, False, True, True]),
                     "s": np.array([-3, 300, 7, 0], np.int16)})
    case("bytes", [op("Cast", "u", "a", to="float"), op("Add", ["x", "a"], "y")], {"x": f32(4)}, ["y"],
         init=[op("GivenTensorByteStringToUInt8Fill", [], "u", shape=[4], values=[b"\x00\x7f\x80\xff"])])
    case("init net computes", op("Add", ["x", "c"], "y"), {"x": x}, ["y"], init=[op("GivenTensorFill", [], "c0", shape=[4], values=[1.0, 4.0, 9.0, 16.0]), op("Sqrt", "c0", "c")])
    case("init net fills the input", op("Relu", "x", "y"), {"x": x}, ["y"], init=[op("ConstantFill", [], "x", shape=[1, 6, 4], value=0.0)])


def reductions():
    x = f32(2, 3, 4)
    for kind in "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2".split():
        case(kind, op(kind, "x", "y", axes=[1]), {"x": x}, ["y"])
        case(kind + " all", op(kind, "x", "y", keepdims=0), {"x": x}, ["y"])
        case(kind + " drop", op(kind, "x", "y", axes=[1, 2], keepdims=0), {"x": x}, ["y"])
    for kind in "ReduceFrontSum ReduceFrontMean ReduceFrontMax ReduceBackSum ReduceBackMean ReduceBackMax".split():
        case(kind, op(kind, "x", "y"), {"x": x}, ["y"])
        case(kind + " 2", op(kind, "x", "y", num_reduce_dim=2), {"x": x}, ["y"])
    for kind in "ArgMax ArgMin".split():
        case(kind, op(kind, "x", "y"), {"x": x}, ["y"])
        case(kind + " drop", op(kind, "x", "y", axis=1, keepdims=0), {"x": x}, ["y"])
    case("TopK", op("TopK", "x", ["y", "i"], k=2), {"x": x}, ["y", "i"])


def nets():
    """A small image classifier as Caffe's translated ones are, and a residual one."""
    conv = lambda o, i, k: f32(o, i, k, k, low=-0.5, high=0.5)
    case("net: classic", [
        op("Conv", ["data", "c1w", "c1b"], "conv1", kernel=5, stride=2, pad=2, order="NCHW"), op("Relu", "conv1", "conv1"),
        op("LRN", "conv1", ["norm1", "_norm1_scale"], size=5, alpha=1e-4, beta=0.75, bias=1.0, order="NCHW"),
        op("MaxPool", "norm1", "pool1", kernel=3, stride=2, legacy_pad=3, order="NCHW"),
        op("Conv", ["pool1", "sqw", "sqb"], "squeeze", kernel=1), op("Relu", "squeeze", "squeeze"),
        op("Conv", ["squeeze", "e1w", "e1b"], "expand1", kernel=1), op("Relu", "expand1", "expand1"),
        op("Conv", ["squeeze", "e3w", "e3b"], "expand3", kernel=3, pad=1), op("Relu", "expand3", "expand3"),
        op("Concat", ["expand1", "expand3"], ["fire", "_fire_dims"], order="NCHW"),
        op("Dropout", "fire", ["fire_drop", "_mask"], ratio=0.5, is_test=1),
        op("FC", ["fire_drop", "fw", "fb"], "fc"), op("Softmax", "fc", "prob")],
        {"data": f32(2, 3, 17, 17)}, ["prob"],
        {"c1w": conv(8, 3, 5), "c1b": f32(8), "sqw": conv(4, 8, 1), "sqb": f32(4), "e1w": conv(6, 4, 1), "e1b": f32(6), "e3w": conv(6, 4, 3), "e3b": f32(6),
         "fw": f32(10, 12 * 16, low=-0.1, high=0.1), "fb": f32(10)})
    bn = lambda n: {n + "_s": f32(4), n + "_b": f32(4), n + "_m": f32(4), n + "_v": f32(4, low=0.3)}
    norm = lambda n: op("SpatialBN", [n, n + "_s", n + "_b", n + "_m", n + "_v"], n + "_bn", is_test=1, order="NCHW", epsilon=1e-5)
    case("net: residual", [
        op("Conv", ["data", "aw"], "a", kernel=3, pad=1), norm("a"), op("Relu", "a_bn", "a_bn"),
        op("Conv", ["a_bn", "bw"], "b", kernel=3, pad=1, group=4), norm("b"),
        op("Sum", ["b_bn", "a_bn"], "b_bn"), op("Relu", "b_bn", "b_bn"),
        op("ResizeNearest", "b_bn", "up", width_scale=2.0, height_scale=2.0), op("AveragePool", "up", "pool", global_pooling=1),
        op("FC", ["pool", "fw", "fb"], "logits"), op("Softmax", "logits", "prob")],
        {"data": f32(3, 3, 6, 6)}, ["prob", "logits"],
        {"aw": conv(4, 3, 3), "bw": conv(4, 1, 3), "fw": f32(5, 4), "fb": f32(5), **bn("a"), **bn("b")})


def triton():
    """The nets of Triton's own tests for its Caffe2 backend (qa/common/gen_qa_models.py of its early releases)."""
    a, b = random.integers(0, 50, (2, 16)), random.integers(1, 50, (2, 16))
    types = {"int32": caffe2_pb2.TensorProto.INT32, "int64": caffe2_pb2.TensorProto.INT64, "float32": caffe2_pb2.TensorProto.FLOAT}
    for given in ("int32", "float32"):
        for first in types:
            for second in types:
                case(f"triton: {given} {first} {second}", [
                    op("Add", ["INPUT0", "INPUT1"], "add"), op("Sub", ["INPUT0", "INPUT1"], "sub"),
                    op("Cast", "add", "OUTPUT0", to=types[first]), op("Cast", "sub", "OUTPUT1", to=types[second])],
                     {"INPUT0": a.astype(given), "INPUT1": b.astype(given)}, ["OUTPUT0", "OUTPUT1"])
    case("triton: copies", [op("Copy", "INPUT0", "OUTPUT0"), op("Copy", "INPUT1", "OUTPUT1")],
         {"INPUT0": f32(3, 5), "INPUT1": a.astype(np.int64)}, ["OUTPUT0", "OUTPUT1"])


for group in (triton, unary, pairs, matrices, windows, norms, shapes, reductions, nets):
    group()
out = Path(__file__).resolve().parent / "operators.json.gz"
text = "[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n"
out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
print(len(cases), "cases,", out.stat().st_size, "bytes")
