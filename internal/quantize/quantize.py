"""Converts an ONNX file to int8 or fp16 with the tools of onnxruntime.

Reads an order as a JSON object from the standard input, and writes {} or {"error": TEXT} to the standard output:

    model, output   paths
    to              "int8" or "fp16"
    reduce_range    weights of 7 bits, for processors without exact sums of 8 bit products
    calibration     for int8: the inputs of requests, each a list of arrays {name, dtype, shape, data in base64}.
                    Without them activations are quantised while the model executes.
    requests        for int8: inputs to compare the errors of matrix products with. Without a calibration their activations are
                    smoothed, too: see study().
    keep            how many of the products with the largest error stay in fp32.

The answer has "products", the number of matrix products that were quantised or kept, and "smoothed", how many read smoothed activations.
"""

import base64
import json
import logging
import os
import sys
import tempfile

# The operators that gain from 8 bits. Convolutions need a calibration: computed dynamically they are slower than in fp32.
# Tables of embeddings stay as they are: they are read, not computed with.
DYNAMIC = ["MatMul", "Gemm", "Attention", "LSTM"]
STATIC = ["MatMul", "Gemm", "Conv", "ConvTranspose"]
WEIGHTS_IN_FILE = 1 << 30  # Bytes beyond which weights go into a file of their own.
# How far the scales of smoothing follow the activations (1) or the weights (0). SmoothQuant has 0.5. 0.6 was closer for sentences of a
# kind that the scales were made from, and not farther for others; from 0.7 on others were far.
STRENGTH = 0.6
WORTHWHILE = 0.75  # The part of its error that a product may have left to be smoothed: most smoothings cost a multiplication.


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


class Rounded:
    """Numbers in 8 bits, with equal steps from low to high."""

    def __init__(self, numpy, x, low, high, steps):
        self.low, self.scale = low, numpy.maximum(high - low, 1e-30) / steps
        self.codes = numpy.round((x - low) / self.scale).astype(numpy.uint8)

    def values(self):
        """The numbers that the codes stand for."""
        return self.codes.astype(self.low.dtype) * self.scale.astype(self.low.dtype) + self.low


def rounded_weight(numpy, w):
    """A weight [inputs, outputs] in 8 bits, with a scale for each output."""
    most = numpy.abs(w).max(axis=0, keepdims=True)
    return Rounded(numpy, w, -most, most, 254)


def attribute(node, name):
    """The value of an integer attribute, 0 without it."""
    return next((a.i for a in node.attribute if a.name == name), 0)


class Product:
    """A matrix product with a weight: Y = X W, with W as [inputs, outputs]."""

    def __init__(self, node, weight, onnx):
        self.node, self.weight, self.onnx = node, weight, onnx
        self.turned = node.op_type == "Gemm" and attribute(node, "transB")
        self.plain, self.smooth = 0.0, 0.0  # The relative errors of 8 bits, without and with smoothing.

    @property
    def w(self):
        """A copy of the weight. The model has it already, so no product keeps one."""
        w = self.onnx.numpy_helper.to_array(self.weight)
        return w.T if self.turned else w


class Group:
    """The products that read one tensor. They share the scales of its channels."""

    def __init__(self, products):
        self.products = products
        self.most = None  # The largest magnitude of each channel.
        self.scales = None


def products_of(model, onnx):
    """The matrix products of the main graph whose weight is a matrix of numbers in fp32."""
    weights = {i.name: i for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT and len(i.dims) == 2}
    return [Product(n, weights[n.input[1]], onnx) for n in model.graph.node
            if n.op_type in ("MatMul", "Gemm") and n.input[1] in weights and not attribute(n, "transA")]


def grouped(products):
    """The products by the tensor that they read."""
    groups = {}
    for p in products:
        groups.setdefault(p.node.input[0], Group([])).products.append(p)
    return groups


def probing(order, model, names, numpy, onnx, onnxruntime):
    """Returns a function that executes the model for each request and yields the values of tensors by name."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    have = {o.name for o in probe.graph.output} | {i.name for i in probe.graph.input}
    for name in names:
        if name not in have:
            probe.graph.output.append(onnx.ValueInfoProto(name=name))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "probe.onnx")
        onnx.save(probe, path, save_as_external_data=True)
        del probe  # Its memory is that of the model once more.
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = [o.name for o in session.get_outputs()]

    def execute():
        for request in order["requests"]:
            inputs = arrays(request, numpy)
            yield dict(zip(outputs, session.run(outputs, inputs)), **inputs)

    return execute


def study(order, model, groups, numpy, onnx, onnxruntime):
    """Sets the scales of the groups, and the errors ||q(X) q(W) - X W|| / ||X W|| of the products, summed over the requests.

    The scales are those of SmoothQuant (Xiao et al., 2023): channel j of X is divided by max|X_j|^a / max|W_j|^(1-a), and row j of W
    multiplied by it. That changes nothing in fp32. In 8 bits it moves large channels of X, which leave few steps to the others, to W,
    whose outputs have scales of their own.
    """
    execute = probing(order, model, groups, numpy, onnx, onnxruntime)
    for values in execute():
        for name, g in groups.items():
            x = numpy.abs(values[name].reshape(-1, values[name].shape[-1])).max(axis=0, initial=0)
            g.most = x if g.most is None else numpy.maximum(g.most, x)
    for g in groups.values():
        w = numpy.max([numpy.abs(p.w).max(axis=1) for p in g.products], axis=0)
        g.scales = numpy.maximum(g.most, 1e-5) ** STRENGTH / numpy.maximum(w, 1e-5) ** (1 - STRENGTH)
        if not numpy.isfinite(g.scales).all():
            g.scales = numpy.ones_like(g.scales)
        for p in g.products:
            p.rounded = rounded_weight(numpy, p.w), rounded_weight(numpy, p.w * g.scales[:, None])
    for values in execute():
        for name, g in groups.items():
            x = values[name].reshape(-1, values[name].shape[-1])
            plain, smooth = (Rounded(numpy, v, v.min(initial=0), v.max(initial=0), 255).values() for v in (x, x / g.scales))
            for p in g.products:
                exact = x @ p.w
                norm = max(float(numpy.linalg.norm(exact)), 1e-30)
                p.plain += float(numpy.linalg.norm(plain @ p.rounded[0].values() - exact)) / norm
                p.smooth += float(numpy.linalg.norm(smooth @ p.rounded[1].values() - exact)) / norm


def used(graph):
    """Yields the names of the tensors that a graph reads, those of its subgraphs included: once for each use."""
    yield from (o.name for o in graph.output)
    for n in graph.node:
        yield from n.input
        for a in n.attribute:
            for g in [a.g, *a.graphs]:
                yield from used(g)


def folded(model, name, scales, group, numpy, onnx):
    """Divides the channels of a tensor in the layer normalisation that makes it, if no operator but those of the group reads it. It
    reports whether it did."""
    graph = model.graph
    norm = next((n for n in graph.node if n.op_type == "LayerNormalization" and n.output[0] == name), None)
    if norm is None or list(used(graph)).count(name) != len(group):
        return False
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer if i.name in norm.input[1:]}
    places = [k for k in range(1, len(norm.input)) if norm.input[k]]
    if any(norm.input[k] not in weights or weights[norm.input[k]].shape != scales.shape for k in places):
        return False
    for k in places:
        norm.input[k] = added(graph, f"{name}_smoothed_{k}", weights[norm.input[k]] / scales, numpy, onnx)
    return True


def added(graph, name, value, numpy, onnx):
    """Adds a weight and returns its name."""
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.ascontiguousarray(value, numpy.float32), name))
    return name


def smoothed(model, groups, kept, numpy, onnx):
    """Smooths the groups whose error falls enough by it. It returns the number of products that read a smoothed tensor."""
    graph, count = model.graph, 0
    for name, g in groups.items():
        rest = [p for p in g.products if p.node.name not in kept]
        if not sum(p.smooth for p in rest) < WORTHWHILE * sum(p.plain for p in rest):  # Also of NaN, and of no products.
            continue
        source = name
        if not folded(model, name, g.scales, rest, numpy, onnx):
            source = name + "_smoothed"
            factor = added(graph, name + "_smoothing", 1 / g.scales, numpy, onnx)
            first = min(i for i, n in enumerate(graph.node) if any(n.output[0] == p.node.output[0] for p in rest))
            graph.node.insert(first, onnx.helper.make_node("Mul", [name, factor], [source], name=source))
        for p in rest:
            w = p.w * g.scales[:, None]
            p.node.input[0] = source
            p.node.input[1] = added(graph, p.node.output[0] + "_smoothed_weight", w.T if p.turned else w, numpy, onnx)
        count += len(rest)
    without_unused(graph)
    return count


def without_unused(graph):
    """Removes the weights that no operator reads."""
    names = set(used(graph))
    for k in reversed(range(len(graph.initializer))):
        name = graph.initializer[k].name
        if name in names:
            continue
        del graph.initializer[k]
        for i in [i for i in graph.input if i.name == name]:  # Old files list weights as inputs, too.
            graph.input.remove(i)


def prepared(order, model, numpy, onnx, onnxruntime):
    """Smooths a model that is quantised dynamically. It returns the names of the operators that stay in fp32, and the answer.

    With fixed scales for the activations, smoothing made MiniLM no closer to fp32 and cost time."""
    for i, n in enumerate(model.graph.node):
        n.name = n.name or f"node_{i}"
    products = products_of(model, onnx)
    answer = {"products": len(products)}
    if not order.get("requests") or not products:
        return [], answer
    groups = grouped(products)
    try:
        study(order, model, groups, numpy, onnx, onnxruntime)
    except Exception as e:  # For example, operators of a library that is not in this environment.
        if order.get("keep"):
            raise
        logging.error("activations are not smoothed, because the model cannot be executed here: %s", e)
        return [], answer
    smooth = not order.get("calibration") and model.ir_version >= 4  # Before version 4, weights had to be inputs of the graph.
    worst = sorted(products, key=lambda p: min(p.plain, p.smooth) if smooth else p.plain, reverse=True)
    kept = [p.node.name for p in worst[: order.get("keep", 0)]]
    if smooth:
        answer["smoothed"] = smoothed(model, groups, kept, numpy, onnx)
    return kept + [name + "_MatMul" for name in kept], answer  # The quantiser renames a Gemm that it takes apart.


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
    exclude, answer = prepared(order, model, numpy, onnx, onnxruntime)
    common = {
        "weight_type": q.QuantType.QInt8,
        "per_channel": opset >= 13,  # DequantizeLinear has an axis from opset 13 on.
        "reduce_range": order["reduce_range"],
        "nodes_to_exclude": exclude,
        "op_types_to_quantize": sorted(kinds),
        "extra_options": {"MatMulConstBOnly": True},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path, save_as_external_data=True)
        del model  # The quantiser reads the file; of an object it would make a copy.
        common["use_external_data_format"] = sum(f.stat().st_size for f in os.scandir(folder)) > WEIGHTS_IN_FILE
        if static:
            q.quantize_static(path, order["output"], reader(order, numpy, q.CalibrationDataReader),
                              quant_format=q.QuantFormat.QDQ, activation_type=q.QuantType.QUInt8, **common)
        else:
            q.quantize_dynamic(path, order["output"], **common)
    return answer


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
