#!/usr/bin/env python3
"""Makes resize.gold.gz: what OpenCV 5.0.0's resize makes of small images of many sizes.

    python3 -m venv /tmp/gold && /tmp/gold/bin/pip install numpy==2.4.6 opencv-python-headless==5.0.0.93
    /tmp/gold/bin/python make_gold.py

A line of JSON holds a size: width, height and channels of the image, where in the stream of bytes it begins, whether its
samples are only 0 and 255, width and height of the result, and the CRC-32 of the result of nearest, linear, cubic, area and
lanczos4. The stream is the high bytes of a linear congruential generator, which the test has, too.

Intel's IPP is off: cubic would depend on the processor. OpenCV 4.14.0.94 gives the same file.
"""
import gzip
import json
import pathlib
import zlib

import cv2
import numpy as np

assert cv2.__version__.startswith(("5.0.0", "4.14.0")), cv2.__version__
HERE = pathlib.Path(__file__).parent
SAMPLINGS = cv2.INTER_NEAREST, cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_AREA, cv2.INTER_LANCZOS4


def stream(n):
    out, state = np.empty(n, np.uint8), 1
    for i in range(n):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = state >> 24
    return out


BYTES = stream(1 << 16)


def sizes(rng, most):
    """Any sizes, and those that OpenCV treats in another way: whole factors, and sides that stay."""
    w, h, ow, oh = (int(v) for v in rng.integers(1, most, 4))
    n, m = (int(v) for v in rng.integers(1, 6, 2))
    return [(w, h, ow, oh), (2 * ow, 2 * oh, ow, oh), (w, h, 2 * w, 2 * h), (n * ow, m * oh, ow, oh), (w, h, n * w, m * h),
            (w, h, w, oh), (w, h, ow, h), (max(w, ow), max(h, oh), min(w, ow), min(h, oh))][int(rng.integers(0, 8))]


def main():
    cv2.ipp.setUseIPP(False)
    rng, lines = np.random.default_rng(7), []
    for most in [6] * 150 + [30] * 350 + [80] * 150:
        w, h, ow, oh = sizes(rng, most)
        ch, bits = int(rng.choice([1, 3])), bool(rng.integers(0, 3) == 0)
        at = int(rng.integers(0, max(len(BYTES) - w * h * ch, 1)))
        if w * h * ch > len(BYTES):
            continue
        a = BYTES[at:at + w * h * ch].reshape(h, w, ch)
        a = (a >> 7) * np.uint8(255) if bits else a
        sums = [zlib.crc32(np.ascontiguousarray(cv2.resize(a, (ow, oh), interpolation=s)).tobytes()) for s in SAMPLINGS]
        lines.append(json.dumps({"in": [w, h, ch], "at": at, "bits": bits, "out": [ow, oh], "sums": sums}))
    (HERE / "resize.gold.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
