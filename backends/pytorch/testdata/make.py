"""Makes the models of this folder, with torch 2.13.0: python make.py. The compiled package embed.pt2 holds machine code
and is made only where a C++ compiler is, with: python make.py package."""

import sys
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.arange(20.0).reshape(10, 2))

    def forward(self, x: Tensor, index: Tensor) -> Tuple[Tensor, Tensor]:
        return x * 0.5 + 2, nn.functional.embedding(index, self.table)


class Dictionary(nn.Module):
    def forward(self, inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
        return {"sum": inputs["a"] + inputs["b"], "diff": inputs["a"] - inputs["b"]}


class Strings(nn.Module):
    def forward(self, text: List[str]) -> Tuple[List[str], Tensor]:
        return [t.upper() for t in text], torch.tensor([len(t) for t in text], dtype=torch.int64)


class Lists(nn.Module):
    def forward(self, xs: List[Tensor]) -> List[Tensor]:
        return [2 * x for x in xs[::-1]]


class Arguments(nn.Module):
    def forward(self, pair: Tuple[Tensor, Tensor], bias: Optional[Tensor] = None, scale: float = 2.0) -> Tensor:
        y = (pair[0] - pair[1]) * scale
        if bias is not None:
            y = y + bias
        return y


class Identity(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Writes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


class Shapes(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        return x.t(), x.nonzero(), x.sum()


class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.n.add_(1)
        return x + self.n


class Number(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        return x * n


if sys.argv[1:] == ["package"]:
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(
        Embed(),
        (torch.ones(2, 3), torch.ones(2, 1, dtype=torch.int64)),
        dynamic_shapes=({0: rows}, {0: rows}),
    )
    torch.export.save(program, "exported.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path="embed.pt2")
else:
    for model in [Embed, Dictionary, Strings, Lists, Arguments, Identity, Writes, Shapes, Count, Number]:
        torch.jit.script(model()).save(model.__name__.lower() + ".pt")
    torch.save({"w": torch.ones(2)}, "weights.pt")
