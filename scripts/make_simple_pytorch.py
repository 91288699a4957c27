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


def tensor(name, datatype, values):
    return {"name": name, "datatype": datatype, "shape": list(values.shape), "data": values.ravel().tolist()}


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
    inputs = [tensor("INPUT0", "FP32", x), tensor("INPUT1", "INT64", index)]
    outputs = [tensor("OUTPUT0", "FP32", y.numpy()), tensor("OUTPUT1", "FP32", picked.numpy())]
    cases.append(json.dumps({"name": f"rows {rows}", "inputs": inputs, "outputs": outputs, "atol": 1e-6}))
text = '{"ensemble": "simple_pytorch", "requests": [\n' + ",\n".join(cases) + "\n]}\n"
(folder.parent / "expected.json").write_text(text)
