"""Times what numpy takes for the cases of steps/detect's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/detect.py
"""

import json
import time

import numpy as np

MOST = 300


def cost(run):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs * 1e6


def iou(one, many, areas):
    wide = np.minimum(one[2], many[:, 2]) - np.maximum(one[0], many[:, 0])
    high = np.minimum(one[3], many[:, 3]) - np.maximum(one[1], many[:, 1])
    both = np.maximum(wide, 0) * np.maximum(high, 0)
    return both / ((one[2] - one[0]) * (one[3] - one[1]) + areas - both)


def hard(boxes, scores, threshold=0.45):
    """The usual loop: the best box, then those left that do not overlap it."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order, keep = np.argsort(-scores), []
    while order.size and len(keep) < MOST:
        i, order = order[0], order[1:]
        keep.append(i)
        order = order[iou(boxes[i], boxes[order], areas[order]) <= threshold]
    return keep


def gaussian(boxes, scores, sigma=0.5, lowest=0.001):
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    scores, left, out = scores.copy(), np.arange(len(boxes)), []
    while left.size and len(out) < MOST:
        at = scores[left].argmax()
        i = left[at]
        out.append((i, scores[i]))
        left = np.delete(left, at)
        scores[left] *= np.exp(-(iou(boxes[i], boxes[left], areas[left]) ** 2) / sigma)
        left = left[scores[left] >= lowest]
    return out


def yolov8(p):
    scores = p[4:]
    best = scores.max(axis=0)
    at = np.flatnonzero(best > 0.25)
    cls, box, score = scores[:, at].argmax(axis=0), p[:4, at].T, best[at]
    corners = np.concatenate([box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2], axis=1)
    keep = hard(corners + cls[:, None] * np.float32(7680), score)
    return corners[keep], score[keep], cls[keep]


def predictions(rng, n=8400, classes=80, objects=20):
    p = np.empty((4 + classes, n), np.float32)
    p[:2], p[2:4], p[4:] = rng.random((2, n)) * 640, 20 + rng.random((2, n)) * 100, rng.random((classes, n)) * 0.1
    for o in range(objects):
        x, y, w, h = rng.random(4) * [640, 640, 100, 100] + [0, 0, 30, 30]
        for k in range(8):
            i = (o * 8 + k) * (n // (objects * 8))
            p[:4, i] = x + 4 * rng.random(), y + 4 * rng.random(), w, h
            p[4 + o % classes, i] = 0.4 + 0.6 * rng.random()
    return p


def crowd(rng, n):
    at = rng.random((n, 2)) * 600
    boxes = np.concatenate([at, at + 20 + 80 * rng.random((n, 2))], axis=1).astype(np.float32)
    return boxes, (0.3 + 0.7 * rng.random(n)).astype(np.float32)


def main():
    rng = np.random.default_rng(1)
    p, many, some = predictions(rng), crowd(rng, 1000), crowd(rng, 300)
    print(json.dumps({
        "yolov8, 8400 boxes, 80 classes": cost(lambda: yolov8(p)),
        "hard, 1000 boxes": cost(lambda: hard(*many)),
        "gaussian, 300 boxes": cost(lambda: gaussian(*some)),
    }))


main()
