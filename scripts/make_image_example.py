#!/usr/bin/env python3
"""Make the image example: photographs of a page, boxes on it, and the answers.

Run once, by hand, in a throw-away environment, after train_digits.py, whose network
it uses; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install scikit-learn==1.9.1 pillow==13.0.0 onnxruntime==1.31.1 numpy==2.4.6
    .venv/bin/python scripts/make_image_example.py

A page has digits of scikit-learn that the network has not seen, enlarged, at places
where no two overlap, and is stored as a JPEG file, some turned with an EXIF note of
it. Boxes are where the digits are. The answers are computed with Pillow, numpy and
ONNX Runtime. Writes image_cnn/1/model.onnx (a copy), pages and expected.json.
"""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

ENSEMBLES = Path(__file__).resolve().parent.parent / "examples/ensembles"
FOLDER = ENSEMBLES / "image"
SEED = 7  # That of train_digits.py: the same digits are held out.
SIDE = 16
LABELS = "zero one two three four five six seven eight nine".split()
# name, width and height as shown, EXIF orientation, kind and options of the file.
PAGES = [
    ("page", 320, 240, 1, "JPEG", {"quality": 90}),
    ("turned", 300, 200, 6, "JPEG", {"quality": 85}),
    ("progressive", 256, 256, 3, "JPEG", {"quality": 80, "progressive": True}),
    ("large", 900, 500, 8, "JPEG", {"quality": 70}),
    ("lossless", 280, 160, 1, "WEBP", {"lossless": True}),
]
# Transforms that store an image so that the EXIF orientation in the key undoes them.
STORED = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}


def page(rng, width, height, digits, truth):
    """A page of white digits on black, their boxes and what they are."""
    image, boxes, classes = Image.new("RGB", (width, height)), [], []
    cell = height // 3
    for row in range(3):
        for column in range(width // cell):
            if rng.random() < 0.45:
                continue
            i, side = rng.integers(len(digits)), int(rng.integers(cell * 6 // 10, cell))
            left = column * cell + int(rng.integers(0, cell - side + 1))
            top = row * cell + int(rng.integers(0, cell - side + 1))
            digit = Image.fromarray(np.clip(digits[i] * (255 / 16), 0, 255).astype(np.uint8))
            image.paste(digit.resize((side, side), Image.Resampling.BICUBIC).convert("RGB"), (left, top))
            boxes.append([left, top, left + side, top + side])
            classes.append(int(truth[i]))
    return image, boxes, classes


def stored(image, orientation, kind, options):
    exif = Image.Exif()
    exif[0x112] = orientation
    out = io.BytesIO()
    if orientation != 1:
        image = image.transpose(STORED[orientation])
    image.save(out, kind, exif=exif, **options)
    return out.getvalue()


def crops(data, boxes):
    """What image_crops yields: FP32 [boxes, 1, SIDE, SIDE] in 0..1."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("L")
    rows = [np.asarray(image.crop(box).resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32) for box in boxes]
    return np.stack(rows)[:, None] * np.float32(1 / 255)


def request(name, file, boxes, shares):
    top = np.argsort(-shares, axis=1, kind="stable")[:, :2]
    values = np.take_along_axis(shares, top, 1)
    shape = [len(boxes), 2]
    return {
        "name": name,
        "inputs": [
            {"name": "IMAGE", "datatype": "BYTES", "shape": [1], "file": file},
            {"name": "BOXES", "datatype": "FP32", "shape": [len(boxes), 4], "data": np.ravel(boxes).tolist()},
        ],
        "outputs": [
            {"name": "labels", "datatype": "BYTES", "shape": shape, "data": [LABELS[i] for i in top.ravel()]},
            {"name": "probabilities", "datatype": "FP32", "shape": shape, "data": [round(float(v), 7) for v in values.ravel()]},
        ],
        "atol": 1e-4,
    }


def main():
    data = load_digits()
    _, held, _, truth = train_test_split(data.images, data.target, test_size=0.25, stratify=data.target, random_state=SEED)
    network = ENSEMBLES / "digits/digits_cnn/1/model.onnx"
    (FOLDER / "image_cnn/1").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(network, FOLDER / "image_cnn/1/model.onnx")
    session = onnxruntime.InferenceSession(network.read_bytes(), providers=["CPUExecutionProvider"])
    rng, requests, right, total = np.random.default_rng(SEED), [], 0, 0
    for name, width, height, orientation, kind, options in PAGES:
        image, boxes, classes = page(rng, width, height, held, truth)
        content = stored(image, orientation, kind, options)
        file = f"{name}.{'jpg' if kind == 'JPEG' else 'webp'}"
        (FOLDER / file).write_bytes(content)
        scores = session.run(None, {"image": crops(content, boxes)})[0].astype(np.float64)
        e = np.exp(scores - scores.max(1, keepdims=True))
        shares = e / e.sum(1, keepdims=True)
        right, total = right + int((shares.argmax(1) == classes).sum()), total + len(classes)
        requests.append(json.dumps(request(name, file, boxes, shares)))
    print(f"{right} of {total} digits are read right")
    text = '{"ensemble": "image", "requests": [\n' + ",\n".join(requests) + "\n]}\n"
    (FOLDER / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
