"""Transforms of Pillow's images, with torchvision's roundings."""

import numpy as np
import torch
from PIL import Image


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class Resize:
    """To a size, or the shorter side to a length."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        if not isinstance(self.size, int):
            return image.resize((self.size[1], self.size[0]), Image.BILINEAR)
        w, h = image.size
        short, long = min(w, h), max(w, h)
        other = int(self.size * long / short)
        return image.resize((self.size, other) if w <= h else (other, self.size), Image.BILINEAR)


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        w, h = image.size
        left, top = int(round((w - self.size) / 2)), int(round((h - self.size) / 2))
        return image.crop((left, top, left + self.size, top + self.size))


class ToTensor:
    def __call__(self, image):
        array = np.asarray(image, np.float32) / np.float32(255)
        return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (np.array(v, np.float32).reshape(-1, 1, 1) for v in (mean, std))

    def __call__(self, x):
        return torch.from_numpy((np.asarray(x) - self.mean) / self.std)
