"""Toy models in the place of the published weights: the names, types and shapes of the originals, and a few operators.

Each ONNX model is returned as well, so that a test computes the expected outputs with ONNX's own reference.
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def save(path, nodes, inputs, outputs, constants=()):
    """Writes a model, checked, and returns it."""
    graph = helper.make_graph([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "toy", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return model


def run(model, inputs):
    """The outputs of a model, by name."""
    names = [o.name for o in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(None, inputs)))


def text_detection(path):
    """EAST's names: scores and boxes of each cell of 4 by 4 pixels.

    Every eighth cell of a bright area, in rows and columns, has a score over one half; boxes are 800 by 400, upright, so
    that even a large and bright image has fewer than a batch holds. Brightness is summed up in whole numbers and in steps,
    so that every implementation finds the same boxes in the same order.
    """
    one = np.zeros((1, 1, 8, 8), np.float32)
    one[0, 0, 4, 4] = 1
    box = np.array([200, 400, 200, 400, 0], np.float32).reshape(1, 1, 1, 5)
    nodes = [
        ("ReduceSum", ["input_images:0", "three"], ["grey"], {"keepdims": 0}),
        ("Unsqueeze", ["grey", "one"], ["plane"], {}),
        ("AveragePool", ["plane"], ["bright"], {"kernel_shape": [32, 32], "strides": [32, 32]}),
        ("Mul", ["bright", "gain"], ["scaled"], {}),
        ("Floor", ["scaled"], ["steps"], {}),
        ("Sub", ["steps", "dark"], ["above"], {}),
        ("Mul", ["above", "gain"], ["over"], {}),
        ("ConvTranspose", ["over", "grid"], ["sparse"], {"strides": [8, 8], "kernel_shape": [8, 8]}),
        ("Greater", ["sparse", "zero"], ["hit"], {}),
        ("Where", ["hit", "sparse", "low"], ["logits"], {}),
        ("Transpose", ["logits"], ["rows"], {"perm": [0, 2, 3, 1]}),
        ("Sigmoid", ["rows"], ["feature_fusion/Conv_7/Sigmoid:0"], {}),
        ("Mul", ["rows", "zero"], ["nothing"], {}),
        ("Add", ["nothing", "box"], ["feature_fusion/concat_3:0"], {}),
    ]
    constants = [
        constant("one", np.array([1], np.int64)), constant("three", np.array([3], np.int64)), constant("gain", np.float32(0.125)),
        constant("dark", np.float32(22)), constant("grid", one), constant("zero", np.float32(0)),
        constant("low", np.float32(-9)), constant("box", box),
    ]  # fmt: skip
    outputs = [value("feature_fusion/Conv_7/Sigmoid:0", FLOAT, [None, None, None, 1]), value("feature_fusion/concat_3:0", FLOAT, [None, None, None, 5])]
    return save(path, nodes, [value("input_images:0", FLOAT, [None, None, None, 3])], outputs, constants)


def text_recognition(path, batch=None):
    """The names of the recognizer: 26 places of 37 classes, each place's class by the brightness of three columns."""
    classes = np.arange(37, dtype=np.float32)
    nodes = [
        ("ReduceMean", ["input.1"], ["columns"], {"axes": [2], "keepdims": 0}),
        ("Slice", ["columns", "from", "to", "axis"], ["first"], {}),
        ("Reshape", ["first", "threes"], ["grouped"], {}),
        ("ReduceMean", ["grouped"], ["places"], {"axes": [2], "keepdims": 1}),
        ("MatMul", ["places", "slope"], ["sloped"], {}),
        ("Add", ["sloped", "bias"], ["308"], {}),
    ]
    # The class nearest to 18 * (brightness + 1): -(k - 18 (m + 1))^2 without its square in m.
    constants = [
        constant("from", np.array([0], np.int64)), constant("to", np.array([78], np.int64)), constant("axis", np.array([2], np.int64)),
        constant("threes", np.array([0, 26, 3], np.int64)), constant("slope", (36 * classes).reshape(1, 37)), constant("bias", 36 * classes - classes**2),
    ]  # fmt: skip
    return save(path, nodes, [value("input.1", FLOAT, [batch, 1, 32, 100])], [value("308", FLOAT, [batch, 26, 37])], constants)


def classifier(path, name_in, shape_in, name_out, shape_out, channels_first=True):
    """A classifier of images: softmax of the channels' means through fixed weights."""
    classes = max(shape_out[1:])
    weights = np.random.default_rng(7).standard_normal((3, classes)).astype(np.float32)
    nodes = [
        ("ReduceMean", [name_in], ["mean"], {"axes": [2, 3] if channels_first else [1, 2], "keepdims": 0}),
        ("MatMul", ["mean", "weights"], ["logits"], {}),
        ("Softmax", ["logits"], ["odds"], {"axis": 1}),
        ("Reshape", ["odds", "shape"], [name_out], {}),
    ]
    shape = [-1 if d is None else d for d in shape_out]
    constants = [constant("weights", weights), constant("shape", np.array(shape, np.int64))]
    return save(path, nodes, [value(name_in, FLOAT, shape_in)], [value(name_out, FLOAT, shape_out)], constants)


def text_encoder(path):
    """The names of CLIP's text encoder: a row of a table for each id, and the mean of the rows."""
    table = np.random.default_rng(3).standard_normal((64, 768)).astype(np.float32)
    nodes = [
        ("Mod", ["input_ids", "size"], ["ids"], {}),
        ("Gather", ["table", "ids"], ["last_hidden_state"], {}),
        ("ReduceMean", ["last_hidden_state"], ["pooler_output"], {"axes": [1], "keepdims": 0}),
    ]
    outputs = [value("last_hidden_state", FLOAT, [None, None, 768]), value("pooler_output", FLOAT, [None, 768])]
    return save(path, nodes, [value("input_ids", INT32, [None, None])], outputs, [constant("table", table), constant("size", np.int32(64))])


def vae(path):
    """The names of the image decoder: three of the four channels, eight times as large, within -1 and 1."""
    nodes = [
        ("Slice", ["latent_sample", "from", "to", "axis"], ["three"], {}),
        ("Resize", ["three", "", "scales"], ["large"], {"mode": "nearest"}),
        ("Tanh", ["large"], ["sample"], {}),
    ]
    constants = [
        constant("from", np.array([0], np.int64)), constant("to", np.array([3], np.int64)), constant("axis", np.array([1], np.int64)),
        constant("scales", np.array([1, 1, 8, 8], np.float32)),
    ]  # fmt: skip
    return save(path, nodes, [value("latent_sample", FLOAT, [None, None, None, None])], [value("sample", FLOAT, [None, 3, None, None])], constants)


def vit(path):
    """The names of the exported transformer of images: a state for each patch of 16 by 16 and one for the whole."""
    widths = np.random.default_rng(5).standard_normal((3, 768)).astype(np.float32)
    nodes = [
        ("AveragePool", ["pixel_values"], ["patches"], {"kernel_shape": [16, 16], "strides": [16, 16]}),
        ("Reshape", ["patches", "flat"], ["listed"], {}),
        ("Transpose", ["listed"], ["states"], {"perm": [0, 2, 1]}),
        ("MatMul", ["states", "widths"], ["wide"], {}),
        ("ReduceMean", ["wide"], ["whole"], {"axes": [1], "keepdims": 1}),
        ("Concat", ["whole", "wide"], ["last_hidden_state"], {"axis": 1}),
        ("Squeeze", ["whole", "one"], ["1519"], {}),
    ]
    constants = [constant("flat", np.array([0, 3, -1], np.int64)), constant("widths", widths), constant("one", np.array([1], np.int64))]
    outputs = [value("last_hidden_state", FLOAT, [None, None, 768]), value("1519", FLOAT, [None, 768])]
    return save(path, nodes, [value("pixel_values", FLOAT, [None, 3, None, None])], outputs, constants)


def arithmetic(path, dtype, declared=None):
    """The sums and differences of the models called simple: of a type, declared as another."""
    declared = declared or dtype
    nodes = [
        ("Cast", ["INPUT0"], ["a"], {"to": dtype}),
        ("Cast", ["INPUT1"], ["b"], {"to": dtype}),
        ("Add", ["a", "b"], ["sum"], {}),
        ("Sub", ["a", "b"], ["difference"], {}),
        ("Cast", ["sum"], ["OUTPUT0"], {"to": declared}),
        ("Cast", ["difference"], ["OUTPUT1"], {"to": declared}),
    ]
    ports = lambda *names: [value(n, declared, [None, 16]) for n in names]  # noqa: E731
    return save(path, nodes, ports("INPUT0", "INPUT1"), ports("OUTPUT0", "OUTPUT1"))


def sequence(path, dynamic):
    """The sums of the models called sequence: the input, and one more at the start of a sequence."""
    nodes = [("Add", ["INPUT", "START"], ["started"], {})]
    names, extra, last = ["INPUT", "START", "READY"], [], "started"
    if dynamic:
        names.append("END")
        extra = [value("CORRID", TensorProto.UINT64, [None, 1])]
        nodes += [("Cast", ["CORRID"], ["id"], {"to": INT32}), ("Mul", ["END", "id"], ["ended"], {}), ("Add", ["started", "ended"], ["all"], {})]
        last = "all"
    nodes.append(("Mul", ["READY", last], ["OUTPUT"], {}))
    return save(path, nodes, [value(n, INT32, [None, 1]) for n in names] + extra, [value("OUTPUT", INT32, [None, 1])])
