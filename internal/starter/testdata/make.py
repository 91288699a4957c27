"""Makes the models of the tests: the inputs and outputs that common exporters write, with few weights.

    pip install onnx numpy
    python make.py
"""

import os

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
NUMPY = {T.FLOAT: np.float32, T.FLOAT16: np.float16}
rng = np.random.default_rng(1)
node, value = helper.make_node, helper.make_tensor_value_info


def weights(name, shape, dtype=T.FLOAT, scale=1.0):
    return numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(NUMPY[dtype]), name)


def axes(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def save(name, nodes, inputs, outputs, weights=(), opset=13, ir=7, meta=None, external=False):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir, producer_name="make.py")
    for key, text in (meta or {}).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    how = {}
    if external:
        how = {"save_as_external_data": True, "all_tensors_to_one_file": True, "location": name + ".onnx_data", "size_threshold": 0}
        path = os.path.join(HERE, name + ".onnx_data")
        if os.path.exists(path):
            os.remove(path)
    onnx.save(model, os.path.join(HERE, name + ".onnx"), **how)


def classifier(name, port, shape, out, out_shape, classes=10, nhwc=False, dtype=T.FLOAT, softmax=False, conv=False, ir=7, opset=13, **more):
    nodes, at = [], port
    if dtype == T.UINT8:
        nodes, at, dtype_in, dtype = [node("Cast", [at], ["f32"], to=T.FLOAT)], "f32", T.UINT8, T.FLOAT
    else:
        dtype_in = dtype
    if nhwc:
        nodes, at = nodes + [node("Transpose", [at], ["t"], perm=[0, 3, 1, 2])], "t"
    channels = shape[3] if nhwc else shape[1]
    channels = channels if isinstance(channels, int) else 3
    list_ = [weights("w", (4, channels, 3, 3), dtype, 0.2)]
    nodes += [node("Conv", [at, "w"], ["c"], kernel_shape=[3, 3], strides=[4, 4]), node("Relu", ["c"], ["r"]), node("GlobalAveragePool", ["r"], ["p"])]
    if conv:
        nodes.append(node("Conv", ["p", "w2"], [out], kernel_shape=[1, 1]))
        list_.append(weights("w2", (classes, 4, 1, 1), dtype, 3))
    else:
        nodes += [node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "w2", "b"], ["logits" if softmax else out])]
        list_ += [weights("w2", (4, classes), dtype, 3), weights("b", (classes,), dtype, 0.1)]
        if softmax:
            nodes.append(node("Softmax", ["logits"], ["sm"]))
            nodes.append(node("Identity", ["sm"], [out]))
    inputs = [value(port, dtype_in, shape)]
    if ir == 3:  # weights are inputs too
        inputs += [value(t.name, t.data_type, list(t.dims)) for t in list_]
    save(name, nodes, inputs, [value(out, dtype, out_shape)], list_, ir=ir, opset=opset, **more)


def text(name, ids, tokens="seq", batch="batch", out="logits", classes=3, roles=("input_ids", "attention_mask", "token_type_ids"), hidden=False, dtype=T.FLOAT):
    """A bag of words: the sum of the embeddings of the ids that the mask keeps."""
    shape = [batch, tokens]
    names = dict(zip(("ids", "mask", "types"), roles))
    inputs = [value(n, ids, shape) for n in roles]
    list_ = [weights("emb", (512, 6), dtype), axes("last", 2), axes("middle", 1)]
    nodes, at = [node("Mod", [names["ids"], "size"], ["small"]), node("Gather", ["emb", "small"], ["e"])], "e"
    list_.append(numpy_helper.from_array(np.array(512, np.int64 if ids == T.INT64 else np.int32), "size"))
    for key, op in (("mask", "Mul"), ("types", "Add")):
        if key in names:
            nodes += [node("Cast", [names[key]], [key + "f"], to=dtype), node("Unsqueeze", [key + "f", "last"], [key + "u"]), node(op, [at, key + "u"], ["x" + key])]
            at = "x" + key
    if hidden:
        nodes.append(node("Identity", [at], [out]))
        return save(name, nodes, inputs, [value(out, dtype, [batch, tokens, 6])], list_)
    nodes += [node("ReduceSum", [at, "middle"], ["s"], keepdims=0), node("MatMul", ["s", "w"], [out])]
    return save(name, nodes, inputs, [value(out, dtype, [batch, classes])], list_ + [weights("w", (6, classes), dtype, 0.5)])


def detector(name, size, shape, meta=None, dtype=T.FLOAT, batch=1):
    """The same boxes for every image, a little moved by its brightness."""
    boxes = rng.random([1] + shape) * 0.3
    list_ = [numpy_helper.from_array(boxes.astype(NUMPY[dtype]), "k"), axes("a", 3)]
    nodes = [node("ReduceMean", ["images"], ["m"], axes=[1, 2, 3], keepdims=1), node("Squeeze", ["m", "a"], ["m1"]), node("Add", ["m1", "k"], ["output0"])]
    save(name, nodes, [value("images", dtype, [batch, 3, size, size])], [value("output0", dtype, [batch] + shape)], list_, meta=meta)


def pairs(name, boxes, scores, last):
    list_ = [weights("l", (1, 20, last)), numpy_helper.from_array(rng.random((1, 20, 4)).astype(np.float32), "b"), axes("a", 3)]
    nodes = [
        node("ReduceMean", ["pixel_values"], ["m"], axes=[1, 2, 3], keepdims=1), node("Squeeze", ["m", "a"], ["m1"]), node("Add", ["m1", "l"], [scores]),
        node("Mul", ["m1", "b"], ["bb"]), node("Sigmoid", ["bb"], [boxes]),
    ]
    save(name, nodes, [value("pixel_values", T.FLOAT, ["batch", 3, 64, 64])], [value(scores, T.FLOAT, ["batch", 20, last]), value(boxes, T.FLOAT, ["batch", 20, 4])], list_)


classifier("fixed_batch", "input", [1, 3, 64, 64], "output", [1, 10])
classifier("eight_rows", "x", [8, 3, 32, 32], "y", [8, 10])
classifier("external_data", "data", ["N", 3, 64, 64], "resnetv17_dense0_fwd", ["N", 10], external=True)
classifier("keras_nhwc", "input_1", ["unk__1", 64, 64, 3], "predictions", ["unk__1", 10], nhwc=True, softmax=True)
classifier("bytes_nhwc", "image", ["N", 64, 64, 3], "scores", ["N", 10], nhwc=True, dtype=T.UINT8)
classifier("hf_vision", "pixel_values", ["batch_size", "num_channels", "height", "width"], "logits", ["batch_size", 10])
classifier("half", "input", ["N", 3, 64, 64], "logits", ["N", 10], dtype=T.FLOAT16)
classifier("squeezenet", "data_0", [1, 3, 64, 64], "softmaxout_1", [1, 10, 1, 1], conv=True)
classifier("squeezenet_dynamic", "data_0", ["N", 3, 64, 64], "softmaxout_1", ["N", 10, 1, 1], conv=True)
classifier("ir3", "data", [1, 1, 32, 32], "prob", [1, 10], ir=3, opset=7, softmax=True)
classifier("no_shape", "data", ["N", 3, 64, 64], "prob", None)
classifier("mixed_batch", "data", ["N", 3, 64, 64], "prob", [1, 10])
text("bert", T.INT64)
text("bert_int32", T.INT32, batch=None, tokens=None, roles=("input_word_ids", "input_mask", "segment_ids"))
text("bert_static", T.INT32, tokens=32, batch=1)
text("distilbert", T.INT64, roles=("input_ids", "attention_mask"), classes=1)
text("no_mask", T.INT64, roles=("input_ids",), out="last_hidden_state", hidden=True)
text("half_embedding", T.INT64, out="last_hidden_state", hidden=True, dtype=T.FLOAT16)
text("sentence", T.INT64, out="sentence_embedding", classes=8)
text("token_classes", T.INT64, hidden=True)
detector("ultralytics", 64, [7, 84], meta={"task": "detect", "stride": "32", "imgsz": "[64, 64]", "names": "{0: 'person', 1: \"driver's seat\", 2: 'bus'}"})
detector("yolov5", 64, [252, 8], dtype=T.FLOAT16)
detector("end_to_end", 64, [300, 6])
detector("segment", 64, [39, 84], meta={"task": "segment", "stride": "32"})
pairs("detr", "pred_boxes", "logits", 4)
pairs("ssd", "boxes", "scores", 3)
save("tabular", [node("MatMul", ["X", "w"], ["Y"]), node("ReduceSum", ["Y", "a"], ["S"], keepdims=0)], [value("X", T.FLOAT, [None, 4])],
     [value("Y", T.FLOAT, [None, 2]), value("S", T.FLOAT, [None])], [weights("w", (4, 2)), axes("a", 1)])
save("integers", [node("Add", ["A", "B"], ["A_plus_B"])], [value("A", T.INT64, [2, 3]), value("B", T.INT64, [2, 3])], [value("A_plus_B", T.INT64, [2, 3])])
save("strings", [node("Identity", ["S"], ["T"])], [value("S", T.STRING, ["n", 1])], [value("T", T.STRING, ["n", 1])])
save("scalar", [node("Identity", ["S"], ["T"])], [value("S", T.FLOAT, [])], [value("T", T.FLOAT, [])])
save("sequence", [node("SequenceConstruct", ["A"], ["Q"])], [value("A", T.FLOAT, [1])], [helper.make_tensor_sequence_value_info("Q", T.FLOAT, None)])
# The runtime knows a size that the file leaves open, as it does of some recurrent models.
save("inferred", [node("Reshape", ["H", "shape"], ["HN"])], [value("H", T.FLOAT, [1, 1, 8])], [value("HN", T.FLOAT, [1, "n", 8])], [axes("shape", 1, 1, 8)])
