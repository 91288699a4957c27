#!/usr/bin/env python3
"""Makes gold.json.gz: contours of masks by OpenCV 5.0.0, and for each the rectangle of least area, its corners, the mean of a
map over them, and the polygon of pyclipper around them.

    python3 -m venv /tmp/gold
    /tmp/gold/bin/pip install numpy==2.4.6 opencv-python-headless==5.0.0.93 pyclipper==1.4.0
    /tmp/gold/bin/python make_gold.py

Masks are strings of 0 and 1. Values of the map are (7 x + 3 y) % 11.
"""
import gzip
import json
import pathlib

import cv2
import numpy as np
import pyclipper

assert np.__version__ == "2.4.6" and cv2.__version__.startswith("5.0.0")
HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(3)


def blobs(w, h, n):
    m = np.zeros((h, w), np.uint8)
    for _ in range(n):
        rect = ((rng.uniform(0, w), rng.uniform(0, h)), (rng.uniform(2, w / 2), rng.uniform(2, h / 3)), rng.choice([0, 0, 45, rng.uniform(-90, 90)]))
        cv2.fillPoly(m, [cv2.boxPoints(rect).astype(np.int32)], 1)
        if rng.uniform() < 0.5:  # a hole
            cv2.circle(m, (int(rect[0][0]), int(rect[0][1])), 2, 0, -1)
    return m


def masks():
    yield np.ones((1, 1), np.uint8)
    yield np.ones((5, 7), np.uint8)
    yield np.eye(9, dtype=np.uint8)
    yield np.ones((1, 9), np.uint8)
    for density in (0.2, 0.5, 0.6, 0.8):
        yield (rng.uniform(size=(23, 31)) < density).astype(np.uint8)
    for i in range(16):
        yield blobs(60 + 7 * i, 40 + 5 * i, 1 + i // 2)


def fill(values, corners):
    h, w = values.shape
    mask = np.zeros((h, w), np.uint8)
    cv2.fillPoly(mask, [corners.astype(np.int32)], 1)
    return cv2.mean(values, mask)[0]


def around(corners, distance):
    o = pyclipper.PyclipperOffset()
    o.AddPath(corners, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    return o.Execute(distance)


def main():
    cases = []
    for m in masks():
        h, w = m.shape
        y, x = np.mgrid[0:h, 0:w]
        values = ((7 * x + 3 * y) % 11).astype(np.float32)
        found, _ = cv2.findContours(m * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        contours = []
        for c in found:
            (cx, cy), (rw, rh), angle = r = cv2.minAreaRect(c)
            box = cv2.boxPoints(r)
            entry = {"points": c.ravel().tolist()}
            if min(rw, rh) > 0:
                distance = float(rw * rh * 1.6 / (2 * (rw + rh)))
                grown = around(box, distance)
                entry |= {"rect": [cx, cy, rw, rh, angle], "corners": box.ravel().tolist(), "mean": fill(values, box), "distance": distance,
                          "grown": np.array(grown[0]).ravel().tolist() if len(grown) == 1 else None}
            contours.append(entry)
        cases.append({"w": w, "h": h, "mask": "".join(map(str, m.ravel())), "contours": contours})
    with gzip.GzipFile(HERE / "gold.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(cases, separators=(",", ":")).encode())


main()
