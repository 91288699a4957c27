"""Makes examples/backends/pytorch: the two-input model of tutorials, and the answers of PyTorch's own run.

INPUT0 FP32[3] gives OUTPUT0 = INPUT0*0.5+2; INPUT1 INT64[2] gives OUTPUT1, the rows of a table of 100 by 10. Needs
torch 2.13.0 and numpy:

    python scripts/make_simple_pytorch.py
"""

import json
import pathlib

import numpy as np
import torch

folder = pathlib.Path(__file__).parent.parent / "examples" / "backends" / "pytorch" / "simple_pytorch"


class Simple(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = torch.nn.Parameter(torch.from_numpy(table), requires_grad=False)

    def forward(self, INPUT0: torch.Tensor, INPUT1: torch.Tensor):
        return INPUT0 * 0.5 + 2, torch.nn.functional.embedding(INPUT1, self.table)


table = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)
(folder / "1").mkdir(parents=True, exist_ok=True)
torch.jit.script(Simple(table).eval()).save(str(folder / "1" / "model.pt"))

model = torch.jit.load(str(folder / "1" / "model.pt"))
draw = np.random.default_rng(7)
cases = []
for rows in (1, 2, 5):
    x = draw.standard_normal((rows, 3)).astype(np.float32)
    index = draw.integers(0, 100, (rows, 2))
    with torch.inference_mode():
        y, picked = model(torch.from_numpy(x), torch.from_numpy(index))
    cases.append(
        {
            "rows": rows,
            "INPUT0": x.ravel().tolist(),
            "INPUT1": index.ravel().tolist(),
            "OUTPUT0": y.numpy().ravel().tolist(),
            "OUTPUT1": picked.numpy().ravel().tolist(),
        }
    )
text = json.dumps({"made_with": "torch " + torch.__version__, "cases": cases}, indent=1)
(folder.parent / "reference.json").write_text(text + "\n")
