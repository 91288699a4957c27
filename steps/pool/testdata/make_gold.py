#!/usr/bin/env python3
"""Writes gold.json.gz: what sentence-transformers' Pooling layer gives for random vectors.

    pip install numpy==2.4.6
    python steps/pool/testdata/make_gold.py

The rules are those of sentence_transformers/models/Pooling.py, restated for numpy in float64: every mode over every
mask, masks with nothing in them included, where the layer's clamp gives 0. Seed fixed: the same file every time.
"""

import base64
import gzip
import json
from pathlib import Path

import numpy as np

MASKS = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]


def pooled(mode, hidden, mask, weights):
    seen = mask[..., None].astype(np.float64)
    count = np.maximum(seen.sum(1), 1e-9)
    if mode == "cls":
        return hidden[:, 0]
    if mode == "max":
        best = np.where(seen == 0, -1e9, hidden).max(1)
        return np.where(seen.sum(1) == 0, 0, best)
    if mode == "mean":
        return (hidden * seen).sum(1) / count
    if mode == "mean_sqrt_len":
        return (hidden * seen).sum(1) / np.sqrt(count)
    if mode == "weighted_mean":
        w = np.arange(1, mask.shape[1] + 1)[None, :, None] if weights is None else weights[..., None]
        return (hidden * seen * w).sum(1) / np.maximum((seen * w).sum(1), 1e-9)
    at = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)  # last
    return (hidden * seen)[np.arange(len(hidden)), at]


def packed(a, kind):
    return base64.b64encode(np.ascontiguousarray(a, kind).tobytes()).decode()


def main():
    rng, cases, width = np.random.default_rng(6), [], 7
    mask = np.array(MASKS)
    for kind in ["<f4", "<f2"]:
        hidden = (rng.normal(size=(len(MASKS), len(MASKS[0]), width)) * 3).astype(kind)
        weights = rng.uniform(0.1, 2, size=mask.shape).astype(kind)
        for mode in ["mean", "mean_sqrt_len", "weighted_mean", "weights", "cls", "max", "last"]:
            given = weights.astype(np.float64) if mode == "weights" else None
            name = "weighted_mean" if given is not None else mode
            out = pooled(name, hidden.astype(np.float64), mask, given)
            unit = out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)
            for normalize, want in [("false", out), ("true", unit)]:
                case = {"mode": name, "normalize": normalize, "half": kind == "<f2", "shape": hidden.shape}
                case |= {"hidden": packed(hidden, kind), "mask": packed(mask, "<i8"), "want": packed(want, "<f4")}
                if given is not None:
                    case["weights"] = packed(weights, kind)
                cases.append(case)
    text = json.dumps(cases, indent=0).encode()
    (Path(__file__).parent / "gold.json.gz").write_bytes(gzip.compress(text, mtime=0))


main()
