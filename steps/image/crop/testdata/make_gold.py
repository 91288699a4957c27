#!/usr/bin/env python3
"""Makes gold.json.gz: crops of quadrilaterals by OpenCV 5.0.0, and the widths of lines in batches sorted by ratio.

    python3 -m venv /tmp/gold
    /tmp/gold/bin/pip install numpy==2.4.6 opencv-python-headless==5.0.0.93
    /tmp/gold/bin/python make_gold.py

The file has the samples of the images, and per case an image, boxes of four corners, and for each box height, width and
the SHA-256 of the samples of its crop. Crops at least 1.5 times as high as wide are turned. widths are those to which
lines of 48 pixels are padded in batches of 6, at least 320.
"""
import base64
import gzip
import hashlib
import json
import pathlib

import cv2
import numpy as np

assert np.__version__ == "2.4.6" and cv2.__version__.startswith("5.0.0")
HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(7)


def image(w, h):
    """Smooth colour, hard edges and a patch of noise."""
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([127 + 127 * np.sin(x / 7), 127 + 127 * np.cos(y / 5 - x / 11), 255 * ((x // 6 + y // 4) % 2)], -1)
    a[h // 3:h // 2, w // 4:w // 2] = rng.integers(0, 256, (h // 2 - h // 3, w // 2 - w // 4, 3))
    return np.clip(a, 0, 255).astype(np.uint8)


def crop(img, box):
    side = lambda a, b: np.linalg.norm(box[a] - box[b])
    w, h = max(int(max(side(0, 1), side(2, 3))), 1), max(int(max(side(0, 3), side(1, 2))), 1)
    to = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float32)
    m = cv2.getPerspectiveTransform(box, to)
    out = cv2.warpPerspective(img, m, (w, h), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.rot90(out) if h / w >= 1.5 else out


def turned(cx, cy, w, h, degrees):
    a = np.deg2rad(degrees)
    u, v = np.array([np.cos(a), np.sin(a)]) * w / 2, np.array([-np.sin(a), np.cos(a)]) * h / 2
    c = np.array([cx, cy])
    return np.array([c - u - v, c + u - v, c + u + v, c - u + v], np.float32)


def boxes(w, h, n):
    for i in range(n):
        cx, cy = rng.uniform(0, w), rng.uniform(0, h)
        bw, bh = rng.uniform(1, w), rng.uniform(1, max(h / 2, 1))
        kind = i % 6
        if kind == 0:  # corners as a detector gives them: whole pixels, no rotation
            yield np.round(turned(cx, cy, bw, bh, 0)) + np.float32(0)
        elif kind == 1:
            yield np.round(turned(cx, cy, bw, bh, rng.uniform(-30, 30))) + np.float32(0)
        elif kind == 2:
            yield turned(cx, cy, bw, bh, rng.uniform(-180, 180))
        elif kind == 3:  # no parallel sides
            yield np.round(turned(cx, cy, bw, bh, 0) + rng.uniform(-6, 6, (4, 2))).astype(np.float32)
        elif kind == 4:  # small
            yield np.round(turned(cx, cy, rng.uniform(1, 5), rng.uniform(1, 9), 0)) + np.float32(0)
        else:  # partly outside, any order of corners
            yield np.roll(np.round(turned(cx + w / 2, cy - h / 3, bw, bh, 45)), i // 6 % 4, 0).astype(np.float32)


def widths(shapes):
    ratios = np.array([w / h for h, w in shapes])
    order, out = np.argsort(ratios, kind="stable"), [0] * len(shapes)
    for i in range(0, len(order), 6):
        group = order[i:i + 6]
        for j in group:
            out[j] = int(48 * max(320 / 48, *(ratios[k] for k in group)))
    return out


def main():
    images, cases = [image(97, 61), image(700, 20), image(1, 1), image(3, 2)], []
    for at, (img, n) in enumerate(zip(images, (180, 30, 12, 12))):
        list_ = [b for b in boxes(img.shape[1], img.shape[0], n) if len({tuple(p) for p in b}) == 4]  # no double corners
        crops = [crop(img, b) for b in list_]
        cases.append({
            "image": at, "boxes": [[float(v) for v in b.ravel()] for b in list_], "shapes": [c.shape[:2] for c in crops],
            "sums": [hashlib.sha256(c.tobytes()).hexdigest() for c in crops], "widths": widths([c.shape[:2] for c in crops]),
        })
    gold = {"images": [{"w": i.shape[1], "h": i.shape[0], "pix": base64.b64encode(i.tobytes()).decode()} for i in images], "cases": cases}
    with gzip.GzipFile(HERE / "gold.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(gold, separators=(",", ":")).encode())


main()
