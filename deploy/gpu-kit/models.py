"""Writes the models of the measurements on a GPU, with random weights.

    python3 models.py FOLDER [cpu|cuda]

It needs torch. head, body and tail are three parts of a ResNet-like network that are served one after the other:
[N, 3, 56, 56] -> [N, 64, 56, 56] -> [N, 64, 56, 56] -> [N, 10]. classify has the shape of ResNet-50's interface:
[N, 3, 224, 224] -> [N, 1000]. With a device it also prints an input of head, and what head, body and tail make of it there, as JSON.
"""

import json
import pathlib
import sys

import torch
from torch import nn


class Block(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, channels):
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.nb(self.b(torch.relu(self.na(self.a(x))))))


def blocks(channels, n):
    return [Block(channels) for _ in range(n)]


def models():
    head = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), *blocks(64, 4))
    body = nn.Sequential(*blocks(64, 4))
    tail = nn.Sequential(*blocks(64, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    classify = nn.Sequential(
        nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks(64, 2),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), *blocks(128, 2), nn.Conv2d(128, 256, 3, stride=2, padding=1), *blocks(256, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))
    return {"head": head, "body": body, "tail": tail, "classify": classify}


def main(folder):
    torch.manual_seed(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models().items():
        torch.jit.script(model.eval()).save(str(folder / (name + ".pt")))


def answer(folder, at):
    x = torch.rand(2, 3, 56, 56)
    y = x.to(at)
    with torch.no_grad():
        for name in ("head", "body", "tail"):
            y = torch.jit.load(str(folder / (name + ".pt")), map_location=at)(y)
    return x.flatten().tolist(), y.flatten().tolist()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
    if len(sys.argv) > 2:
        print(json.dumps(answer(pathlib.Path(sys.argv[1]), sys.argv[2])))
