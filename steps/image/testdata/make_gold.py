#!/usr/bin/env python3
"""Makes the gold files of decode_resize with Pillow 13.0.0 and numpy.

    python3 -m venv /tmp/gold && /tmp/gold/bin/pip install Pillow==13.0.0 numpy==2.4.6
    /tmp/gold/bin/python make_gold.py

in/NAME.png|jpg are inputs; out/NAME_WxH_COLOR.png is what Pillow makes of them
by convert(COLOR).resize((W, H), BILINEAR).
"""
import io
import pathlib
import shutil

import numpy as np
import PIL
from PIL import Image

assert PIL.__version__ == "13.0.0", PIL.__version__
HERE = pathlib.Path(__file__).parent
IN, OUT = HERE / "in", HERE / "out"


def picture(w, h, seed):
    """Smooth colour, hard edges and a patch of noise: what filters get wrong."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([
        127 + 127 * np.sin(x / 7 + seed),
        127 + 127 * np.cos(y / 5 - x / 11),
        255 * ((x // 6 + y // 4) % 2),
    ], -1)
    a[h // 3:h // 2, w // 4:w // 2] = rng.integers(0, 256, (h // 2 - h // 3, w // 2 - w // 4, 3))
    a[-3:, -3:] = 255
    return np.clip(a, 0, 255).astype(np.uint8)


def inputs():
    rgb = Image.fromarray(picture(61, 47, 1))
    alpha = Image.fromarray(picture(61, 47, 2)[:, :, 0])
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    gray = rgb.convert("L")
    la = gray.copy()
    la.putalpha(alpha)
    palette = rgb.quantize(16)
    rgb.save(IN / "rgb.png")
    rgba.save(IN / "rgba.png")
    gray.save(IN / "gray.png")
    la.save(IN / "graya.png")
    palette.save(IN / "palette.png")
    rgb.quantize(200).save(IN / "palettea.png", transparency=bytes(range(200)))
    gray.convert("1").save(IN / "bits.png")
    rgb.save(IN / "keyed.png", transparency=rgb.getpixel((0, 0)))
    gray.save(IN / "grayjpg.jpg", quality=90)
    for name, sub in (("j444", 0), ("j422", 1), ("j420", 2)):
        rgb.save(IN / f"{name}.jpg", quality=92, subsampling=sub)
    rgb.crop((0, 0, 33, 18)).save(IN / "even420.jpg", quality=92, subsampling=2)
    rgb.crop((0, 0, 3, 5)).save(IN / "tiny420.jpg", quality=92, subsampling=2)
    rgb.save(IN / "progressive.jpg", quality=85, progressive=True)
    rgb.convert("CMYK").save(IN / "cmyk.jpg", quality=92)


def flat(w, h):
    """Blocks of one colour: every inverse transform gets them right to the bit,
    so that upsampling and colour conversion can be compared exactly."""
    rng = np.random.default_rng(3)
    blocks = rng.integers(0, 256, (h // 16 + 1, w // 16 + 1, 3)).astype(np.uint8)
    return Image.fromarray(blocks.repeat(16, 0).repeat(16, 1)[:h, :w])


def flat_inputs():
    for name, sub in (("flat444", 0), ("flat422", 1), ("flat420", 2)):
        flat(75, 53).save(IN / f"{name}.jpg", quality=100, subsampling=sub)
    # Pillow writes no 4:4:0 and no 4:1:1. On 64 x 64 pixels both have as many
    # blocks per unit and units as a layout it writes, so the header alone makes one.
    for name, sub, old, new in (("flat440", 1, 0x21, 0x12), ("flat411", 2, 0x22, 0x41)):
        file = io.BytesIO()
        flat(64, 64).save(file, "JPEG", quality=100, subsampling=sub)
        data = bytearray(file.getvalue())
        at = data.index(b"\xff\xc0") + 11
        assert data[at] == old
        data[at] = new
        (IN / f"{name}.jpg").write_bytes(data)


SIZES = ((61, 47), (17, 13), (1, 1), (100, 80), (8, 90), (90, 8), (60, 3))


def main():
    for d in (IN, OUT):
        shutil.rmtree(d, ignore_errors=True)
        d.mkdir()
    inputs()
    flat_inputs()
    for path in sorted(IN.iterdir()):
        for mode, color in (("RGB", "rgb"), ("L", "gray")):
            sizes = SIZES if path.stem in ("rgb", "gray") else SIZES[:2]
            if path.stem.startswith("flat"):
                sizes = [Image.open(path).size]
            for w, h in sizes:
                im = Image.open(path).convert(mode).resize((w, h), Image.Resampling.BILINEAR)
                im.save(OUT / f"{path.name.replace('.', '_')}_{w}x{h}_{color}.png", optimize=True)


if __name__ == "__main__":
    main()
