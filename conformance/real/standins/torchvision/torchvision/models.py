"""A classifier under the name of one."""

import types

import numpy as np
import torch
from torch import nn

ResNet50_Weights = types.SimpleNamespace(IMAGENET1K_V1=1, IMAGENET1K_V2=2)


class Toy(nn.Module):
    """The scores of 1000 classes by the means of three channels."""

    def forward(self, x):
        k = np.arange(1000, dtype=np.float32)
        weights = np.stack([np.cos(k), np.sin(k), np.cos(2 * k)])
        return torch.from_numpy(np.asarray(x).mean(axis=(2, 3), dtype=np.float32) @ weights)


def resnet50(weights=None, pretrained=False):
    return Toy()
