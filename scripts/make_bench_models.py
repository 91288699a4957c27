#!/usr/bin/env python3
"""Write the ONNX models, the labels and the pictures that the comparison with other servers runs.

Run by hand after a change; needs onnx, numpy (requirements-export.txt) and Pillow.
The files under bench/repository and bench/testdata/pictures are committed: what is
written is the same on every machine, but for the pictures, which depend on Pillow's
version.

The convolutional network has 2.6 million weights and a file of a few kilobytes: its
weights are formulas of constants, which a runtime works out once, when it loads the
model. Opset 17 and IR version 8, so that servers of some years ago read them too.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = ROOT / "bench/repository"
PICTURES = ROOT / "bench/testdata/pictures"
F32, F64, I64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
WIDTH, CLASSES = 16, 1000

# Output channels, kernel and stride of each convolution over an image of 3 x 224 x 224:
# 0.58 billion multiplications and additions per image.
LAYERS = [(32, 7, 2), (64, 3, 2), (64, 3, 1), (128, 3, 2), (128, 3, 1), (256, 3, 2), (256, 3, 1)]
# How far apart scores lie: the order of the best is no matter of rounding.
DENSE = 2
GOLDEN = 0.6180339887498949


class Graph:
    """Collects nodes and constants; every node has one output, named after it."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def node(self, name, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name, value, kind):
        self.constants[name] = numpy_helper.from_array(np.array(value, kind), name)
        return name

    def weight(self, name, shape, deviation, first):
        """Numbers between -sqrt(3) and sqrt(3) deviations, as evenly spread as random ones.

        Element i is the fraction of i * i times the golden ratio: only exactly rounded
        operations, so every machine has the same bits. first sets layers apart.
        """
        one, golden, half = (self.constant(*c, np.float64) for c in (("one", 1), ("golden", GOLDEN), ("half", 0.5)))
        start = self.constant(name + ".first", first, np.float64)
        end = self.constant(name + ".end", first + int(np.prod(shape)), np.float64)
        scale = self.constant(name + ".scale", deviation * 12**0.5, np.float64)
        i = self.node(name + ".i", "Range", start, end, one)
        square = self.node(name + ".square", "Mul", i, i)
        turned = self.node(name + ".turned", "Mul", square, golden)
        part = self.node(name + ".part", "Mod", turned, one, fmod=1)
        centred = self.node(name + ".centred", "Sub", part, half)
        scaled = self.node(name + ".scaled", "Mul", centred, scale)
        flat = self.node(name + ".flat", "Cast", scaled, to=F32)
        return self.node(name, "Reshape", flat, self.constant(name + ".shape", shape, np.int64))


def save(scenario, name, graph, inputs, outputs):
    """One model's 1/model.onnx; inputs and outputs are (name, type, dims)."""
    ports = [[helper.make_tensor_value_info(*p) for p in side] for side in (inputs, outputs)]
    made = helper.make_graph(graph.nodes, name, *ports, list(graph.constants.values()))
    model = helper.make_model(made, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    path = REPOSITORY / scenario / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def elementwise(scenario, name, op, other):
    """OUTPUT0 = INPUT0 op other; with None, op INPUT0 INPUT0."""
    g = Graph()
    by = "INPUT0" if other is None else g.constant("other", other, np.float32)
    g.node("OUTPUT0", op, "INPUT0", by)
    save(scenario, name, g, [("INPUT0", F32, ["batch", WIDTH])], [("OUTPUT0", F32, ["batch", WIDTH])])


def chain():
    """identity3: 2 * (x + 1) - 3."""
    elementwise("identity3", "identity3_add", "Add", 1)
    elementwise("identity3", "identity3_double", "Mul", 2)
    elementwise("identity3", "identity3_subtract", "Sub", 3)


def parallel():
    """parallel: 2 * x + x * x + (x + 10)."""
    elementwise("parallel", "parallel_double", "Mul", 2)
    elementwise("parallel", "parallel_square", "Mul", None)
    elementwise("parallel", "parallel_add", "Add", 10)
    g = Graph()
    g.node("OUTPUT0", "Sum", "DOUBLE", "SQUARE", "PLUS")
    inputs = [(n, F32, ["batch", WIDTH]) for n in ("DOUBLE", "SQUARE", "PLUS")]
    save("parallel", "parallel_join", g, inputs, [("OUTPUT0", F32, ["batch", WIDTH])])


def network():
    """image_cnn: seven convolutions, the mean over the picture, a dense layer."""
    g, x, channels, first = Graph(), "image", 3, 0
    for number, (out, kernel, stride) in enumerate(LAYERS):
        name, inside = f"conv{number}", channels * kernel * kernel
        w = g.weight(name + ".random", [out, channels, kernel, kernel], (2 / inside) ** 0.5, first)
        # A kernel that sums to 0 responds to contrast, not to brightness, so different images get different labels.
        w = g.node(name + ".weight", "Sub", w, g.node(name + ".mean", "ReduceMean", w, axes=[1, 2, 3]))
        b = g.weight(name + ".bias", [out], 0.1, first)
        pad = kernel // 2
        x = g.node(name, "Conv", x, w, b, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        x = g.node(name + ".relu", "Relu", x)
        channels, first = out, first + out * inside
    x = g.node("mean", "GlobalAveragePool", x)
    x = g.node("row", "Flatten", x, axis=1)
    w = g.weight("dense.weight", [channels, CLASSES], DENSE, first)
    g.node("scores", "Gemm", x, w, g.weight("dense.bias", [CLASSES], 0.1, first))
    save("image", "image_cnn", g, [("image", F32, ["batch", 3, 224, 224])], [("scores", F32, ["batch", CLASSES])])


def labels():
    path = REPOSITORY / "image/image_top_k/1/labels.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"class_{i:03d}\n" for i in range(CLASSES)))


def pictures():
    """Four scenes of 640 x 480 as a camera's JPEG files: slopes of colour, shapes and grain."""
    from PIL import Image, ImageDraw, ImageFilter

    PICTURES.mkdir(parents=True, exist_ok=True)
    for number in range(4):
        random = np.random.default_rng(number)
        y, x = np.mgrid[0:480, 0:640]
        slope = random.normal(size=(3, 2)) * 0.25
        base = np.stack([90 + 60 * random.random() + a * (x - 320) + b * (y - 240) for a, b in slope], axis=-1)
        picture = Image.fromarray(base.clip(0, 255).astype(np.uint8))
        draw = ImageDraw.Draw(picture)
        for _ in range(40):
            left, top, size = random.integers(-40, 640), random.integers(-40, 480), random.integers(10, 160)
            shape = draw.ellipse if random.random() < 0.5 else draw.rectangle
            shape([int(left), int(top), int(left + size), int(top + size * 0.8)], fill=tuple(random.integers(0, 256, 3).tolist()))
        soft = np.asarray(picture.filter(ImageFilter.GaussianBlur(1)), np.float32)
        grain = soft + random.normal(scale=5, size=soft.shape)
        Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(PICTURES / f"{number}.jpg", quality=85)


def main():
    chain()
    parallel()
    network()
    labels()
    if "--pictures" in sys.argv[1:]:
        pictures()


if __name__ == "__main__":
    main()
