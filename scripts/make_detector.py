#!/usr/bin/env python3
"""Make the detection example: a detector of coloured shapes, pictures and their answers.

Run once, by hand, in a throw-away environment; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install numpy==2.4.6 pillow==13.0.0 onnx==1.23.2 onnxruntime==1.31.1
    .venv/bin/python scripts/make_detector.py

The network is not trained but constructed. One convolution says how red, green or blue
a pixel is. For squares of six sizes at every second pixel, averages of that over the
square and over a frame around it are compared: a shape fills the one and leaves the
other. It answers in YOLO v8's form. Writes shapes_cnn/1/model.onnx, pictures and
expected.json, whose answers are numpy's and onnxruntime's.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageOps

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/detection"
SEED = 5
SIDE = 96  # Width and height of the network's input.
SIZES = [12, 16, 20, 24, 28, 32]
FRAME = 2  # Pixels of the frame on each side.
LABELS = ["red", "green", "blue"]
PLACES, SCORE, IOU = 8, 0.65, 0.3


def to_onnx():
    """The network as ONNX, opset 17: image [batch, 3, SIDE, SIDE] -> predictions [batch, 7, n]."""
    colour = np.full((3, 3, 1, 1), -0.75, np.float32)
    for k in range(3):
        colour[k, k] = 1.5
    values = {"colour": colour, "bias": np.full(3, -0.1, np.float32), "flat": np.array([0, 3, -1], np.int64), "zero": np.float32(0)}
    nodes = [
        helper.make_node("Conv", ["image", "colour", "bias"], ["tint"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["tint"], ["shade"]),
    ]
    boxes, scores = [], []
    for s in SIZES:
        wide = s + 2 * FRAME
        ring = wide**2 - s**2
        values[f"in{s}"], values[f"out{s}"] = np.float32(1 + s**2 / ring), np.float32(wide**2 / ring)
        nodes += [
            helper.make_node("AveragePool", ["shade"], [f"inner{s}"], kernel_shape=[s, s], strides=[2, 2]),
            helper.make_node("AveragePool", ["shade"], [f"outer{s}"], kernel_shape=[wide, wide], strides=[2, 2], pads=[FRAME] * 4, count_include_pad=1),
            helper.make_node("Mul", [f"inner{s}", f"in{s}"], [f"a{s}"]),
            helper.make_node("Mul", [f"outer{s}", f"out{s}"], [f"b{s}"]),
            helper.make_node("Sub", [f"a{s}", f"b{s}"], [f"c{s}"]),
            helper.make_node("Reshape", [f"c{s}", "flat"], [f"scores{s}"]),
        ]
        at = np.arange(0, SIDE - s + 1, 2) + s / 2
        y, x = np.meshgrid(at, at, indexing="ij")
        boxes.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, s), np.full(x.size, s)]))
        scores.append(f"scores{s}")
    values["anchors"] = np.concatenate(boxes, axis=1)[None].astype(np.float32)
    nodes += [
        helper.make_node("Concat", scores, ["scores"], axis=2),
        helper.make_node("ReduceMax", ["scores"], ["top"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["top", "zero"], ["nothing"]),
        helper.make_node("Add", ["anchors", "nothing"], ["boxes"]),
        helper.make_node("Concat", ["boxes", "scores"], ["predictions"], axis=1),
    ]
    n = values["anchors"].shape[2]
    graph = helper.make_graph(
        nodes, "shapes",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("predictions", TensorProto.FLOAT, ["batch", 7, n])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()],
    )
    model = helper.make_model(graph, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    print("anchors", n)
    return model.SerializeToString(deterministic=True)


def kinds_to_onnx():
    """What a crop shows, as ONNX: crop [batch, 3, 32, 32] -> scores [batch, 2], square and disc. A square fills its crop, a disc 0.785 of it."""
    colour = np.full((3, 3, 1, 1), -0.75, np.float32)
    for k in range(3):
        colour[k, k] = 1.5
    values = {
        "colour": colour, "bias": np.full(3, -0.1, np.float32), "from": np.array([12, 12], np.int64), "to": np.array([20, 20], np.int64),
        "axes": np.array([2, 3], np.int64), "least": np.float32(0.01), "steep": np.array([60, 0], np.float32), "limit": np.array([52.8, 0], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["crop", "colour", "bias"], ["tint"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["tint"], ["shades"]),
        helper.make_node("ReduceMax", ["shades"], ["shade"], axes=[1], keepdims=1),
        helper.make_node("Slice", ["shade", "from", "to", "axes"], ["middle"]),
        helper.make_node("ReduceMean", ["shade"], ["all"], axes=[2, 3], keepdims=0),
        helper.make_node("ReduceMean", ["middle"], ["centre"], axes=[2, 3], keepdims=0),
        helper.make_node("Max", ["centre", "least"], ["whole"]),
        helper.make_node("Div", ["all", "whole"], ["filled"]),
        helper.make_node("Mul", ["filled", "steep"], ["steeper"]),
        helper.make_node("Sub", ["steeper", "limit"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes, "kinds",
        [helper.make_tensor_value_info("crop", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()],
    )
    model = helper.make_model(graph, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def scene(rng, width, height, shapes):
    """A noisy grey picture with shapes: (colour, square or disc, x, y, size)."""
    image = Image.new("RGB", (width, height), (120, 120, 120))
    pen = ImageDraw.Draw(image)
    for colour, kind, x, y, size in shapes:
        fill = [40, 40, 40]
        fill[LABELS.index(colour)] = 225
        draw = pen.rectangle if kind == "square" else pen.ellipse
        draw([x, y, x + size - 1, y + size - 1], fill=tuple(fill))
    noisy = np.asarray(image, np.float64) + rng.normal(0, 8, (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def letterbox(image):
    """What decode_resize yields, and its geometry."""
    w, h = image.size
    r = min(SIDE / w, SIDE / h)
    nw, nh = min(max(round(w * r), 1), SIDE), min(max(round(h * r), 1), SIDE)
    x, y = (SIDE - nw) // 2, (SIDE - nh) // 2
    out = Image.new("RGB", (SIDE, SIDE), (114, 114, 114))
    out.paste(image.resize((nw, nh), Image.Resampling.BILINEAR), (x, y))
    pixels = np.asarray(out, np.float32).transpose(2, 0, 1) * np.float32(1 / 255)
    return pixels[None], (nw / w, nh / h, x, y, w, h)


def iou(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(w, 0) * max(h, 0)
    area = lambda v: (v[2] - v[0]) * (v[3] - v[1])
    return both / (area(a) + area(b) - both)


def answer(session, path):
    """The ensemble's outputs for a file."""
    pixels, (sx, sy, ox, oy, w, h) = letterbox(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    p = session.run(None, {"image": pixels})[0][0].astype(np.float64)
    boxes = np.stack([p[0] - p[2] / 2, p[1] - p[3] / 2, p[0] + p[2] / 2, p[1] + p[3] / 2], axis=1)
    best, cls = p[4:].max(axis=0), p[4:].argmax(axis=0)
    inside = (boxes[:, 2] > ox) & (boxes[:, 3] > oy) & (boxes[:, 0] < ox + w * sx) & (boxes[:, 1] < oy + h * sy)
    at = np.flatnonzero((best > SCORE) & inside)
    at = at[np.argsort(-best[at], kind="stable")]
    kept = []
    for i in at:
        rivals = [j for j in kept if iou(boxes[i], boxes[j]) > IOU]
        if any(best[j] - best[i] < 1e-5 for j in rivals):
            raise SystemExit(f"{path.name}: two boxes are as good: take another seed")
        if not rivals:
            kept.append(i)
    kept = kept[:PLACES]
    out = np.clip((boxes[kept] - [ox, oy, ox, oy]) / [sx, sy, sx, sy], 0, [w, h, w, h]) if kept else np.zeros((0, 4))
    print(path.name, [(LABELS[cls[i]], round(best[i], 3)) for i in kept])
    return out, best[kept], cls[kept]


def request(name, found):
    """One entry of expected.json."""
    boxes, scores, cls = found
    n, rest = len(cls), PLACES - len(cls)
    tensor = lambda name, kind, shape, data: {"name": name, "datatype": kind, "shape": [1, *shape], "data": data}
    return {
        "name": name,
        "inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "file": name}],
        "outputs": [
            tensor("boxes", "FP32", [PLACES, 4], [round(float(v), 4) for v in boxes.ravel()] + [0.0] * 4 * rest),
            tensor("scores", "FP32", [PLACES], [round(float(v), 6) for v in scores] + [0.0] * rest),
            tensor("classes", "INT32", [PLACES], [int(c) for c in cls] + [-1] * rest),
            tensor("labels", "BYTES", [PLACES], [LABELS[c] for c in cls] + [""] * rest),
            tensor("count", "INT32", [1], [n]),
        ],
        "atol": 1e-3,
    }


def main():
    rng = np.random.default_rng(SEED)
    model = to_onnx()
    (FOLDER / "shapes_cnn/1").mkdir(parents=True, exist_ok=True)
    (FOLDER / "shapes_cnn/1/model.onnx").write_bytes(model)
    (FOLDER / "kinds_cnn/1").mkdir(parents=True, exist_ok=True)
    (FOLDER / "kinds_cnn/1/model.onnx").write_bytes(kinds_to_onnx())
    print(len(model), "bytes")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    tall = Image.Exif()
    tall[0x0112] = 6  # Shown turned by a quarter.
    pictures = [
        ("three.png", (192, 144, [("red", "square", 20, 30, 40), ("green", "disc", 90, 20, 48), ("blue", "square", 120, 84, 56)]), {}),
        ("five.jpg", (384, 288, [("red", "disc", 30, 20, 80), ("red", "square", 150, 30, 64), ("blue", "disc", 270, 40, 96), ("green", "square", 60, 160, 112), ("blue", "square", 250, 180, 72)]), {"quality": 90}),
        ("turned.jpg", (200, 300, [("green", "square", 30, 40, 64), ("blue", "disc", 90, 180, 80)]), {"quality": 92, "exif": tall}),
        ("edge.png", (96, 64, [("red", "square", -6, 20, 24), ("green", "square", 60, 46, 28)]), {}),
        ("empty.png", (64, 96, []), {}),
    ]
    requests = []
    for name, what, options in pictures:
        scene(rng, *what).save(FOLDER / name, **options)
        requests.append(json.dumps(request(name, answer(session, FOLDER / name))))
    (FOLDER / "expected.json").write_text('{"ensemble": "detection", "requests": [\n' + ",\n".join(requests) + "\n]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
