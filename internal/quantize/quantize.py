"""Converts an ONNX file to int8 or fp16 with the tools of onnxruntime.

Reads an order as a JSON object from the standard input, and writes {} or {"error": TEXT} to the standard output:

    model, output   paths
    to              "int8" or "fp16"
    reduce_range    weights of 7 bits, for processors without exact sums of 8 bit products
    calibration     for int8: the inputs of requests, each a list of arrays {name, dtype, shape, data in base64}.
                    Without them activations are quantised while the model executes.
    keep, requests  how many of the products with the largest error stay in fp32, and inputs to find them with.

The answer has "products", the number of operators that were quantised or kept.
"""

import base64
import json
import logging
import os
import sys

# The operators that gain from 8 bits. Convolutions need a calibration: computed dynamically they are slower than in fp32.
# Tables of embeddings stay as they are: they are read, not computed with.
DYNAMIC = ["MatMul", "Gemm", "Attention", "LSTM"]
STATIC = ["MatMul", "Gemm", "Conv", "ConvTranspose"]
WEIGHTS_IN_FILE = 1 << 30  # Bytes beyond which weights go into a file of their own.


class Refused(Exception):
    """A model that cannot be converted, with the reason."""


def constants(model):
    """The names of the tensors that are weights."""
    names = {i.name for i in model.graph.initializer}
    return names | {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}


def operators(model, kinds):
    """The kinds of operators of the main graph that have a weight."""
    weights = constants(model)
    return {n.op_type for n in model.graph.node if n.op_type in kinds and any(i in weights for i in n.input)}


def simplified(order, onnx, onnxruntime):
    """The file with constants folded and batch normalisations merged, and with shapes: what the quantiser expects."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = order["output"] + ".simple"
    onnxruntime.InferenceSession(order["model"], options, providers=["CPUExecutionProvider"])
    model = onnx.load(options.optimized_model_filepath)
    os.remove(options.optimized_model_filepath)
    return onnx.shape_inference.infer_shapes(model)


def arrays(request, numpy):
    """The inputs of a request by name."""
    return {a["name"]: numpy.frombuffer(base64.b64decode(a["data"]), a["dtype"]).reshape(a["shape"]) for a in request}


def reader(order, numpy, base):
    """The calibration data."""

    class Requests(base):
        def __init__(self):
            self.left = iter(order["calibration"])

        def get_next(self):
            request = next(self.left, None)
            return None if request is None else arrays(request, numpy)

    return Requests()


def rounded(numpy, x, low, high, steps):
    """Numbers as a quantiser with equal steps from low to high has them."""
    scale = numpy.maximum(high - low, 1e-30) / steps
    return numpy.round((x - low) / scale) * scale + low


def sensitive(order, model, nodes, numpy, onnx, onnxruntime):
    """The matrix products, the one with the largest relative error first: ||q(A) q(W) - A W|| / ||A W|| over the requests."""
    weights = {i.name: i for i in model.graph.initializer}
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    have = {o.name for o in probe.graph.output}
    for name in {n.input[0] for n in nodes} - have - {i.name for i in probe.graph.input}:
        probe.graph.output.append(onnx.ValueInfoProto(name=name))
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    error = {n.name: 0.0 for n in nodes}
    for request in order["requests"]:
        inputs = arrays(request, numpy)
        values = dict(zip(names, session.run(names, inputs)), **inputs)
        for n in nodes:
            w = onnx.numpy_helper.to_array(weights[n.input[1]])
            if n.op_type == "Gemm" and any(a.name == "transB" and a.i for a in n.attribute):
                w = w.T
            a = values[n.input[0]].reshape(-1, w.shape[0])
            most = numpy.abs(w).max(axis=0, keepdims=True)
            exact = a @ w
            found = rounded(numpy, a, min(a.min(), 0), max(a.max(), 0), 255) @ rounded(numpy, w, -most, most, 254)
            error[n.name] += float(numpy.linalg.norm(found - exact) / max(numpy.linalg.norm(exact), 1e-30))
    return sorted(error, key=error.get, reverse=True)


def kept(order, model, numpy, onnx, onnxruntime):
    """The names of the operators that stay in fp32, and how many matrix products there are."""
    weights = {i.name for i in model.graph.initializer}
    for i, n in enumerate(model.graph.node):
        n.name = n.name or f"node_{i}"
    nodes = [n for n in model.graph.node if n.op_type in ("MatMul", "Gemm") and n.input[1] in weights
             and not any(a.name == "transA" and a.i for a in n.attribute)]
    if not order.get("keep") or not nodes:
        return [], len(nodes)
    worst = sensitive(order, model, nodes, numpy, onnx, onnxruntime)[:order["keep"]]
    return worst + [name + "_MatMul" for name in worst], len(nodes)  # The quantiser renames a Gemm that it takes apart.


def to_int8(order):
    import numpy
    import onnx
    import onnxruntime
    from onnxruntime import quantization as q

    model = onnx.load(order["model"])
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < 11:
        raise Refused(f"it has opset {opset}, and the quantiser needs 11: export it with a newer one")
    static = bool(order.get("calibration"))
    if static:
        model = simplified(order, onnx, onnxruntime)
    kinds = operators(model, STATIC if static else DYNAMIC)
    if not kinds:
        convolutions = operators(model, ["Conv", "ConvTranspose"])
        raise Refused("it has no convolution or matrix product with weights" if not convolutions
                      else "its convolutions need requests to calibrate with: --calibrate FILE")
    kinds.add("MatMul")  # The quantiser takes a Gemm apart first.
    exclude, products = kept(order, model, numpy, onnx, onnxruntime)
    common = {
        "weight_type": q.QuantType.QInt8,
        "per_channel": opset >= 13,  # DequantizeLinear has an axis from opset 13 on.
        "reduce_range": order["reduce_range"],
        "nodes_to_exclude": exclude,
        "op_types_to_quantize": sorted(kinds),
        "extra_options": {"MatMulConstBOnly": True},
        "use_external_data_format": model.ByteSize() > WEIGHTS_IN_FILE,
    }
    if static:
        q.quantize_static(model, order["output"], reader(order, numpy, q.CalibrationDataReader),
                          quant_format=q.QuantFormat.QDQ, activation_type=q.QuantType.QUInt8, **common)
    else:
        q.quantize_dynamic(model, order["output"], **common)
    return {"products": products}


def to_fp16(order):
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = onnx.load(order["model"])
    large = model.ByteSize() > WEIGHTS_IN_FILE
    onnx.save(convert_float_to_float16(model, keep_io_types=True), order["output"], save_as_external_data=large,
              location=os.path.basename(order["output"]) + ".data")
    return {}


def main():
    logging.basicConfig(level=logging.ERROR)
    order = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)  # Libraries print to the standard output.
    result = {}
    try:
        result = {"int8": to_int8, "fp16": to_fp16}[order["to"]](order)
    except Refused as e:
        result = {"error": str(e)}
    os.write(answer, json.dumps(result).encode())


main()
