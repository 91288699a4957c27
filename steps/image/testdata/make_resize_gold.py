#!/usr/bin/env python3
"""Makes resize.gold.gz: what Pillow 13.0.0, numpy 2.4.6 and, where that is what models were trained behind,
OpenCV 5.0.0 make of pictures.

    python3 -m venv /tmp/gold
    /tmp/gold/bin/pip install Pillow==13.0.0 numpy==2.4.6 opencv-python-headless==5.0.0.93
    /tmp/gold/bin/python make_resize_gold.py

A record is a line of JSON and as many raw bytes as it says: first pictures (name, and the shape [H,W,C] of
UINT8 samples), then cases (picture, parameters of the step, and every stride-th element of the output, dtype
uint8, float16 or float32; sha256 is that of the whole output and means that every bit must agree, else elements
may be atol apart). A case with boxes is one of crop_resize, others are of resize.

The chains of torchvision and transformers are written out from their definitions: Resize and CenterCrop on Pillow
images are Image.resize and Image.crop, ToTensor and Normalize are FP32 arithmetic.
"""
import gzip
import hashlib
import json
import pathlib

import cv2
import numpy as np
import PIL
from PIL import Image

assert (PIL.__version__, np.__version__) == ("13.0.0", "2.4.6") and cv2.__version__.startswith("5.0.0")
HERE = pathlib.Path(__file__).parent
FILTERS = {"nearest": Image.Resampling.NEAREST, "area": Image.Resampling.BOX, "bilinear": Image.Resampling.BILINEAR,
           "hamming": Image.Resampling.HAMMING, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
SAMPLINGS = {"cv_nearest": cv2.INTER_NEAREST, "cv_linear": cv2.INTER_LINEAR, "cv_cubic": cv2.INTER_CUBIC,
             "cv_area": cv2.INTER_AREA, "cv_lanczos4": cv2.INTER_LANCZOS4}
SIZES = {
    (1, 1): [(1, 1), (7, 5), (33, 1)],
    (2, 2): [(31, 31), (1, 2), (3, 3)],
    (61, 47): [(17, 13), (61, 47), (100, 80), (8, 90), (90, 8), (60, 3), (61, 20), (30, 47), (1, 47), (61, 1), (1, 1)],
    (200, 3): [(20, 30), (3, 3), (201, 2), (1, 200)],
    (3, 200): [(20, 30), (3, 3), (2, 201), (200, 1)],
    (97, 89): [(96, 88), (98, 90), (31, 29), (49, 44), (13, 88)],
    (997, 1): [(333, 1), (1000, 2), (5, 1)],
    (1, 997): [(1, 333), (2, 1000), (1, 5)],
}
records = []


def picture(w, h, seed):
    """Smooth colour, hard edges and a patch of noise: what filters get wrong."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([127 + 127 * np.sin(x / 7 + seed), 127 + 127 * np.cos(y / 5 - x / 11), 255 * ((x // 6 + y // 4) % 2)], -1)
    a[h // 3:h // 2, w // 4:w // 2] = rng.integers(0, 256, (h // 2 - h // 3, w // 2 - w // 4, 3))
    a[-3:, -3:] = 255
    return np.clip(a, 0, 255).astype(np.uint8)


def add(head, data):
    records.append(json.dumps(head | {"bytes": len(data)}).encode() + b"\n" + data)


def add_picture(name, a):
    a = np.asarray(a)
    a = a[:, :, None] if a.ndim == 2 else a
    add({"picture": name, "shape": a.shape}, a.tobytes())
    return name


def case(of, params, out, stride=1, atol=None, boxes=None):
    """Adds a case; out is the output as a numpy array in its layout."""
    out = np.ascontiguousarray(out)
    head = {"of": of, "params": params, "stride": stride, "dtype": str(out.dtype), "elements": out.size}
    head |= {"sha256": hashlib.sha256(out.tobytes()).hexdigest()} if atol is None else {"atol": atol}
    head |= {} if boxes is None else {"boxes": boxes}
    add(head, np.ascontiguousarray(out.reshape(-1)[::stride]).tobytes())


RAW = {"dtype": "uint8", "layout": "nhwc"}


def sized(w, h, **more):
    return RAW | {"width": str(w), "height": str(h)} | more


def filters():
    for (w, h), outs in SIZES.items():
        for mode in ("RGB", "L"):
            im = Image.fromarray(picture(w, h, w)).convert(mode)
            of = add_picture(f"{w}x{h} {mode}", im)
            for name, filter in FILTERS.items():
                for to in outs:
                    out = np.asarray(im.resize(to, filter, reducing_gap=None))
                    color = "gray" if mode == "L" else "rgb"
                    case(of, sized(*to, resize=name, color=color), out, stride=1 + out.size // 1500)


def gaps(im, of):
    """Pillow's two steps; 97 x 89 leaves boxes at the edges that are not whole."""
    im = im.resize((97, 89))
    of = add_picture("gaps", im)
    for to in ((20, 30), (8, 89), (97, 6), (1, 1), (11, 7)):
        for name, filter in FILTERS.items():
            for gap in (1, 1.5, 2, 3.3):
                for mode, color in (("RGB", "rgb"), ("L", "gray"), ("YCbCr", "ycbcr")):
                    if mode == "RGB" or name == "bilinear":
                        out = np.asarray(im.convert(mode).resize(to, filter, reducing_gap=gap))
                        case(of, sized(*to, resize=name, color=color, reducing_gap=str(gap)), out, stride=1 + out.size // 40)
    out = np.asarray(im.crop((3, 5, 90, 80)).resize((10, 9), FILTERS["bicubic"], reducing_gap=2))
    case(of, sized(10, 9, resize="bicubic", crop="3,5,90,80", reducing_gap="2"), out)


def opencv(im, of):
    """The samplings of OpenCV by the step's own means; steps/image/opencv compares many more sizes. Cubic without Intel's
    IPP, which makes it depend on the processor."""
    cv2.ipp.setUseIPP(False)
    a = np.asarray(im)
    four = add_picture("four", np.dstack([a, a[:, :, :1]]))
    for name, s in SAMPLINGS.items():
        for to in ((30, 20), (61, 20), (17, 61), (150, 130), (1, 1), (61, 47)):
            out = cv2.resize(a, to, interpolation=s)
            case(of, sized(*to, resize=name), out, stride=1 + out.size // 60)
            case(four, sized(*to, resize=name), out, stride=1 + out.size // 60)
            case(of, sized(*to, resize=name, color="gray"), cv2.resize(np.asarray(im.convert("L")), to, interpolation=s), stride=31)
        case(of, sized(20, 30, crop="7,5,52,40", resize=name), cv2.resize(a[5:40, 7:52], (20, 30), interpolation=s))
        out = np.full((50, 40, 3), 9, np.uint8)
        out[9:40] = cv2.resize(a, (40, 31), interpolation=s)
        case(of, sized(40, 50, fit="letterbox", fill="9", resize=name), out)
        case(of, sized(40, 40, fit="short_side", short_side="50", resize=name), cv2.resize(a, (64, 50), interpolation=s)[5:45, 12:52])
        box = [[0, 0, 61, 47], [7.2, 5.9, 51.1, 39.5]]
        out = np.stack([cv2.resize(a, (12, 10), interpolation=s), cv2.resize(a[5:40, 7:52], (12, 10), interpolation=s)])
        case(of, sized(12, 10, resize=name), out, boxes=box)


def sharp(im, of):
    """No antialiasing: OpenCV's rounding is another, hence one level of difference."""
    for to in ((30, 20), (17, 61), (150, 130)):
        out = cv2.resize(np.asarray(im), to, interpolation=cv2.INTER_LINEAR)
        case(of, sized(*to, antialias="false"), out, stride=5, atol=1)


def short_side(im, size, filter):
    w, h = im.size
    return im.resize((size, int(size * h / w)) if w <= h else (int(size * w / h), size), filter)


def center_crop(im, w, h):
    """torchvision's center_crop, whose padding is black."""
    if im.width < w or im.height < h:
        left, top = max(w - im.width, 0) // 2, max(h - im.height, 0) // 2
        padded = Image.new(im.mode, (max(w, im.width), max(h, im.height)))
        padded.paste(im, (left, top))
        im = padded
    top, left = int(round((im.height - h) / 2.0)), int(round((im.width - w) / 2.0))
    return im.crop((left, top, left + w, top + h))


def letterbox(im, w, h, fill, resize):
    """The letterbox of the YOLO family."""
    r = min(h / im.height, w / im.width)
    unpadded = int(round(im.width * r)), int(round(im.height * r))
    dw, dh = (w - unpadded[0]) / 2, (h - unpadded[1]) / 2
    out = Image.new(im.mode, (w, h), fill)
    out.paste(Image.fromarray(resize(im, unpadded)), (int(round(dw - 0.1)), int(round(dh - 0.1))))
    return out


def frames(im, of):
    bilinear = Image.Resampling.BILINEAR
    for w, h, s in ((40, 40, 41), (40, 33, 70), (41, 64, 45), (33, 47, 29)):
        out = center_crop(short_side(im, s, bilinear), w, h)
        case(of, sized(w, h, fit="short_side", short_side=str(s)), np.asarray(out))
    for w, h in ((40, 40), (41, 90), (120, 50)):
        out = letterbox(im, w, h, (1, 2, 3), lambda im, to: np.asarray(im.resize(to, bilinear)))
        case(of, sized(w, h, fit="letterbox", fill="1,2,3"), np.asarray(out))
        case(of, sized(w, h, fit="none"), np.asarray(center_crop(im, w, h)))
    for filter in FILTERS:
        out = im.crop((7, 5, 52, 40)).resize((20, 30), FILTERS[filter])
        case(of, sized(20, 30, crop="7,5,52,40", resize=filter), np.asarray(out))
    corner = Image.new("RGB", (70, 60), (9, 9, 9))
    corner.paste(im.resize((70, 54), bilinear), (0, 0))
    case(of, sized(70, 60, fit="letterbox", anchor="top_left", fill="9"), np.asarray(corner))


def colors(im, of):
    to, bilinear = (20, 30), Image.Resampling.BILINEAR
    ycc = np.asarray(im.convert("YCbCr").resize(to, bilinear))
    case(of, sized(*to, color="ycbcr"), ycc)
    case(of, sized(*to, color="gray"), np.asarray(im.convert("L").resize(to, bilinear)))
    a = np.asarray(im.resize(to, bilinear))
    case(of, sized(*to, color="bgr"), a[:, :, ::-1])
    chw = (a.astype(np.float32) / np.float32(255)).transpose(2, 0, 1)
    half = {"width": "20", "height": "30", "rounding": "each", "mean": "0.5,0.4,0.3", "std": "0.01,0.2,300"}
    mean, std = (np.float32(v).reshape(3, 1, 1) for v in ([0.5, 0.4, 0.3], [0.01, 0.2, 300]))
    case(of, half, (chw - mean) / std)
    case(of, half | {"dtype": "fp16"}, ((chw - mean) / std).astype(np.float16))
    case(of, half | {"dtype": "fp16", "layout": "nhwc"}, ((chw - mean) / std).astype(np.float16).transpose(1, 2, 0))


def boxes(im, of):
    box = [[7, 5, 52, 40], [0.5, 0.25, 12.5, 46.9], [-20, -3, 30, 300], [60, 46, 61, 47], [70, 0, 80, 10], [9, 9, 9, 12]]
    edges = [(7, 5, 52, 40), (0, 0, 13, 47), (0, 0, 30, 47), (60, 46, 61, 47)]
    outs = [np.asarray(im.crop(e).resize((12, 10), Image.Resampling.BICUBIC)) for e in edges]
    outs += [np.full((10, 12, 3), 5, np.uint8)] * 2
    case(of, sized(12, 10, resize="bicubic", fill="5"), np.stack(outs), boxes=box)


def tensor(im, mean, std, scale=None):
    a = np.asarray(im).transpose(2, 0, 1)
    x = a.astype(np.float32) / np.float32(255) if scale is None else (a.astype(np.float64) * scale).astype(np.float32)
    return (x - np.float32(mean).reshape(3, 1, 1)) / np.float32(std).reshape(3, 1, 1)


IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLIP = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def presets(im, of):
    bilinear, bicubic, nearest = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.NEAREST
    outs = {
        "resnet50": tensor(center_crop(short_side(im, 256, bilinear), 224, 224), *IMAGENET),
        "resnet50_v2": tensor(center_crop(short_side(im, 232, bilinear), 224, 224), *IMAGENET),
        "vit_b_16": tensor(center_crop(short_side(im, 256, bilinear), 224, 224), *IMAGENET),
        "clip": tensor(center_crop(short_side(im, 224, bicubic), 224, 224), *CLIP),
        "vit": tensor(im.resize((224, 224), bilinear), [0.5] * 3, [0.5] * 3, scale=1 / 255),
    }
    x = np.asarray(im.resize((224, 224), nearest)).astype(np.float32)
    outs["resnet50_keras"] = x[..., ::-1] - np.float32([103.939, 116.779, 123.68])
    outs["mobilenet_v2_keras"] = x / np.float32(127.5) - np.float32(1)
    for name, out in outs.items():
        assert out.dtype == np.float32
        case(of, {"preset": name}, out, stride=397)
    boxed = yolo(np.asarray(im)[:, :, ::-1])
    case(of, {"preset": "yolo"}, boxed.transpose(2, 0, 1).astype(np.float32) / np.float32(255), stride=797)


def yolo(a):
    """Ultralytics' LetterBox of a BGR image with auto off, and its conversion to RGB."""
    h, w = a.shape[:2]
    r = min(640 / h, 640 / w)
    to = round(w * r), round(h * r)
    dw, dh = (640 - to[0]) / 2, (640 - to[1]) / 2
    if (w, h) != to:
        a = cv2.resize(a, to, interpolation=cv2.INTER_LINEAR)
    edges = round(dh - 0.1), round(dh + 0.1), round(dw - 0.1), round(dw + 0.1)
    return cv2.copyMakeBorder(a, *edges, cv2.BORDER_CONSTANT, value=(114, 114, 114))[:, :, ::-1]


def main():
    filters()
    im = Image.open(HERE / "in" / "rgb.png")
    of = add_picture("rgb.png", im)
    for make in (sharp, frames, colors, boxes, gaps, opencv):
        make(im, of)
    for w, h in ((320, 213), (180, 333), (97, 61), (1301, 50), (33, 901)):
        im = Image.fromarray(picture(w, h, 5))
        presets(im, add_picture(f"preset {w}x{h}", im))
    (HERE / "resize.gold.gz").write_bytes(gzip.compress(b"".join(records), 9, mtime=0))


if __name__ == "__main__":
    main()
