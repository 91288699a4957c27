#!/usr/bin/env python3
"""Make the example of a text reader: a detector, a direction classifier and a recogniser, pictures and their answers.

Run once, by hand, in a throw-away environment; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install numpy==2.4.6 pillow==13.0.0 onnx==1.23.2 onnxruntime==1.32.0 rapidocr_onnxruntime==1.4.4
    .venv/bin/python scripts/train_ocr.py

The detector is not trained but constructed: text is where neighbouring pixels differ, and gaps between letters are closed.
The other two look at windows of 52 columns of a line of 48 pixels, averaged over 4 x 4 pixels, with one hidden layer,
which is trained in numpy on rendered lines in one or two minutes. Writes the networks, characters.txt, pictures and
expected.json, whose answers are those of RapidOCR, a public reader, with these networks.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/ocr"
SEED = 7
CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:/"
CLASSES = len(CHARACTERS) + 2  # The blank is first, a space last.
HEIGHT, CELL, WINDOW = 48, 4, 13
ROWS = HEIGHT // CELL
HIDDEN, HIDDEN_DIRECTION = 192, 48
UNCLIP = 0.35
THRESHOLD, GAIN = 0.55, 12  # of the detector's range of brightness
LINES, EPOCHS = 8000, 12


def detector():
    """x [batch, 3, H, W] -> map [batch, 1, H / 4, W / 4]: each element is for 4 x 4 pixels, of which it sees a grid at every second pixel."""
    pool = lambda a, b, h, w, **more: helper.make_node("MaxPool", [a], [b], kernel_shape=[h, w], **more)
    near = {"pads": [1, 7] * 2}
    nodes = [
        helper.make_node("Conv", ["x", "gray"], ["both"], kernel_shape=[1, 1], strides=[2, 2]),  # brightness and darkness
        pool("both", "most", 3, 3, strides=[2, 2], pads=[0, 0, 1, 1]),
        helper.make_node("Conv", ["most", "sum"], ["range"], kernel_shape=[1, 1]),
        pool("range", "grown", 3, 15, **near), helper.make_node("Neg", ["grown"], ["a"]), pool("a", "b", 3, 15, **near),
        helper.make_node("Conv", ["b", "gain", "bias"], ["scaled"], kernel_shape=[1, 1]),
        helper.make_node("Sigmoid", ["scaled"], ["map"]),
    ]  # fmt: skip
    gray = np.full((2, 3, 1, 1), 1 / 3, np.float32)
    gray[1] *= -1
    values = {
        "gray": gray, "sum": np.ones((1, 2, 1, 1), np.float32),
        "gain": np.full((1, 1, 1, 1), -GAIN, np.float32), "bias": np.array([-GAIN * THRESHOLD], np.float32),
    }  # fmt: skip
    save("ocr_detector", nodes, values, ["batch", 3, "height", "width"], "map", ["batch", 1, "map_height", "map_width"])


def columns(w1, b1, w2, b2):
    """The trunk of both trained networks: x -> scores of each column [batch, classes, 1, T], and its values."""
    values = {"gray": np.full((1, 3, 1, 1), 1 / 3, np.float32), "w1": w1.T.reshape(-1, 1, ROWS, WINDOW), "b1": b1, "w2": np.ascontiguousarray(w2.T[:, :, None, None]), "b2": b2}
    nodes = [
        helper.make_node("Conv", ["x", "gray"], ["g"], kernel_shape=[1, 1]),
        helper.make_node("AveragePool", ["g"], ["cells"], kernel_shape=[CELL] * 2, strides=[CELL] * 2),
        helper.make_node("Conv", ["cells", "w1", "b1"], ["h"], kernel_shape=[ROWS, WINDOW], pads=[0, WINDOW // 2] * 2),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"], ["columns"], kernel_shape=[1, 1]),
    ]
    return nodes, values


def recogniser(weights):
    nodes, values = columns(*weights)
    values["axis"] = np.array([2], np.int64)
    nodes += [
        helper.make_node("Squeeze", ["columns", "axis"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Softmax", ["turned"], ["scores"], axis=2),
    ]
    save("ocr_recogniser", nodes, values, ["batch", 3, HEIGHT, "width"], "scores", ["batch", "length", CLASSES])


def direction(weights):
    nodes, values = columns(*weights)
    values |= {"axes": np.array([2, 3], np.int64), "gain": np.float32(12)}
    nodes += [
        helper.make_node("ReduceMean", ["columns", "axes"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "gain"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["scores"], axis=1),
    ]
    save("ocr_direction", nodes, values, ["batch", 3, HEIGHT, "width"], "scores", ["batch", 2])


def save(name, nodes, values, shape, output, to):
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()]
    tensor = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
    graph = helper.make_graph(nodes, name, [tensor("x", shape)], [tensor(output, to)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, producer_name="train_ocr.py")
    onnx.checker.check_model(model, full_check=True)
    path = FOLDER / name / "1/model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    print(path.relative_to(FOLDER), path.stat().st_size, "bytes")


def line(rng, text):
    """Renders a line as a reader crops it, 48 pixels high, -1 to 1. Returns it with the spans of its characters in pixels."""
    font = ImageFont.load_default(int(rng.integers(20, 64)))
    ends = [font.getlength(text[:i]) for i in range(len(text) + 1)]
    left, top, right, bottom = font.getbbox(text)
    back, ink = (rng.integers(190, 256), rng.integers(0, 90)) if rng.uniform() < 0.7 else (rng.integers(0, 90), rng.integers(190, 256))
    margin = (bottom - top) * np.concatenate([rng.uniform(0.05, 1, 2), rng.uniform(0.05, 0.45, 2)])  # left, right, above, below
    w, h = int(right - left + margin[0] + margin[1]), int(bottom - top + margin[2] + margin[3])
    img = Image.new("L", (w, h), int(back))
    ImageDraw.Draw(img).text((margin[0] - left, margin[2] - top), text, font=font, fill=int(ink))
    scale = HEIGHT / h
    img = np.array(img.resize((max(int(np.ceil(w * scale)), 1), HEIGHT), Image.Resampling.BILINEAR), np.float32)
    img += rng.normal(0, rng.uniform(0, 6), img.shape)
    spans = [((margin[0] - left + a) * scale, (margin[0] - left + b) * scale) for a, b in zip(ends, ends[1:])]
    return np.clip(img, 0, 255) / 127.5 - 1, spans


def sample_text(rng):
    words = []
    for _ in range(rng.integers(1, 4)):
        words.append("".join(rng.choice(list(CHARACTERS), p=LIKELY) for _ in range(rng.integers(1, 9))))
    return " ".join(words)


LIKELY = np.array([3.0] * 26 + [3.0] * 10 + [2.0, 2.0, 1.5, 1.5])
LIKELY /= LIKELY.sum()


def windows(img):
    """Returns the windows around each column of cells, [T, ROWS * WINDOW], with some padding after the line."""
    total = img.shape[1] + 24
    img = np.pad(img, ((0, 0), (0, total - img.shape[1])))
    cells = img[:, : total // CELL * CELL].reshape(ROWS, CELL, -1, CELL).mean((1, 3))
    cells = np.pad(cells, ((0, 0), (WINDOW // 2, WINDOW // 2)))
    view = np.lib.stride_tricks.sliding_window_view(cells, WINDOW, axis=1)
    return view.transpose(1, 0, 2).reshape(-1, ROWS * WINDOW).astype(np.float32)


def labels(text, spans, n):
    """Returns the class of each column."""
    out = np.zeros(n, np.int64)
    at = np.arange(n) * CELL + (CELL - 1) / 2
    for c, (a, b) in zip(text, spans):
        k = CLASSES - 1 if c == " " else CHARACTERS.index(c) + 1
        near = np.abs(at - (a + b) / 2) / max(b - a, 1)
        out[near < 0.3] = k
        out[np.argmin(near)] = k
    return out


def data(rng, n):
    xs, ys, ds = [], [], []
    for _ in range(n):
        text = sample_text(rng)
        img, spans = line(rng, text)
        xs.append(windows(img))
        ys.append(labels(text, spans, len(xs[-1])))
        ds.append((xs[-1], windows(img[::-1, ::-1])))
    return np.concatenate(xs), np.concatenate(ys), ds


def train(rng, x, y, hidden, classes, epochs):
    """Trains one hidden layer with Adam on the cross entropy."""
    p = [rng.normal(0, (2 / x.shape[1]) ** 0.5, (x.shape[1], hidden)), np.zeros(hidden), rng.normal(0, hidden**-0.5, (hidden, classes)), np.zeros(classes)]
    p = [a.astype(np.float32) for a in p]
    m, v, t, batch = [np.zeros_like(a) for a in p], [np.zeros_like(a) for a in p], 0, 512
    steps = epochs * (len(x) // batch)
    for epoch in range(epochs):
        order, loss = rng.permutation(len(x)), 0.0
        for i in range(0, len(x) - batch + 1, batch):
            a, k = x[order[i : i + batch]], y[order[i : i + batch]]
            h = np.maximum(a @ p[0] + p[1], 0)
            s = h @ p[2] + p[3]
            s = np.exp(s - s.max(1, keepdims=True))
            s /= s.sum(1, keepdims=True)
            loss -= np.log(s[np.arange(batch), k] + 1e-9).mean()
            s[np.arange(batch), k] -= 1
            s /= batch
            g = s @ p[2].T * (h > 0)
            grads = [a.T @ g, g.sum(0), h.T @ s, s.sum(0)]
            t += 1
            rate = 0.004 * (1 - t / (steps + 1))
            for j, d in enumerate(grads):
                m[j] = 0.9 * m[j] + 0.1 * d
                v[j] = 0.999 * v[j] + 0.001 * d * d
                p[j] -= (rate / (1 - 0.9**t) * m[j] / (np.sqrt(v[j] / (1 - 0.999**t)) + 1e-8)).astype(np.float32)
        print(f"epoch {epoch + 1}: loss {loss / (len(x) // batch):.4f}", flush=True)
    return p


def pictures():
    """The pictures of the example, with the texts that they show from top to bottom."""
    def page(w, h, lines, back=(250, 248, 240), ink=(25, 25, 35)):
        img = Image.new("RGB", (w, h), back)
        for x, y, size, text in lines:
            ImageDraw.Draw(img).text((x, y), text, font=ImageFont.load_default(size), fill=ink)
        return img

    receipt = [(30, 20, 30, "CORNER SHOP"), (30, 74, 24, "BREAD"), (250, 74, 24, "2.40"), (30, 116, 24, "MILK"), (250, 116, 24, "1.15"), (30, 172, 28, "TOTAL 3.55")]
    label = [(24, 24, 34, "FRAGILE"), (24, 84, 26, "BATCH 16-B")]
    yield "receipt.png", page(360, 230, receipt), [t for *_, t in receipt]
    yield "sign.png", page(420, 240, [(40, 50, 34, "GATE 27"), (40, 140, 28, "DELAYED")], (20, 40, 110), (250, 250, 250)), ["GATE 27", "DELAYED"]
    yield "turned.png", page(320, 150, label).rotate(180), ["BATCH 16-B", "FRAGILE"]
    tilted = page(380, 200, [(50, 70, 36, "PLATFORM 4")]).rotate(4, Image.Resampling.BICUBIC, fillcolor=(250, 248, 240))
    yield "tilted.jpg", tilted, ["PLATFORM 4"]
    yield "empty.png", page(200, 120, []), []


def answers():
    """Writes the pictures and expected.json: what RapidOCR reads with the networks."""
    import rapidocr_onnxruntime

    file = lambda name: str(FOLDER / name / "1/model.onnx")
    reader = rapidocr_onnxruntime.RapidOCR(
        det_model_path=file("ocr_detector"), cls_model_path=file("ocr_direction"), rec_model_path=file("ocr_recogniser"),
        rec_keys_path=str(FOLDER / "ocr_text/characters.txt"), det_unclip_ratio=UNCLIP,
    )  # fmt: skip
    requests, right = [], True
    for name, img, texts in pictures():
        img.save(FOLDER / name, quality=92)
        found, _ = reader((FOLDER / name).read_bytes(), unclip_ratio=UNCLIP, box_thresh=0.5)
        found = found or []
        got, n = [t for _, t, _ in found], len(found)
        right &= got == texts
        print(name, got, [round(s, 3) for *_, s in found], "" if got == texts else f"EXPECTED {texts}")
        tensor = lambda name, dtype, shape, data: {"name": name, "datatype": dtype, "shape": [1, *shape], "data": data}
        requests.append({
            "name": name, "inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "file": name}],
            "outputs": [
                tensor("TEXT", "BYTES", [n], got), tensor("SCORE", "FP32", [n], [round(float(s), 6) for *_, s in found]),
                tensor("BOXES", "FP32", [n, 4, 2], [float(v) for b, *_ in found for p in b for v in p]), tensor("COUNT", "INT32", [1], [n]),
            ],
            "atol": 0.001,
        })  # fmt: skip
    rows = ",\n".join(json.dumps(r) for r in requests)
    (FOLDER / "expected.json").write_text('{"ensemble": "ocr", "requests": [\n' + rows + "\n]}\n")
    return right


def main():
    if "--answers" not in sys.argv:
        rng = np.random.default_rng(SEED)
        detector()
        x, y, sides = data(rng, LINES)
        print(len(x), "columns")
        (FOLDER / "ocr_text").mkdir(exist_ok=True)
        (FOLDER / "ocr_text/characters.txt").write_text("\n".join(CHARACTERS) + "\n")
        recogniser(train(rng, x, y, HIDDEN, CLASSES, EPOCHS))
        up, down = (np.concatenate([s[i] for s in sides[: LINES // 3]]) for i in range(2))
        both = np.concatenate([up, down]), np.repeat([0, 1], [len(up), len(down)])
        direction(train(rng, *both, HIDDEN_DIRECTION, 2, EPOCHS))
    return 0 if answers() else 1


if __name__ == "__main__":
    sys.exit(main())
