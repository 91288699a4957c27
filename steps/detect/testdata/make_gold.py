"""Writes gold.json.gz: what numpy says of detectors' outputs, for the tests of this package.

    python3 -m venv .venv && .venv/bin/pip install numpy==2.4.6 scipy==1.17.1
    .venv/bin/python steps/detect/testdata/make_gold.py

Arrays are little-endian bytes in base64. The reference is written from the papers (soft
suppression: Bodla et al. 2017; DETR: Carion et al. 2020) and the formats' definitions, in
float64. A case in which rounding could change a decision ends the script.
"""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
from scipy.special import expit, softmax

DEFAULTS = {
    "score_threshold": 0.25, "iou_threshold": 0.45, "sigma": 0.5, "soft_threshold": 0.001,
    "max_detections": 100, "max_candidates": 30000, "multi_label": False, "class_agnostic": False,
}
ANCHORS = [[(10, 13), (16, 30), (33, 23)], [(30, 61), (62, 45), (59, 119)], [(116, 90), (156, 198), (373, 326)]]
STRIDES = [8, 16, 32]


def clear_of(values, border):
    """Stops where a value is so near a border that FP32 may fall on its other side."""
    values = np.asarray(values, np.float64)
    if values.size and np.min(np.abs(values - border)) < 2e-6 * max(1, abs(border)):
        raise SystemExit(f"a value is too near {border}: take another seed")


def corners(b):
    return np.concatenate([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], axis=1)


def iou(one, many):
    lt, rb = np.maximum(one[:2], many[:, :2]), np.minimum(one[2:], many[:, 2:])
    inter = np.prod(np.clip(rb - lt, 0, None), axis=1)
    area = lambda b: np.prod(np.clip(b[..., 2:] - b[..., :2], 0, None), axis=-1)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(inter / (area(one) + area(many) - inter))


def candidates(boxes, scores, p):
    """Boxes, scores and classes above the threshold, best first."""
    clear_of(scores, p["score_threshold"])
    if p["multi_label"]:
        at, cls = np.nonzero(scores > p["score_threshold"])
    else:
        cls = scores.argmax(axis=1)
        at = np.flatnonzero(scores.max(axis=1) > p["score_threshold"])
        cls = cls[at]
    boxes, scores = boxes[at], scores[at, cls]
    if len(scores) > 1 and np.min(np.diff(np.sort(scores))) == 0:
        raise SystemExit("equal scores: take another seed")
    order = np.argsort(-scores)[: p["max_candidates"]]
    return boxes[order], scores[order], cls[order]


def hard(boxes, scores, cls, p):
    keep, alive = [], np.ones(len(boxes), bool)
    for i in range(len(boxes)):
        if not alive[i]:
            continue
        keep.append(i)
        over = iou(boxes[i], boxes)
        clear_of(over, p["iou_threshold"])
        same = np.ones(len(boxes), bool) if p["class_agnostic"] else cls == cls[i]
        alive &= ~(same & (over > p["iou_threshold"]))
    return boxes[keep], scores[keep], cls[keep]


def soft(boxes, scores, cls, p):
    boxes, scores, cls, out = boxes.copy(), scores.copy(), cls.copy(), []
    while len(boxes):
        i = scores.argmax()
        out.append((boxes[i], scores[i], cls[i]))
        over = iou(boxes[i], boxes)
        if p["nms"] == "gaussian":
            factor = np.exp(-(over**2) / p["sigma"])
        else:
            clear_of(over, p["iou_threshold"])
            factor = np.where(over > p["iou_threshold"], 1 - over, 1)
        if not p["class_agnostic"]:
            factor = np.where(cls == cls[i], factor, 1)
        scores = scores * factor
        rest = np.arange(len(boxes)) != i
        clear_of(scores[rest], p["soft_threshold"])
        rest &= scores >= p["soft_threshold"]
        boxes, scores, cls = boxes[rest], scores[rest], cls[rest]
    if not out:
        return boxes, scores, cls
    return tuple(np.array(x) for x in zip(*out))


def outside(boxes, edges):
    """Whether a box has nothing of the picture."""
    return (boxes[:, 2] <= edges[0]) | (boxes[:, 3] <= edges[1]) | (boxes[:, 0] >= edges[2]) | (boxes[:, 1] >= edges[3])


def finish(boxes, scores, p, geometry):
    """From decoded boxes and scores to the answer."""
    if "width" in p and p.get("coordinates") == "normalized":
        boxes = boxes * np.array([p["width"], p["height"]] * 2)
    if geometry is not None:
        sx, sy, ox, oy, w, h = geometry.astype(np.float64)
        edges = np.array([ox, oy, w * sx + ox, h * sy + oy])
    elif "width" in p:
        edges = np.array([0, 0, p["width"], p["height"]])
    else:
        edges = np.array([-np.inf, -np.inf, np.inf, np.inf])
        if p["format"] == "detr":
            edges = np.array([0, 0, 1, 1])
    inside = ~outside(boxes, edges)
    boxes, scores = boxes[inside], scores[inside]
    found = candidates(boxes, scores, p)
    if p["nms"] == "hard":
        found = hard(*found, p)
    elif p["nms"] != "none":
        found = soft(*found, p)
    boxes, scores, cls = (x[: p["max_detections"]] for x in found)
    boxes = np.stack([np.clip(boxes[:, i], edges[i % 2], edges[2 + i % 2]) for i in range(4)], axis=1)
    if geometry is not None:
        boxes = (boxes - np.array([ox, oy] * 2)) / np.array([sx, sy] * 2)
    return boxes, scores, cls


def crowd(rng, n, classes, side):
    """Centre boxes in clusters, and scores of which few are high."""
    middle = rng.uniform(0, side, (max(n // 8, 1), 2))[rng.integers(0, max(n // 8, 1), n)]
    size = rng.uniform(side / 10, side / 3, (n, 2))
    boxes = np.concatenate([middle + rng.normal(0, side / 40, (n, 2)), size], axis=1)
    return boxes.astype("<f4"), rng.beta(0.6, 1.5, (n, classes)).astype("<f4")


def decoded(row, p):
    """Boxes (corners) and scores of one row of inputs."""
    row = [x.astype(np.float64) for x in row]
    if p["format"] == "boxes":
        b = row[0]
        boxes = {"xyxy": lambda: b, "xywh": lambda: np.concatenate([b[:, :2], b[:, :2] + b[:, 2:]], 1), "cxcywh": lambda: corners(b)}[p["box_format"]]()
        return boxes, expit(row[1]) if p.get("activation") == "sigmoid" else row[1]
    if p["format"] == "yolov5":
        return corners(row[0][:, :4]), row[0][:, 5:] * row[0][:, 4:5]
    if p["format"] == "yolov8":
        return corners(row[0][:4].T), row[0][4:].T
    if p["format"] == "detr":
        return corners(row[1]), softmax(row[0], axis=1)[:, :-1]
    parts = []
    for x, anchors, stride in zip(row, ANCHORS, STRIDES):
        s = expit(x)
        _, h, w, _ = x.shape
        grid = np.stack(np.meshgrid(np.arange(w), np.arange(h)), -1)[None]
        xy = (2 * s[..., :2] - 0.5 + grid) * stride
        wh = (2 * s[..., 2:4]) ** 2 * np.array(anchors)[:, None, None]
        parts.append(np.concatenate([xy, wh, s[..., 4:]], -1).reshape(-1, x.shape[-1]))
    flat = np.concatenate(parts)
    return corners(flat[:, :4]), flat[:, 5:] * flat[:, 4:5]


def inputs(rng, p, n, classes, side):
    """One row's inputs."""
    boxes, scores = crowd(rng, n, classes, side)
    f = p["format"]
    if f == "boxes":
        boxes = {"xyxy": lambda: corners(boxes), "xywh": lambda: boxes, "cxcywh": lambda: boxes}[p["box_format"]]()
        if p.get("activation") == "sigmoid":
            scores = rng.normal(-2, 2, (n, classes))
        return [boxes, scores]
    if f == "yolov5":
        return [np.concatenate([boxes, rng.beta(0.6, 0.8, (n, 1)), np.sqrt(scores)], 1)]
    if f == "yolov8":
        return [np.concatenate([boxes, scores], 1).T]
    if f == "detr":
        return [rng.normal(0, 2, (n, classes + 1)), boxes / side]
    return [
        np.concatenate([rng.normal(0, 1.5, (3, side // s, side // s, 4)), rng.normal(-1, 2, (3, side // s, side // s, 1 + classes))], -1)
        for s in STRIDES
    ]


CASES = [
    ({"format": "boxes", "nms": "hard", "box_format": "xyxy"}, 3, 120, 3, False),
    ({"format": "boxes", "nms": "hard", "box_format": "xywh", "class_agnostic": True, "multi_label": True}, 2, 80, 3, False),
    ({"format": "boxes", "nms": "linear", "box_format": "cxcywh", "iou_threshold": 0.3}, 2, 90, 2, False),
    ({"format": "boxes", "nms": "gaussian", "box_format": "xyxy", "soft_threshold": 0.2}, 2, 90, 2, False),
    ({"format": "boxes", "nms": "gaussian", "box_format": "xyxy", "class_agnostic": True, "max_detections": 7}, 1, 90, 2, False),
    ({"format": "boxes", "nms": "none", "box_format": "xyxy", "max_detections": 10, "activation": "sigmoid"}, 2, 60, 5, False),
    ({"format": "boxes", "nms": "hard", "box_format": "xyxy", "max_candidates": 9, "multi_label": True}, 2, 60, 5, True),
    ({"format": "yolov5", "nms": "hard", "width": 160, "height": 160}, 2, 300, 10, True),
    ({"format": "yolov5_raw", "nms": "hard", "width": 64, "height": 64, "multi_label": True}, 2, 0, 6, True),
    ({"format": "yolov8", "nms": "hard", "width": 160, "height": 160}, 3, 400, 12, True),
    ({"format": "yolov8", "nms": "linear", "multi_label": True, "score_threshold": 0.6}, 1, 300, 8, False),
    ({"format": "detr", "nms": "none", "score_threshold": 0.5}, 2, 100, 20, False),
    ({"format": "detr", "nms": "hard", "width": 160, "height": 160, "score_threshold": 0.4, "coordinates": "normalized"}, 2, 100, 5, True),
]


def packed(a, kind="<f4"):
    return {"dims": list(a.shape), "data": base64.b64encode(np.ascontiguousarray(a, kind).tobytes()).decode()}


def main():
    rng, cases = np.random.default_rng(33), []
    for given, rows, n, classes, mapped in CASES:
        p = DEFAULTS | given
        side = given.get("width", 160)
        batch = [[np.asarray(x, "<f4") for x in inputs(rng, p, n, classes, side)] for _ in range(rows)]
        maps = []
        if mapped:
            for _ in range(rows):
                s = rng.uniform(0.2, 1.5)
                w, h = side / s, side * rng.uniform(0.4, 0.9) / s
                maps.append(np.array([s, s * 1.01, 0, (side - h * s) / 2, np.floor(w), np.floor(h)], "<f4"))
        found = []
        for i, row in enumerate(batch):
            boxes, scores = decoded(row, p)
            found.append(finish(boxes, scores, p, maps[i] if mapped else None))
        ins = [np.stack(x) for x in zip(*batch)] + ([np.stack(maps)] if mapped else [])
        params = {k: str(v).lower() for k, v in given.items()}
        if mapped:
            params["geometry"] = "true"
        cases.append({
            "params": params,
            "inputs": [packed(x) for x in ins],
            "boxes": [packed(b) for b, _, _ in found],
            "scores": [packed(s) for _, s, _ in found],
            "classes": [packed(c, "<i4") for _, _, c in found],
        })
        print(params, [len(s) for _, s, _ in found])
    data = json.dumps(cases, separators=(",", ":")).encode()
    (Path(__file__).parent / "gold.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


main()
