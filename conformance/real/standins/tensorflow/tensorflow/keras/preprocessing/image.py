"""Images as arrays."""

import numpy as np
from PIL import Image


def load_img(path, target_size):
    return Image.open(path).convert("RGB").resize((target_size[1], target_size[0]), Image.NEAREST)


def img_to_array(image):
    return np.asarray(image, np.float32)
