#!/usr/bin/env python3
"""Makes gold.json.gz: what the steps before the networks of a text reader make of images, from the definitions of PP-OCR's
readers with OpenCV 5.0.0 and numpy 2.4.6.

    python3 -m venv /tmp/gold
    /tmp/gold/bin/pip install numpy==2.4.6 opencv-python-headless==5.0.0.93
    /tmp/gold/bin/python make_gold.py

A case has the size of an image, whose sample c at (x, y) is (7 x + 13 y + 50 c + x y // 3) % 256, the parameters of the step, and
the shape, the geometry and the SHA-256 of the output.
"""
import gzip
import hashlib
import json
import math
import pathlib

import cv2
import numpy as np

assert np.__version__ == "2.4.6" and cv2.__version__.startswith("5.0.0")
HERE = pathlib.Path(__file__).parent
SIZES = [(1, 1), (40, 9), (31, 30), (100, 48), (97, 31), (320, 20), (250, 31), (30, 90), (120, 40), (700, 333)]


def image(w, h):
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([(7 * x + 13 * y + 50 * c + x * y // 3) % 256 for c in range(3)], -1).astype(np.uint8)


def rounded(n, r, m):
    return round(int(n * r) / m) * m


def prepare(img, p):
    """Sides at most 2000 and at least 30, then black above and below what is low or wide."""
    h, w = img.shape[:2]
    for limit, side, far in ((p["max_side"], max(h, w), max(h, w) > p["max_side"]), (p["min_side"], min(h, w), min(h, w) < p["min_side"])):
        if far:
            r = limit / side
            h, w = rounded(h, r, p["multiple"]), rounded(w, r, p["multiple"])
    img = cv2.resize(img, (w, h)) if img.shape[:2] != (h, w) else img
    if h <= p["pad_height"] or w / h > p["pad_ratio"]:
        top = int(abs(max(int(w / p["pad_ratio"]), p["pad_height"]) * 2 - h) / 2)
        return cv2.copyMakeBorder(img, top, top, 0, 0, cv2.BORDER_CONSTANT, value=0), (w, h, top)
    return img, (w, h, 0)


def detector(img, p):
    h, w = img.shape[:2]
    r = p["min_side"] / min(h, w) if min(h, w) < p["min_side"] else 1.0
    h, w = rounded(h, r, 32), rounded(w, r, 32)
    out = cv2.resize(img, (w, h)).astype(np.float32) * (1 / 255.0)
    return ((out - np.array([0.5, 0.4, 0.3])) / np.array([0.5, 0.25, 0.5])).transpose(2, 0, 1).astype(np.float32), (w, h, 0)


def line(img, p):
    h, w = img.shape[:2]
    own, least, most, multiple = math.ceil(48 * (w / h)), p.get("min_width", 1), p.get("max_width", 0), p.get("width_multiple", 1)
    own = min(own, most) if most else own
    total = -(-max(own, least) // multiple) * multiple
    out = np.zeros((3, 48, total), np.float32)
    scaled = cv2.resize(img, (own, 48)).astype(np.float32).transpose(2, 0, 1) / 255
    out[:, :, :own] = (scaled - np.float32(0.5)) / np.float32(0.5)
    return out, (own, 48, 0)


RUNS = [
    (prepare, {"max_side": 200, "min_side": 30, "multiple": 32, "round": "resized", "pad_height": 30, "pad_ratio": 8, "dtype": "uint8"}),
    (prepare, {"max_side": 200, "min_side": 30, "multiple": 32, "round": "resized", "pad_height": 30, "pad_ratio": 8, "dtype": "uint8", "color": "bgr"}),
    (detector, {"min_side": 64, "multiple": 32, "mean": "0.5,0.4,0.3", "std": "0.5,0.25,0.5", "rounding": "scaled"}),
    (line, {"fit": "height", "min_width": 192, "max_width": 192}),
    (line, {"fit": "height", "min_width": 320}),
    (line, {"fit": "height", "width_multiple": 32, "color": "bgr"}),
]


def main():
    cases = []
    for w, h in SIZES:
        for run, p in RUNS:
            img = image(w, h)
            if p.get("color") == "bgr":
                img = img[:, :, ::-1].copy()
            try:
                out, (rw, rh, top) = run(img, p)
            except cv2.error:  # a side of 0
                continue
            cases.append({"w": w, "h": h, "params": {k: str(v) for k, v in p.items()}, "shape": out.shape,
                          "geometry": [rw / w, rh / h, 0, top, w, h], "sum": hashlib.sha256(out.tobytes()).hexdigest()})
    with gzip.GzipFile(HERE / "gold.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(cases, separators=(",", ":")).encode())
    print(len(cases), "cases")


main()
