"""Times the fastest path of libjpeg-turbo for the cases of steps/image's BenchmarkPeer with TUTTI_PEER_FILES, one thread, microseconds of CPU a file.

The library is libjpeg-turbo 3.1.2, as simplejpeg 1.9.0 contains it: with its fast transform and its fast upsampling, into memory that is
there already, at a quarter of the size where the case is not a whole image. A tensor is resized by OpenCV's bilinear filter,
which reads four pixels for each of the output: the cheapest there is.

The first run writes the files, which both sides decode, to the folder of TUTTI_PEER_FILES. `make bench-jpeg` runs both sides.
"""

import json
import os
import pathlib
import time

import cv2
import numpy as np
import simplejpeg
from PIL import Image

W, H, SIDE = 1920, 1080, 224
PHOTOGRAPHS = pathlib.Path(__file__).resolve().parents[2] / "testdata/pictures"
# Quality and chroma subsampling, as Pillow counts it: 0 is 4:4:4, 1 is 4:2:2, 2 is 4:2:0.
FILES = {
    "photograph 420 75": (75, 2, False),
    "photograph 420 85": (85, 2, False),
    "photograph 420 95": (95, 2, False),
    "photograph 422 85": (85, 1, False),
    "photograph 444 90": (90, 0, False),
    "photograph 420 85 progressive": (85, 2, True),
    "smooth 420 85": (85, 2, False),
}
FAST = {"colorspace": "RGB", "fastdct": True, "fastupsample": True}


def photograph():
    """Photographs of 640 x 480 side by side, away from the blocks of their files: the detail of a camera's image."""
    images = [Image.open(p).convert("RGB") for p in sorted(PHOTOGRAPHS.glob("*.jpg"))]
    whole = Image.new("RGB", (W, H))
    corners = [(x, y) for y in range(-236, H, 480) for x in range(-100, W, 640)]
    for i, corner in enumerate(corners):
        whole.paste(images[i % len(images)], corner)
    return whole


def smooth():
    """The image of steps/image's benchmarks."""
    y, x = np.mgrid[0:H, 0:W]
    u, v = x / 97, y / 61
    a = np.stack([127 + 90 * np.sin(u), 127 + 90 * np.cos(v - u), 127 + 60 * np.sin(u * v)], -1)
    return Image.fromarray(a.astype(np.uint8))


def write(folder):
    images = {"photograph": photograph(), "smooth": smooth()}
    for name, (quality, subsampling, progressive) in FILES.items():
        images[name.split()[0]].save(
            folder / f"{name}.jpg", "JPEG", quality=quality, subsampling=subsampling, progressive=progressive)


def cost(run):
    """The CPU time of a run, at least 0.3 s of them."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs * 1e6


def main():
    cv2.setNumThreads(1)
    folder = pathlib.Path(os.environ["TUTTI_PEER_FILES"])
    if not any(folder.iterdir()):
        write(folder)
    memory = np.empty((H, W, 3), np.uint8)
    tensor = np.empty((3, SIDE, SIDE), np.float32)

    def whole(data):
        return simplejpeg.decode_jpeg(data, buffer=memory, **FAST)

    def quarter(data):
        return simplejpeg.decode_jpeg(data, min_height=SIDE, min_width=SIDE, buffer=memory, **FAST)

    def to_tensor(data):
        small = cv2.resize(quarter(data), (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        np.multiply(small.transpose(2, 0, 1), np.float32(1 / 127.5), out=tensor)
        np.subtract(tensor, np.float32(1), out=tensor)

    cases = {"decoded whole": whole, "decoded at a quarter": quarter, "to a tensor": to_tensor}
    costs = {}
    for file in sorted(folder.glob("*.jpg")):
        data = file.read_bytes()
        assert quarter(data).shape == (H // 4, W // 4, 3)
        costs |= {f"{file.stem} {name}": cost(lambda run=run: run(data)) for name, run in cases.items()}
    print(json.dumps(costs))


main()
