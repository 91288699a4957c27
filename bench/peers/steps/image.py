"""Times what Pillow and numpy take for the cases of steps/image's BenchmarkPeer, one thread, microseconds of CPU an item.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/image.py
"""

import io
import json
import pathlib
import time

import numpy as np
from PIL import Image

R = Image.Resampling
FILTERS = {"nearest": R.NEAREST, "area": R.BOX, "bilinear": R.BILINEAR, "bicubic": R.BICUBIC, "lanczos": R.LANCZOS}
IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLIP = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def cost(run):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs * 1e6


def screen():
    """The same image as in the Go benchmark."""
    y, x = np.mgrid[0:1080, 0:1920]
    u, v = x / 97, y / 61
    a = np.stack([127 + 90 * np.sin(u), 127 + 90 * np.cos(v - u), 127 + 60 * np.sin(u * v)], -1)
    return a.astype(np.uint8)


def normalised(im, mean, std):
    x = np.asarray(im).transpose(2, 0, 1).astype(np.float32)
    x /= np.float32(255)
    x -= np.float32(mean).reshape(3, 1, 1)
    x /= np.float32(std).reshape(3, 1, 1)
    return np.ascontiguousarray(x)


def short_side(im, size, filter):
    im = im.resize((size * im.width // im.height, size), filter)
    left, top = round((im.width - 224) / 2), round((im.height - 224) / 2)
    return im.crop((left, top, left + 224, top + 224))


def letterbox(im):
    out = Image.new("RGB", (640, 640), (114, 114, 114))
    out.paste(im.resize((640, 360), R.BILINEAR), (0, 140))
    x = np.asarray(out).transpose(2, 0, 1).astype(np.float32)
    x /= np.float32(255)
    return np.ascontiguousarray(x)


def drafted(file):
    """Pillow's own decode at a fraction of the size."""
    im = Image.open(io.BytesIO(file.getvalue()))
    im.draft("RGB", (224, 224))
    return im.convert("RGB").resize((224, 224), R.BILINEAR)


def main():
    pixels = screen()
    im = Image.fromarray(pixels)
    file = io.BytesIO()
    im.save(file, "JPEG", quality=85)
    cases = {f"1080p to 224 {name}": lambda f=f: np.asarray(Image.fromarray(pixels).resize((224, 224), f)) for name, f in FILTERS.items()}
    cases |= {
        "1080p pixels preset resnet50": lambda: normalised(short_side(Image.fromarray(pixels), 256, R.BILINEAR), *IMAGENET),
        "1080p pixels preset clip": lambda: normalised(short_side(Image.fromarray(pixels), 224, R.BICUBIC), *CLIP),
        "1080p pixels preset yolo": lambda: letterbox(Image.fromarray(pixels)),
        "1080p JPEG to 224": lambda: normalised(
            Image.open(io.BytesIO(file.getvalue())).convert("RGB").resize((224, 224), R.BILINEAR), [0.5] * 3, [0.5] * 3),
    }
    photograph = pathlib.Path("bench/testdata/pictures/0.jpg").read_bytes()
    cases["640 x 480 JPEG to 224"] = lambda: normalised(
        Image.open(io.BytesIO(photograph)).convert("RGB").resize((224, 224), R.BILINEAR), [0.5] * 3, [0.5] * 3)
    cases["1080p JPEG to 224 scaled"] = cases["1080p JPEG to 224"]  # what the option is there to beat
    cases["1080p JPEG to 224 scaled, draft"] = lambda: normalised(drafted(file), [0.5] * 3, [0.5] * 3)
    print(json.dumps({name: cost(run) for name, run in cases.items()}))


main()
