#!/usr/bin/env python3
"""Write the pictures of text that the bench of the example ocr reads: bench/testdata/ocr, of 5 to 30 lines each.

Run by hand after a change; needs Pillow 13.0.0. The files are committed. The texts are in the font and the characters that the
example's recogniser knows.
"""

import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

FOLDER = Path(__file__).resolve().parent.parent / "bench/testdata/ocr"
WORDS = (
    "INVOICE TOTAL DATE GATE FLIGHT SERIAL BREAD MILK APPLES COFFEE PLATFORM HARBOUR STREET OPEN EXIT FRAGILE BATCH WEIGHT NET "
    "DELIVERY ORDER CUSTOMER NUMBER ROOM FLOOR HANDLE WITH CARE KEEP DRY MADE IN NORWAY NEXT STOP MAIN TRACK"
).split()


def text(rng, long):
    parts = rng.sample(WORDS, rng.randint(1, 3 if long else 1))
    if rng.random() < 0.5:
        parts.append(rng.choice([f"{rng.randint(1, 99)}.{rng.randint(10, 99)}", f"{rng.randint(100, 9999)}", f"A-{rng.randint(10, 99)}"]))
    return " ".join(parts)


def page(rng, lines, columns, size, gap):
    rows = -(-lines // columns)
    w, h = 420 * columns, 40 + rows * gap
    img = Image.new("RGB", (w, h), (250, 248, 240))
    for i in range(lines):
        at = 24 + i % columns * 410, 20 + i // columns * gap
        ImageDraw.Draw(img).text(at, text(rng, columns == 1), font=ImageFont.load_default(size + rng.randint(0, 4)), fill=(25, 25, 35))
    return img


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    for lines, columns, size, gap in ((5, 1, 28, 56), (9, 1, 28, 56), (12, 2, 26, 54), (16, 2, 26, 54), (22, 2, 26, 54), (30, 2, 26, 54)):
        page(rng, lines, columns, size, gap).save(FOLDER / f"lines-{lines:02}.jpg", quality=92)


main()
