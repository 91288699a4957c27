#!/usr/bin/env python3
"""Train the digits example's CNN and write everything that follows from it.

Run once, by hand, in a throw-away environment; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install torch==2.13.0 scikit-learn==1.9.1 pillow==13.0.0 onnx==1.23.2 onnxruntime==1.31.1
    .venv/bin/python scripts/train_digits.py

Data: the 1,797 digits (8 x 8 pixels) that scikit-learn carries, a quarter held
out. The network sees what the decode_resize step yields: each digit is drawn
at some size, stored as an image, read again, turned grey, resized to 16 x 16
by Pillow's bilinear filter and scaled to 0..1. Same seed and machine: same
weights. Writes digits_cnn/1/model.onnx, sample images, expected.json and README.md.
"""

import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/digits"
SEED = 7
SIDE = 16  # Width and height of the network's input.
COPIES = 10  # Drawings of each training digit.
EPOCHS = 14
LABELS = "zero one two three four five six seven eight nine".split()


def draw(digit, side, turn=0.0, shift=(0.0, 0.0)):
    """An 8 x 8 digit (0..16) as a grey image of side x side, white on black."""
    image = Image.fromarray(np.clip(digit * (255 / 16), 0, 255).astype(np.uint8))
    image = image.resize((side, side), Image.Resampling.BICUBIC)
    moved = (round(shift[0] * side), round(shift[1] * side))
    return image.rotate(turn, Image.Resampling.BILINEAR, translate=moved)


def stored(image, kind, **options):
    """The image as file bytes."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def network_input(data):
    """What decode_resize yields for file bytes: FP32 [1, SIDE, SIDE] in 0..1."""
    image = Image.open(io.BytesIO(data)).convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(image, np.float32)[None] * np.float32(1 / 255)


def augmented(digits, rng):
    """COPIES drawings of every digit: turned, shifted, of any size, half of them JPEG."""
    rows = []
    for digit in digits:
        for _ in range(COPIES):
            image = draw(digit, int(rng.integers(8, 129)), rng.uniform(-10, 10), rng.uniform(-0.06, 0.06, 2))
            if rng.random() < 0.5:
                rows.append(network_input(stored(image, "JPEG", quality=int(rng.integers(60, 96)))))
            else:
                rows.append(network_input(stored(image, "PNG")))
    return np.stack(rows)


class Net(nn.Module):
    """Three convolutions and two dense layers: 47,530 weights."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.dense1 = nn.Linear(32 * (SIDE // 4) ** 2, 64)
        self.dense2 = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv3(x)), 2)
        x = nn.functional.dropout(torch.relu(self.dense1(x.flatten(1))), 0.3, self.training)
        return self.dense2(x)


def train(x, y):
    """The trained network."""
    torch.manual_seed(SEED)
    net, order = Net(), np.random.default_rng(SEED)
    steps = EPOCHS * (len(x) // 64)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(EPOCHS):
        rows = order.permutation(len(x))
        for i in range(len(x) // 64):
            some = rows[i * 64 : (i + 1) * 64]
            loss = nn.functional.cross_entropy(net(x[some]), y[some], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
    return net.eval()


def to_onnx(net):
    """The network as ONNX, opset 17: image [batch, 1, SIDE, SIDE] -> scores [batch, 10]."""
    weights = [numpy_helper.from_array(v.detach().numpy(), k) for k, v in net.named_parameters()]
    node = helper.make_node

    def conv(n, x):
        kernel = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        name = f"conv{n}"
        return [
            node("Conv", [x, name + ".weight", name + ".bias"], [name], **kernel),
            node("Relu", [name], [name + "_relu"]),
        ]

    def pool(n):
        return [node("MaxPool", [f"conv{n}_relu"], [f"pool{n}"], kernel_shape=[2, 2], strides=[2, 2])]

    nodes = conv(1, "image") + conv(2, "conv1_relu") + pool(2) + conv(3, "pool2") + pool(3)
    nodes += [
        node("Flatten", ["pool3"], ["flat"], axis=1),
        node("Gemm", ["flat", "dense1.weight", "dense1.bias"], ["dense1"], transB=1),
        node("Relu", ["dense1"], ["dense1_relu"]),
        node("Gemm", ["dense1_relu", "dense2.weight", "dense2.bias"], ["scores"], transB=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, SIDE, SIDE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [image], [scores], weights)
    model = helper.make_model(
        graph, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()


class Scorer:
    """The finished ONNX model, as the example runs it."""

    def __init__(self, model):
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def shares(self, data):
        return softmax(self.session.run(None, {"image": network_input(data)[None]})[0][0].astype(np.float64))

    def accuracy(self, files, y):
        return float(np.mean([int(np.argmax(self.shares(f))) == t for f, t in zip(files, y)]))


def clearness(shares, label):
    """The smallest gap between the first four classes: a clear order bears another JPEG decoder."""
    top = np.sort(shares)[::-1][:4]
    return float(np.min(top[:-1] - top[1:])) if int(np.argmax(shares)) == label else -1.0


def samples(x, y, scorer):
    """Held-out digits in several kinds of file, each the clearest of its class: (name, bytes)."""
    kinds = [
        ("three.png", 3, 64, lambda im: stored(im, "PNG", optimize=True)),
        ("seven.png", 7, 8, lambda im: stored(im, "PNG", optimize=True)),
        ("five-rgb.png", 5, 40, lambda im: stored(im.convert("RGB"), "PNG", optimize=True)),
        ("two.jpg", 2, 96, lambda im: stored(im, "JPEG", quality=90)),
        ("eight.jpg", 8, 28, lambda im: stored(im, "JPEG", quality=85)),
        ("four-rgb.jpg", 4, 128, lambda im: stored(im.convert("RGB"), "JPEG", quality=85)),
    ]
    for name, label, side, encode in kinds:
        files = [encode(draw(digit, side)) for digit in x[y == label]]
        yield name, max(files, key=lambda f: clearness(scorer.shares(f), label))


def request(name, shares):
    """One entry of expected.json."""
    top = np.argsort(-shares, kind="stable")[:3]
    return {
        "name": name,
        "inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "file": name}],
        "outputs": [
            {"name": "labels", "datatype": "BYTES", "shape": [1, 3], "data": [LABELS[i] for i in top]},
            {"name": "indices", "datatype": "INT32", "shape": [1, 3], "data": [int(i) for i in top]},
            {"name": "probabilities", "datatype": "FP32", "shape": [1, 3], "data": [round(float(shares[i]), 7) for i in top]},
        ],
        "atol": 1e-4,
    }


CARD = """# digits: handwritten digits

JPEG or PNG bytes in, the three likeliest digits out:
`digits_decode` (native, decode and resize) -> `digits_cnn` (ONNX) -> `digits_top_k` (native, softmax and labels).

## Model card of digits_cnn

- Input `image` FP32 [1, {side}, {side}], grey, 0 (black) to 1 (white), a light digit on dark ground; output `scores` FP32 [10].
- Three 3 x 3 convolutions, two dense layers, {weights:,} weights, {size:,} bytes.
- Trained by `scripts/train_digits.py` (seed {seed}) on three quarters of the 1,797 digits that scikit-learn carries
  (8 x 8 pixels; from the UCI set "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, 1998, CC BY 4.0).
- Accuracy on the {held} digits held out, each stored as an image file, decoded and resized:

| stored as | accuracy |
|---|---|
{rows}

It has seen nothing but centred single digits: any other picture gets a digit too, and often a confident one.

The six pictures here are digits held out, `expected.json` holds their answers.

## second_look

An ensemble around `digits` with a condition: where the first answer has a probability below 0.9, the picture is decoded again with a
sharper filter. [Conditions in ensembles](../../../docs/ensembles.md) explains it; its answers are from `scripts/make_second_look.py`.
"""


def main():
    torch.set_num_threads(1)
    data = load_digits()
    x, held, y, truth = train_test_split(
        data.images, data.target, test_size=0.25, stratify=data.target, random_state=SEED
    )
    net = train(augmented(x, np.random.default_rng(SEED)), np.repeat(y, COPIES))
    model = to_onnx(net)
    (FOLDER / "digits_cnn/1").mkdir(parents=True, exist_ok=True)
    (FOLDER / "digits_cnn/1/model.onnx").write_bytes(model)

    scorer, rows = Scorer(model), []
    kinds = [("PNG", 8, {}), ("PNG", 64, {}), ("JPEG", 28, {"quality": 85}), ("JPEG", 64, {"quality": 85})]
    for kind, side, options in kinds:
        accuracy = scorer.accuracy([stored(draw(d, side), kind, **options) for d in held], truth)
        quality = f", quality {options['quality']}" if options else ""
        rows.append(f"| {kind}, {side} x {side}{quality} | {accuracy:.2%} |")
        print(rows[-1])
        if accuracy < 0.97:
            raise SystemExit("below 97 %: not written any further")

    requests = []
    for name, content in samples(held, truth, scorer):
        (FOLDER / name).write_bytes(content)
        requests.append(json.dumps(request(name, scorer.shares(content))))
    text = '{"ensemble": "digits", "requests": [\n' + ",\n".join(requests) + "\n]}\n"
    (FOLDER / "expected.json").write_text(text, encoding="utf-8")
    weights = sum(p.numel() for p in net.parameters())
    card = CARD.format(side=SIDE, weights=weights, size=len(model), seed=SEED, held=len(held), rows="\n".join(rows))
    (FOLDER / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
