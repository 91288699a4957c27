#!/usr/bin/env python3
"""Makes gold.json.gz: the boxes of probability maps by OpenCV 5.0.0, pyclipper and shapely, from the definition of the
post-processing of differentiable binarization in PP-OCR's readers.

    python3 -m venv /tmp/gold
    /tmp/gold/bin/pip install numpy==2.4.6 opencv-python-headless==5.0.0.93 pyclipper==1.4.0 shapely==2.2.0
    /tmp/gold/bin/python make_gold.py

A value v of a map stands for v / 255 in float32.
"""
import base64
import gzip
import json
import pathlib

import cv2
import numpy as np
import pyclipper
from shapely.geometry import Polygon

assert np.__version__ == "2.4.6" and cv2.__version__.startswith("5.0.0")
HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(11)


def text_map(w, h, n, tilt):
    """Blurred bars, as a detector gives them."""
    m = np.zeros((h, w), np.float32)
    for _ in range(n):
        bw, bh = rng.uniform(8, w * 0.6), rng.uniform(4, 16)
        rect = ((rng.uniform(0, w), rng.uniform(0, h)), (bw, bh), rng.uniform(-tilt, tilt))
        cv2.fillPoly(m, [np.round(cv2.boxPoints(rect)).astype(np.int32)], float(rng.uniform(0.5, 1)))
    m = cv2.GaussianBlur(m, (5, 5), 1.2)
    return np.clip(m * 255, 0, 255).astype(np.uint8) // 4 * 4


def rectangle(points):
    r = cv2.minAreaRect(points)
    left, right = np.split(np.array(sorted(cv2.boxPoints(r).tolist(), key=lambda p: p[0]), np.float32), 2)
    (tl, bl) = left if left[1][1] > left[0][1] else left[::-1]
    (tr, br) = right if right[1][1] > right[0][1] else right[::-1]
    return np.array([tl, tr, br, bl]), min(r[1])


def mean(values, polygon):
    h, w = values.shape
    x0, y0 = np.clip(np.floor(polygon.min(0)).astype(int), 0, (w - 1, h - 1))
    x1, y1 = np.clip(np.ceil(polygon.max(0)).astype(int), 0, (w - 1, h - 1))
    mask = np.zeros((y1 - y0 + 1, x1 - x0 + 1), np.uint8)
    moved = (polygon - np.array([x0, y0], polygon.dtype)).astype(np.int32)
    cv2.fillPoly(mask, [moved], 1)
    return cv2.mean(values[y0:y1 + 1, x0:x1 + 1], mask)[0]


def find(values, size, p):
    h, w = values.shape
    mask = (values > np.float32(p["threshold"])).astype(np.uint8)
    if p["dilate"]:
        mask = cv2.dilate(mask, np.ones((2, 2)))
    boxes = []
    for contour in cv2.findContours(mask * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0][:p["max_candidates"]]:
        corners, side = rectangle(contour)
        if side < 3:
            continue
        score = mean(values, corners if p["score"] == "fast" else contour.reshape(-1, 2))
        if score < p["box_threshold"]:
            continue
        shape = Polygon(corners)
        o = pyclipper.PyclipperOffset()
        o.AddPath(corners, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
        grown = np.array(o.Execute(shape.area * p["unclip_ratio"] / shape.length)).reshape(-1, 1, 2)
        corners, side = rectangle(grown.astype(np.int32))
        if side < 5:
            continue
        corners = np.stack([np.clip(np.round(corners[:, 0] / w * size[0]), 0, size[0]), np.clip(np.round(corners[:, 1] / h * size[1]), 0, size[1])], 1)
        corners = corners.astype(np.int32)[np.argsort(corners[:, 0], kind="stable")]
        left, right = corners[:2], corners[2:]
        (tl, bl), (tr, br) = left[np.argsort(left[:, 1], kind="stable")], right[np.argsort(right[:, 1], kind="stable")]
        corners = np.clip(np.array([tl, tr, br, bl], np.float32), 0, np.array(size, np.float32) - 1)
        if min(int(np.linalg.norm(corners[0] - corners[1])), int(np.linalg.norm(corners[0] - corners[3]))) > 3:
            boxes.append((corners, score))
    boxes.sort(key=lambda b: (b[0][0][1], b[0][0][0]))
    for i in range(1, len(boxes)):
        for j in range(i, 0, -1):
            a, b = boxes[j - 1][0][0], boxes[j][0][0]
            if abs(b[1] - a[1]) >= 10 or b[0] >= a[0]:
                break
            boxes[j - 1], boxes[j] = boxes[j], boxes[j - 1]
    return boxes


def main():
    maps, cases = [], []
    for i in range(24):
        w, h = int(rng.integers(40, 220)), int(rng.integers(40, 160))
        tilt = (0, 4, 90)[i % 3]
        m = text_map(w, h, int(rng.integers(2, 9)), tilt)
        p = {"threshold": 0.3, "box_threshold": 0.5, "unclip_ratio": (1.6, 2.0, 1.5)[i % 3], "dilate": i % 4 != 3, "score": "slow" if i % 5 == 4 else "fast",
             "max_candidates": 3 if i == 20 else 1000}
        maps.append({"w": w, "h": h, "values": base64.b64encode(m.tobytes()).decode()})
        for size in ((w, h), (2 * w, 3 * h), (int(w * 1.37), int(h * 0.81))):
            found = find((m / np.float32(255)).astype(np.float32), size, p)
            cases.append({"map": i, "size": size, "params": {k: str(v).lower() for k, v in p.items()},
                          "boxes": [[float(v) for v in b.ravel()] for b, _ in found], "scores": [float(s) for _, s in found]})
    with gzip.GzipFile(HERE / "gold.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps({"maps": maps, "cases": cases}, separators=(",", ":")).encode())
    print(sum(len(c["boxes"]) for c in cases), "boxes")


main()
