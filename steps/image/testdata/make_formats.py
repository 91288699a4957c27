#!/usr/bin/env python3
"""Makes the gold files of every format with Pillow 13.0.0 and numpy.

    python3 -m venv /tmp/gold && /tmp/gold/bin/pip install Pillow==13.0.0 numpy==2.4.6
    /tmp/gold/bin/python make_formats.py

formats.zip holds files NAME.EXT; NAME.EXT.rgb is "WIDTH HEIGHT\\n" and the samples of
exif_transpose(im).convert("RGB"); NAME.EXT.over, of those that have alpha, is the same
pasted over the colour 10, 200, 30.
"""
import io
import pathlib
import struct
import zipfile
import zlib

import numpy as np
import PIL
from PIL import Image, ImageOps

from make_gold import picture

assert PIL.__version__ == "13.0.0", PIL.__version__
HERE = pathlib.Path(__file__).parent
W, H = 45, 31


def saved(im, fmt, **opts):
    out = io.BytesIO()
    im.save(out, fmt, **opts)
    return out.getvalue()


def exif(n):
    e = Image.Exif()
    e[0x112] = n
    return e


def files():
    rgb = Image.fromarray(picture(W, H, 4))
    gray = rgb.convert("L")
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(picture(W, H, 5)[:, :, 0]))
    la = gray.copy()
    la.putalpha(rgba.getchannel("A"))
    bits = gray.convert("1")
    pal = rgb.quantize(16)
    for n in range(1, 9):
        yield f"turn{n}.jpg", saved(rgb, "JPEG", exif=exif(n), quality=95)
    yield "turn6gray.jpg", saved(gray, "JPEG", exif=exif(6), quality=95)
    yield "turn7.png", saved(rgb, "PNG", exif=exif(7))
    yield "turn5alpha.png", saved(rgba, "PNG", exif=exif(5))
    yield "turn8.webp", saved(rgb, "WEBP", exif=exif(8), lossless=True)
    yield "turn3.tif", saved(rgb, "TIFF", tiffinfo={0x112: 3})
    yield "icc.jpg", saved(rgb, "JPEG", icc_profile=b"no profile at all")
    yield "icc.png", saved(rgb, "PNG", icc_profile=b"no profile at all")

    yield "alpha.png", saved(rgba, "PNG")
    yield "grayalpha.png", saved(la, "PNG")
    yield "palettealpha.png", saved(rgb.quantize(200), "PNG", transparency=bytes(range(200)))
    yield "key.png", saved(rgb, "PNG", transparency=rgb.getpixel((0, 0)))
    yield "graykey.png", saved(gray, "PNG", transparency=gray.getpixel((0, 0)))
    for b in (1, 2, 4):
        yield f"palette{b}.png", saved(rgb.quantize(2 ** b), "PNG", bits=b)
    yield "animated.png", saved(rgb, "PNG", save_all=True, append_images=[gray.convert("RGB")])

    deep = np.random.default_rng(3).integers(0, 1 << 16, (H, W, 4)).astype(np.uint16)
    yield "deep.png", png(2, deep[:, :, :3])
    yield "deepalpha.png", png(6, deep)
    yield "deepgrayalpha.png", png(4, deep[:, :, :2])

    yield "plain.gif", saved(pal, "GIF")
    yield "interlaced.gif", saved(pal, "GIF", interlace=1)
    yield "full.gif", saved(rgb.quantize(256), "GIF", interlace=0)
    yield "gray.gif", saved(gray, "GIF")
    yield "bits.gif", saved(bits, "GIF")
    yield "key.gif", saved(pal, "GIF", transparency=3)
    yield "animated.gif", saved(pal, "GIF", save_all=True, append_images=[rgb.rotate(90).quantize(8)], loop=0)
    small = bytearray(saved(pal, "GIF", transparency=3))
    small[6:10] = struct.pack("<HH", W + 9, H + 5)
    at = small.index(b"\x00\x2c") + 2
    small[at:at + 4] = struct.pack("<HH", 6, 2)
    yield "offset.gif", bytes(small)
    at = small.index(b"!\xf9")
    yield "offsetplain.gif", bytes(small[:at] + small[at + 8:])

    for q in (5, 50, 95):
        yield f"lossy{q}.webp", saved(rgb, "WEBP", quality=q)
    yield "odd.webp", saved(rgb.crop((0, 0, 1, 1)), "WEBP", quality=80)
    yield "tall.webp", saved(rgb.crop((0, 0, 2, 31)), "WEBP", quality=80)
    yield "even.webp", saved(rgb.crop((0, 0, 44, 30)), "WEBP", quality=80, exif=exif(1))
    yield "lossyalpha.webp", saved(rgba, "WEBP", quality=80)
    yield "lossless.webp", saved(rgb, "WEBP", lossless=True)
    yield "losslessalpha.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "losslesspalette.webp", saved(pal.convert("RGB"), "WEBP", lossless=True)
    yield "animated.webp", saved(rgb, "WEBP", save_all=True, append_images=[gray.convert("RGB")], quality=70)
    yield "animatedalpha.webp", saved(rgba, "WEBP", save_all=True, append_images=[rgba.rotate(180)], quality=70)

    yield "rgb.bmp", saved(rgb, "BMP")
    yield "gray.bmp", saved(gray, "BMP")
    yield "bits.bmp", saved(bits, "BMP")
    yield "palette.bmp", saved(pal, "BMP")
    yield "alpha.bmp", saved(rgba, "BMP")
    yield from bitmaps(np.asarray(rgb), np.asarray(rgb.quantize(16)), rgb.quantize(16).getpalette())

    for c in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        yield f"rgb_{c}.tif", saved(rgb, "TIFF", compression=c)
        yield f"gray_{c}.tif", saved(gray, "TIFF", compression=c)
    for c in (None, "group3", "group4"):
        yield f"bits_{c}.tif", saved(bits, "TIFF", compression=c)
    yield "palette.tif", saved(rgb.quantize(256), "TIFF")
    yield "alpha.tif", saved(rgba, "TIFF")
    yield "alphalzw.tif", saved(rgba, "TIFF", compression="tiff_lzw")
    yield "predicted.tif", saved(rgb, "TIFF", compression="tiff_lzw", tiffinfo={317: 2})
    yield "strips.tif", saved(rgb, "TIFF", compression="tiff_lzw", strip_size=400)


def png(kind, a):
    """A PNG of 16-bit samples, which Pillow reads but does not write."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in a)
    head = struct.pack(">IIBBBBB", a.shape[1], a.shape[0], 16, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def bitmap(depth, compression, body, extra=b"", height=H, colours=0):
    start = 14 + 40 + len(extra)
    head = struct.pack("<2sIHHI", b"BM", start + len(body), 0, 0, start)
    return head + struct.pack("<IiiHHIIiiII", 40, W, height, 1, depth, compression, len(body), 0, 0, colours, 0) + extra + body


def rows(lines):
    """Lines of bytes, padded to four."""
    return b"".join(line + b"\0" * (-len(line) % 4) for line in lines)


def bitmaps(a, index, palette):
    """Layouts that Pillow reads but does not write."""
    r, g, b = (a[::-1, :, i].astype(np.uint32) for i in range(3))
    yield "x555.bmp", bitmap(16, 0, rows([x.tobytes() for x in ((r >> 3 << 10) | (g >> 3 << 5) | b >> 3).astype("<u2")]))
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    yield "x565.bmp", bitmap(16, 3, rows([x.tobytes() for x in ((r >> 3 << 11) | (g >> 2 << 5) | b >> 3).astype("<u2")]), masks)
    masks = struct.pack("<III", 0xFF000000, 0xFF0000, 0xFF00)
    yield "fields32.bmp", bitmap(32, 3, rows([x.tobytes() for x in (r << 24 | g << 16 | b << 8).astype("<u4")]), masks)
    yield "plain32.bmp", bitmap(32, 0, rows([x.tobytes() for x in (r << 16 | g << 8 | b | 0x40 << 24).astype("<u4")]))
    yield "down.bmp", bitmap(24, 0, rows([line[:, ::-1].tobytes() for line in a]), height=-H)
    pal = b"".join(bytes(palette[3 * i:3 * i + 3][::-1]) + b"\0" for i in range(16))
    nibbles = [bytes(int(x) << 4 | int(y) for x, y in zip(line[::2], [*line[1::2], 0])) for line in index[::-1]]
    yield "four.bmp", bitmap(4, 0, rows(nibbles), pal, colours=16)
    runs = b""
    for i, line in enumerate(index[::-1]):
        x = 0
        while x < W:
            n = 1
            while x + n < W and line[x + n] == line[x] and n < 255:
                n += 1
            if n == 1 and x + 5 <= W and i % 2:
                runs += bytes([0, 5, *line[x:x + 5], 0])
                n = 5
            else:
                runs += bytes([n, line[x]])
            x += n
        runs += b"\0\0"
    yield "rle8.bmp", bitmap(8, 1, runs + b"\0\1", pal, colours=16)
    runs = b"".join(bytes([0, W]) + n + b"\0" * (len(n) % 2) + b"\0\0" for n in nibbles[:-1])
    yield "rle4.bmp", bitmap(4, 2, runs + bytes([W, 0x37]) + b"\0\0\0\1", pal, colours=16)
    core = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 26 + 48) + struct.pack("<IHHHH", 12, W, H, 1, 4)
    yield "os2.bmp", core + b"".join(bytes(palette[3 * i:3 * i + 3][::-1]) for i in range(16)) + rows(nibbles)


def raw(im):
    return f"{im.width} {im.height}\n".encode() + im.tobytes()


def gold(name, data, readable=None):
    """The entries of a file: itself and what Pillow makes of it, or of another one."""
    im = ImageOps.exif_transpose(Image.open(io.BytesIO(readable or data)))
    yield name, data
    yield name + ".rgb", raw(im.convert("RGB"))
    if im.has_transparency_data:
        over = Image.new("RGB", im.size, (10, 200, 30))
        im = im.convert("RGBA")
        over.paste(im.convert("RGB"), mask=im.getchannel("A"))
        yield name + ".over", raw(over)


def main():
    with zipfile.ZipFile(HERE / "formats.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, data in files():
            for entry, content in gold(name, data):
                z.writestr(zipfile.ZipInfo(entry, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
