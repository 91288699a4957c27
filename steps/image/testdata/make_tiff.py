#!/usr/bin/env python3
"""Makes the gold files of TIFF with Pillow 13.0.0 and numpy.

    python3 -m venv /tmp/gold && /tmp/gold/bin/pip install Pillow==13.0.0 numpy==2.4.6
    /tmp/gold/bin/python make_tiff.py

tiff.zip holds files as make_formats.py's formats.zip does. Most are written here, since Pillow reads more kinds than it
writes.
"""
import io
import itertools
import pathlib
import struct
import zipfile
import zlib

import numpy as np
from PIL import Image

from make_formats import H, W, gold, saved
from make_gold import picture

HERE = pathlib.Path(__file__).parent
NONE, LZW, JPEG, DEFLATE, PACKBITS = 1, 5, 7, 8, 32773


def lzw(data):
    """TIFF's LZW: codes of 9 to 12 bits, the highest bit first, widths that grow one code early."""
    out, bits, have = bytearray(), 0, 0

    def put(code, width):
        nonlocal bits, have
        bits, have = bits << width | code, have + width
        while have >= 8:
            have -= 8
            out.append(bits >> have & 255)

    table, word = {bytes([i]): i for i in range(256)}, b""
    width = lambda: max(len(table) + 2, 1 << 8).bit_length()  # Entry 511 is the first behind which codes have 10 bits.
    put(256, 9)
    for b in data:
        if word + bytes([b]) in table:
            word += bytes([b])
            continue
        put(table[word], width())
        table[word + bytes([b])] = len(table) + 2
        word = bytes([b])
        if len(table) + 2 == 4095:
            put(256, 12)
            table = {bytes([i]): i for i in range(256)}
    put(table[word], width())
    put(257, width())
    put(0, 7)
    return bytes(out)


def packbits(data):
    out = b""
    for value, group in itertools.groupby(data):
        n = len(list(group))
        while n:
            k = min(n, 128)
            out += bytes([257 - k & 255, value]) if k > 1 else bytes([0, value])
            n -= k
    return out


def packed(a, bits, order, predictor, fill):
    """The bytes of a segment [rows, columns, samples]."""
    if predictor == 3:
        rows = [a[i].astype(">f4").tobytes() for i in range(len(a))]
        rows = [np.frombuffer(r, np.uint8).reshape(-1, 4).T.reshape(-1) for r in rows]
        n = a.shape[2]
        return b"".join(np.concatenate([r[:n], r[n:] - r[:-n]]).tobytes() for r in rows)
    if predictor == 2:
        u = a.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[a.itemsize])
        a = np.concatenate([u[:, :1], u[:, 1:] - u[:, :-1]], axis=1)
    if bits < 8:
        rows = []
        for row in a[:, :, 0]:
            text = "".join(f"{v:0{bits}b}" for v in row)
            text += "0" * (-len(text) % 8)
            rows.append(bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8)))
        data = b"".join(rows)
    else:
        data = a.astype(a.dtype.newbyteorder(order)).tobytes()
    return bytes(int(f"{b:08b}"[::-1], 2) for b in data) if fill == 2 else data


ENCODERS = {NONE: bytes, LZW: lzw, DEFLATE: zlib.compress, PACKBITS: packbits}


def tiff(a, photometric, *, order="<", bits=None, form=None, extra=None, planar=1, rows=None, tile=None, compression=NONE,
         predictor=None, fill=None, palette=None, more=(), encode=None, counts=True):
    """A file of an array [H, W, samples]. encode makes the bytes of a segment instead of the compression."""
    a = a if a.ndim == 3 else a[:, :, None]
    h, w, samples = a.shape
    bits = bits or 8 * a.itemsize
    tw, th = tile or (w, rows or h)
    segments = []
    for plane in [a] if planar == 1 else [a[:, :, i:i + 1] for i in range(samples)]:
        for y, x in itertools.product(range(0, h, th), range(0, w, tw)):
            part = plane[y:y + th, x:x + tw]
            if tile:
                part = np.pad(part, ((0, th - part.shape[0]), (0, tw - part.shape[1]), (0, 0)), mode="edge")
            part = np.ascontiguousarray(part)
            segments.append(encode(part) if encode else ENCODERS[compression](packed(part, bits, order, predictor, fill)))
    tags = {256: (4, [w]), 257: (4, [h]), 258: (3, [bits] * samples), 259: (3, [compression]), 262: (3, [photometric]),
            277: (3, [samples]), 284: (3, [planar])}
    tags |= {322: (3, [tw]), 323: (3, [th]), 324: None, 325: None} if tile else {273: None, 278: (4, [th]), 279: None}
    if form:
        tags[339] = 3, [form] * samples
    if extra is not None:
        tags[338] = 3, extra
    if predictor:
        tags[317] = 3, [predictor]
    if fill:
        tags[266] = 3, [fill]
    if palette is not None:
        tags[320] = 3, palette
    tags |= dict(more)
    at = 8
    offsets = []
    for s in segments:
        offsets.append(at)
        at += len(s) + len(s) % 2
    places, sizes = (324, 325) if tile else (273, 279)
    tags[places], tags[sizes] = (4, offsets), (4, [len(s) for s in segments])
    if not counts:
        del tags[sizes]
    body = b"".join(s + b"\0" * (len(s) % 2) for s in segments)
    directory, values = b"", b""
    start = at + 2 + 12 * len(tags) + 4
    for tag, (kind, numbers) in sorted(tags.items()):
        data = numbers if kind == 7 else struct.pack(f"{order}{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        directory += struct.pack(order + "HHI", tag, kind, len(numbers))
        if len(data) <= 4:
            directory += data.ljust(4, b"\0")
        else:
            directory += struct.pack(order + "I", start + len(values))
            values += data + b"\0" * (len(data) % 2)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, at)
    return head + body + struct.pack(order + "H", len(tags)) + directory + struct.pack(order + "I", 0) + values


def jpegs(mode, **opts):
    """Segments as JPEG files of their own; the tags of sampling that libtiff wants are the caller's."""
    return lambda part: saved(Image.fromarray(part if part.shape[2] > 1 else part[:, :, 0], mode), "JPEG", quality=90, **opts)


def files():
    a = picture(W, H, 6)
    gray, alpha = a[:, :, 1], picture(W, H, 7)[:, :, :1]
    la, rgba = np.dstack([gray, alpha]), np.dstack([a, alpha])
    deep = np.random.default_rng(8).integers(0, 1 << 16, (H, W, 4)).astype(np.uint16)
    cmyk = np.asarray(Image.fromarray(a).convert("CMYK")) ^ (a[:, :, :1] >> 3)
    real = (a[:, :, 0].astype(np.float32) * 1.7 - 60.5)
    real[3, 4:9] = np.nan, np.inf, -np.inf, 254.999, 255.001

    for order, name in (("<", ""), (">", "big")):
        yield f"cmyk{name}", tiff(cmyk, 5, order=order)
        yield f"cmyk16{name}", tiff(deep, 5, order=order)
        yield f"float{name}", tiff(real, 1, order=order, form=3)
        yield f"la{name}", tiff(la, 1, order=order, extra=[2])
        yield f"rgb16{name}", tiff(deep[:, :, :3], 2, order=order, rows=7)
        yield f"rgb16predicted{name}", tiff(deep[:, :, :3], 2, order=order, compression=LZW, predictor=2, rows=9)
        yield f"rgba16{name}", tiff(deep, 2, order=order, extra=[2])
        yield f"premultiplied16{name}", tiff(deep, 2, order=order, extra=[1], compression=DEFLATE)
    yield "floatpredicted", tiff(real, 1, form=3, compression=DEFLATE, predictor=3)
    # Pillow misreads compressed floats that are big-endian and alpha in planes beside gray: what it makes of the same
    # samples otherwise.
    yield "floatpredictedbig", tiff(real, 1, order=">", form=3, compression=DEFLATE, predictor=3), tiff(real, 1, form=3)
    yield "laplanes", tiff(la, 1, extra=[2], planar=2, compression=LZW, rows=9), tiff(la, 1, extra=[2])
    yield "cmykx", tiff(np.dstack([cmyk, alpha]), 5, extra=[0], compression=LZW)
    yield "cmykplanes", tiff(cmyk, 5, planar=2, compression=DEFLATE, rows=10)
    yield "cmyktiles", tiff(cmyk, 5, tile=(16, 32), compression=PACKBITS)
    yield "floatwhite", tiff(real, 0, form=3)
    yield "floatlzw", tiff(real, 1, form=3, compression=LZW, rows=8)
    yield "floattiles", tiff(real, 1, form=3, tile=(32, 16), compression=DEFLATE, predictor=3)
    yield "lax", tiff(la, 1, extra=[0])
    yield "latiles", tiff(la, 1, extra=[2], tile=(16, 16), compression=DEFLATE, predictor=2)
    yield "premultiplied", tiff(rgba, 2, extra=[1])
    yield "rgbx", tiff(rgba, 2, extra=[0])
    yield "rgbaxx", tiff(np.dstack([rgba, la]), 2, extra=[2, 0, 0], compression=LZW)
    yield "rgba", tiff(rgba, 2, compression=PACKBITS, rows=5)
    yield "corel", tiff(rgba, 2, extra=[999])
    yield "rgbplanes", tiff(a, 2, planar=2, rows=10)
    yield "rgbaplanes", tiff(rgba, 2, planar=2, extra=[2], compression=PACKBITS)
    yield "rgb16planes", tiff(deep[:, :, :3], 2, planar=2, compression=DEFLATE, predictor=2)
    yield "rgbplanestiles", tiff(a, 2, planar=2, tile=(16, 16), compression=LZW)
    yield "rgbtiles", tiff(a, 2, tile=(32, 16))
    yield "uncounted", tiff(a, 2, counts=False)
    yield "reversed", tiff(a, 2, fill=2, rows=9)
    yield "white", tiff(gray, 0)
    for bits in (1, 2, 4):
        few = gray >> (8 - bits)
        yield f"gray{bits}", tiff(few, 1, bits=bits, rows=4)
        yield f"white{bits}", tiff(few, 0, bits=bits, compression=DEFLATE)
        yield f"tiles{bits}", tiff(few, 1, bits=bits, tile=(16, 16), compression=PACKBITS)
        yield f"reversed{bits}", tiff(few, 1, bits=bits, fill=2)
        yield f"palette{bits}", tiff(few, 3, bits=bits, palette=colors(1 << bits))
    yield "palette8", tiff(gray, 3, palette=colors(256), compression=LZW, predictor=2)
    yield "palettealpha", tiff(la, 3, extra=[2], palette=colors(256))
    yield "palettex", tiff(la, 3, extra=[0], palette=colors(256))
    yield from jpeg_files(a, gray, cmyk)


def colors(n):
    return [int(v) for v in np.random.default_rng(n).integers(0, 1 << 16, 3 * n)]


def jpeg_files(a, gray, cmyk):
    rgb = Image.fromarray(a)
    for name, im in ("rgb", rgb), ("gray", rgb.convert("L")), ("cmyk", Image.fromarray(cmyk, "CMYK")):
        yield f"jpeg{name}", saved(im, "TIFF", compression="jpeg", quality=85)
        yield f"jpeg{name}strips", saved(im, "TIFF", compression="jpeg", quality=85, strip_size=45 * 16)
    for name, n, tag in ("444", 0, [1, 1]), ("422", 1, [2, 1]), ("420", 2, [2, 2]):
        more = {530: (3, tag)}
        yield f"jpeg{name}", tiff(a, 6, compression=JPEG, rows=16, more=more, encode=jpegs("RGB", subsampling=n))
        yield f"jpeg{name}tiles", tiff(a, 6, compression=JPEG, tile=(32, 16), more=more, encode=jpegs("RGB", subsampling=n))
    yield "jpegprogressive", tiff(a, 6, compression=JPEG, rows=16, more={530: (3, [1, 1])}, encode=jpegs("RGB", subsampling=0, progressive=True))
    # Three samples that are RGB, whatever the JPEG's own header says.
    yield "jpegasrgb", tiff(a, 2, compression=JPEG, rows=16, encode=jpegs("RGB", subsampling=0))
    yield "jpegwhite", tiff(gray, 0, compression=JPEG, tile=(16, 16), encode=jpegs("L"))
    yield "jpegink", tiff(cmyk, 5, compression=JPEG, rows=8, encode=jpegs("CMYK", subsampling=0))


def main():
    with zipfile.ZipFile(HERE / "tiff.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, data, *readable in files():
            for entry, content in gold(name + ".tif", data, *readable):
                z.writestr(zipfile.ZipInfo(entry, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
