#!/usr/bin/env python3
"""Write the requests to the ensemble second_look into expected.json of the digits example.

Run once, by hand, after scripts/train_digits.py; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install numpy==2.4.6 pillow==13.0.0 onnxruntime==1.32.0
    .venv/bin/python scripts/make_second_look.py

The answers are those of Pillow and ONNX Runtime: bilinear for the first look, lanczos for the second.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/digits"
SIDE, K, SURE = 16, 3, 0.9
LABELS = (FOLDER / "digits_top_k/1/labels.txt").read_text(encoding="utf-8").split()


class Reader:
    """The network of the example, as its steps use it."""

    def __init__(self):
        self.session = onnxruntime.InferenceSession(FOLDER / "digits_cnn/1/model.onnx", providers=["CPUExecutionProvider"])

    def best(self, name, resample):
        """The K likeliest digits of a picture and their probabilities."""
        image = Image.open(FOLDER / name).convert("L").resize((SIDE, SIDE), resample)
        pixels = np.asarray(image, np.float32)[None, None] * np.float32(1 / 255)
        scores = self.session.run(None, {"image": pixels})[0][0].astype(np.float64)
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        top = np.argsort(-shares, kind="stable")[:K]
        return [LABELS[i] for i in top], [round(float(shares[i]), 7) for i in top]


def request(names, reader):
    """One entry of expected.json: a row per picture."""
    label, first, second = [], [], []
    for name in names:
        labels, shares = reader.best(name, Image.Resampling.BILINEAR)
        again = [0.0] * K
        if shares[0] < SURE:
            labels, again = reader.best(name, Image.Resampling.LANCZOS)
        label, first, second = label + labels, first + shares, second + again
    shape = [len(names), K]
    return {
        "name": "second look at " + names[0],
        "ensemble": "second_look",
        "inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [len(names), 1], "file": names[0]}],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": shape, "data": label},
            {"name": "first", "datatype": "FP32", "shape": shape, "data": first},
            {"name": "second", "datatype": "FP32", "shape": shape, "data": second},
        ],
        "atol": 1e-4,
    }


def main():
    reader = Reader()
    path = FOLDER / "expected.json"
    lines = [line.rstrip(",") for line in path.read_text(encoding="utf-8").strip().split("\n")[1:-1] if '"second_look"' not in line]
    lines += [json.dumps(request([name], reader)) for name in ["two.jpg", "eight.jpg", "three.png", "five-rgb.png"]]
    path.write_text('{"ensemble": "digits", "requests": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


main()
