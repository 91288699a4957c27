"""Times what Pillow takes for the cases of steps/encode's BenchmarkPeer, one thread, microseconds of CPU an image.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/encode.py
"""

import io
import json
import time

import numpy as np
from PIL import Image

W, H = 640, 480


def cost(run):
    """The CPU time of one run, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs * 1e6


def main():
    y, x = np.mgrid[0:H, 0:W].astype(np.float64)
    samples = np.stack([127 + 90 * np.sin(x / 97), 127 + 90 * np.cos(y / 61 - x / 97), 127 + 60 * np.sin(x * y / 6000)], -1)
    samples = samples.astype(np.uint8)

    def save(kind, **opts):
        def run():
            Image.fromarray(samples).save(io.BytesIO(), kind, **opts)
        return run

    print(json.dumps({
        f"jpeg {W} x {H}": cost(save("JPEG")),
        f"png {W} x {H}": cost(save("PNG")),
        f"webp {W} x {H}": cost(save("WEBP", lossless=True)),
    }))


main()
