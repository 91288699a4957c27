"""Images that are drawn here, so that none has to be fetched."""

import io

import numpy as np
from PIL import Image, ImageDraw


def signs(format="PNG"):
    """A street at night with four bright signs: an encoded image of 1700 by 1250."""
    image = Image.new("RGB", (1700, 1250), (30, 35, 40))
    draw = ImageDraw.Draw(image)
    for left, top, width, grey in ((330, 150, 200, 250), (1080, 190, 230, 210), (360, 980, 260, 230), (1050, 930, 170, 190)):
        draw.rectangle((left, top, left + width, top + 90), fill=(grey, grey, grey - 20))
        for x in range(left + 20, left + width - 20, 40):
            draw.rectangle((x, top + 20, x + 4, top + 70), fill=(20, 20, 20))
    buffer = io.BytesIO()
    image.save(buffer, format, **({"quality": 95} if format == "JPEG" else {}))
    return buffer.getvalue()


def photo():
    """A gradient as an array of 240 by 320 pixels, FP32."""
    y, x = np.mgrid[0:240, 0:320].astype(np.float32)
    return np.stack([x * 255 / 319, y * 255 / 239, (x + y) * 255 / 558], axis=2)
