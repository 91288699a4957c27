"""Rendered images of text for compare.py: what a reader of documents, labels and screens meets."""

import io

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

WORDS = (
    "Invoice 2041", "Total: 318.50 EUR", "Main Street 17", "Date 2024-11-28", "OPEN 24 HOURS", "Exit", "Do not bend", "www.example.org", "Serial A7-009X", "Net weight 500 g",
    "Handle with care", "Gate B12", "Platform 4", "Next stop: Harbour", "PASSWORD", "batch 16, seed 7", "Reading of 42 lines", "Keep dry", "Made in Norway", "Flight LH 4711",
)  # fmt: skip


def font(size):
    return ImageFont.load_default(size)


def page(w, h, lines, size, color=(20, 20, 20), back=(250, 248, 240), left=20, gap=1.6):
    img = Image.new("RGB", (w, h), back)
    draw = ImageDraw.Draw(img)
    for i, text in enumerate(lines):
        draw.text((left, 15 + i * size * gap), text, font=font(size), fill=color)
    return img


def turned(text, size, degrees, w=420, h=320):
    layer = Image.new("L", (w, h), 0)
    ImageDraw.Draw(layer).text((w / 2, h / 2), text, font=font(size), fill=255, anchor="mm")
    img = Image.new("RGB", (w, h), (235, 240, 245))
    img.paste((30, 30, 90), mask=layer.rotate(degrees, Image.Resampling.BICUBIC))
    return img


def tilted(text, size):
    """A label seen from the side."""
    img = np.array(page(400, 120, [text], size))
    m = cv2.getPerspectiveTransform(np.float32([[0, 0], [400, 0], [400, 120], [0, 120]]), np.float32([[40, 60], [420, 20], [440, 190], [20, 170]]))
    return Image.fromarray(cv2.warpPerspective(img, m, (460, 240), borderValue=(90, 110, 100)))


def stroked(lines, scale):
    img = np.full((60 * len(lines) + 20, 560, 3), (225, 235, 230), np.uint8)
    for i, text in enumerate(lines):
        cv2.putText(img, text, (20, 55 + 60 * i), cv2.FONT_HERSHEY_SIMPLEX, scale, (40, 10, 10), 2, cv2.LINE_AA)
    return Image.fromarray(img)


def noisy(img, seed, sigma=14):
    a = np.array(img).astype(np.float32) + np.random.default_rng(seed).normal(0, sigma, (img.height, img.width, 3))
    return Image.fromarray(np.clip(a, 0, 255).astype(np.uint8))


def shaded(img):
    a = np.array(img).astype(np.float32) * np.linspace(0.45, 1, img.width)[None, :, None]
    return Image.fromarray(a.astype(np.uint8))


def columns(seed):
    img = Image.new("RGB", (900, 420), "white")
    draw, rng = ImageDraw.Draw(img), np.random.default_rng(seed)
    for x in (30, 330, 630):
        for y in range(20, 400, 42):
            draw.text((x + int(rng.integers(0, 9)), y + int(rng.integers(0, 7))), str(rng.choice(WORDS)), font=font(int(rng.integers(17, 27))), fill="black")
    return img


def vertical():
    """A line that runs upwards, beside one that does not."""
    img = page(300, 360, ["Left margin"], 26, left=110)
    side = Image.new("RGB", (320, 40), (250, 248, 240))
    ImageDraw.Draw(side).text((5, 3), "Written upwards", font=font(28), fill=(10, 10, 10))
    img.paste(side.rotate(90, expand=True), (20, 20))
    return img


def all_images():
    """Yields a name and the pixels of each image."""
    yield "one line", page(360, 70, WORDS[:1], 32)
    yield "page", page(640, 480, WORDS[:9], 28)
    yield "small print", page(420, 300, WORDS[5:17], 13, gap=1.7)
    yield "two sizes", page(700, 240, WORDS[10:13], 44)
    yield "white on blue", page(500, 200, WORDS[3:7], 26, (255, 255, 255), (20, 40, 120))
    yield "faint", page(500, 160, WORDS[12:15], 26, (150, 150, 150), (200, 200, 200))
    yield "upside down", page(420, 160, WORDS[1:4], 30).rotate(180)
    yield "turned 15", turned("Handle with care", 34, 15)
    yield "turned -30", turned("Gate B12", 40, -30)
    yield "turned 45", turned("Keep dry", 40, 45)
    yield "turned 90", turned("Platform 4", 40, 90)
    yield "turned 180", turned("Do not bend", 36, 180)
    yield "from the side", tilted("Serial A7-009X", 40)
    yield "upwards", vertical()
    yield "three columns", columns(3)
    yield "three columns again", columns(4)
    yield "noise", noisy(page(520, 200, WORDS[6:10], 30), 1)
    yield "more noise", noisy(page(520, 200, WORDS[14:18], 26), 2, 30)
    yield "shade", shaded(page(560, 220, WORDS[15:19], 32))
    yield "strokes", stroked(WORDS[:4], 1.1)
    yield "thin strokes", stroked(WORDS[16:20], 0.8)
    yield "wide", page(1400, 60, ["  ".join(WORDS[:6])], 30)
    yield "low", page(240, 24, ["Exit 24 h"], 15, left=8, gap=1).crop((0, 8, 240, 32))
    yield "large", page(2400, 900, WORDS[:6], 90)
    yield "gray", page(400, 120, WORDS[17:19], 28).convert("L")
    yield "tiny", page(60, 22, ["A1"], 14, left=10).crop((0, 6, 60, 28))
    yield "nothing", Image.new("RGB", (300, 200), (240, 240, 240))
    yield "one long line", page(900, 80, [" ".join(WORDS[3:7])], 26)
    yield "chinese digits", page(500, 150, ["2024 / 11 / 28", "No. 0 1 2 3 4 5"], 40)


def encoded(name, img):
    """Returns the file of an image: every third one is a JPEG file."""
    out = io.BytesIO()
    if sum(map(ord, name)) % 3 == 0:
        img.save(out, "JPEG", quality=88)
    else:
        img.save(out, "PNG")
    return out.getvalue()
