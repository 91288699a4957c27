#!/usr/bin/env python3
"""Makes the gold files of package jpeg with Pillow 13.0.0 (libjpeg-turbo 3.2) and numpy.

    python3 -m venv /tmp/gold && /tmp/gold/bin/pip install Pillow==13.0.0 numpy==2.4.6
    /tmp/gold/bin/python make_gold.py

gold.zip holds files NAME.jpg, and NAME.N for N = 1, 2, 4, 8: "WIDTH HEIGHT CHANNELS\\n"
and the samples of what Pillow decodes at 1/N of the size, which is its draft mode.
"""
import io
import pathlib
import zipfile

import numpy as np
import PIL
from PIL import Image

assert PIL.__version__ == "13.0.0", PIL.__version__
HERE = pathlib.Path(__file__).parent


def picture(w, h, seed):
    """Smooth colour, hard edges and noise: large coefficients of every frequency."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([127 + 127 * np.sin(x / 7 + seed), 127 + 127 * np.cos(y / 5 - x / 11),
                  255 * ((x // 6 + y // 4) % 2)], -1)
    a[h // 3:h // 2, w // 4:w // 2] = rng.integers(0, 256, (h // 2 - h // 3, w // 2 - w // 4, 3))
    return np.clip(a, 0, 255).astype(np.uint8)


def files():
    seed = 0
    for w, h in ((61, 47), (64, 48), (17, 33), (1, 1), (2, 3), (3, 2), (5, 70), (130, 9), (100, 83)):
        for sub in ("4:4:4", "4:2:2", "4:2:0"):
            for kind, opts in (("", {}), ("p", {"progressive": True})):
                seed += 1
                name = f"{w}x{h}_{sub.replace(':', '')}{kind}"
                yield name, Image.fromarray(picture(w, h, seed)), {"quality": (92, 60, 15, 100)[seed % 4], "subsampling": sub} | opts
    im = Image.fromarray(picture(75, 53, 77))
    yield "gray", im.convert("L"), {"quality": 90}
    yield "grayp", im.convert("L"), {"quality": 70, "progressive": True}
    yield "cmyk", im.convert("CMYK"), {"quality": 90}
    yield "rgb", im, {"quality": 90, "keep_rgb": True}
    yield "optimized", im, {"quality": 85, "optimize": True}
    yield "restart", im, {"quality": 85, "restart_marker_blocks": 3}
    yield "restartp", im, {"quality": 85, "restart_marker_rows": 1, "progressive": True}
    noise = np.random.default_rng(5).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    yield "noise", Image.fromarray(noise), {"quality": 100, "subsampling": 0}
    yield "noise1", Image.fromarray(noise), {"quality": 1}


def crafted():
    """Files that Pillow reads but does not write."""
    out = io.BytesIO()
    Image.fromarray(picture(64, 64, 9)).convert("CMYK").save(out, "JPEG", quality=90)
    data = bytearray(out.getvalue())
    data[data.index(b"Adobe") + 11] = 2
    yield "ycck", bytes(data)
    at = data.index(b"\xff\xee")
    yield "cmyk_plain", bytes(data[:at] + data[at + 16:])
    # 4:4:0 and 4:1:1: on 64 x 64 pixels both have as many blocks per unit and units
    # as a layout that Pillow writes, so the header alone makes one.
    for name, sub, old, new in (("440", 1, 0x21, 0x12), ("411", 2, 0x22, 0x41), ("410", 2, 0x22, 0x14)):
        out = io.BytesIO()
        Image.fromarray(picture(64, 64, 3)).save(out, "JPEG", quality=80, subsampling=sub)
        data = bytearray(out.getvalue())
        at = data.index(b"\xff\xc0") + 11
        assert data[at] == old
        data[at] = new
        yield name, bytes(data)


def decoded(data, n):
    im = Image.open(io.BytesIO(data))
    if n > 1:
        w, h = im.size
        im.decoderconfig = (n, 0)
        im._size = ((w + n - 1) // n, (h + n - 1) // n)
        im.tile = [t._replace(extents=(0, 0) + im.size) for t in im.tile]
    im.load()
    a = np.asarray(im if im.mode == "L" else im.convert("RGB"))
    return f"{im.width} {im.height} {1 if a.ndim == 2 else 3}\n".encode() + a.tobytes()


def main():
    with zipfile.ZipFile(HERE / "gold.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        def add(name, data):
            z.writestr(zipfile.ZipInfo(name + ".jpg", (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
            for n in (1, 2, 4, 8):
                z.writestr(zipfile.ZipInfo(f"{name}.{n}", (1980, 1, 1, 0, 0, 0)), decoded(data, n), zipfile.ZIP_DEFLATED)
        for name, im, opts in files():
            out = io.BytesIO()
            im.save(out, "JPEG", **opts)
            add(name, out.getvalue())
        for name, data in crafted():
            add(name, data)


if __name__ == "__main__":
    main()
