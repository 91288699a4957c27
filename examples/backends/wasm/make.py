#!/usr/bin/env python3
"""Writes expected.json: what the module of this folder answers in Wasmtime.

    pip install wasmtime numpy && python examples/backends/wasm/make.py

It calls the module through its interface (docs/wasm.md), as bench/peers/backends/wasm.py does.
"""

import json
import pathlib
import struct

import numpy as np
import wasmtime

HERE = pathlib.Path(__file__).resolve().parent
FP32 = 11


class Guest:
    def __init__(self, path):
        self.store = wasmtime.Store()
        module = wasmtime.Module.from_file(self.store.engine, str(path))
        self.exports = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.memory = self.exports["memory"]
        assert self.exports["tutti_abi_version"](self.store) == 1
        self.at = self.exports["tutti_buffer"](self.store, 1 << 16)
        self.at += -self.at % 16

    def words(self, address, n):
        return struct.unpack(f"<{n}I", self.memory.read(self.store, address, address + 4 * n))

    def execute(self, inputs):
        """Returns the outputs by name; inputs are FP32 arrays by name."""
        dims = self.at + 32 * len(inputs)
        names = dims + sum(8 * a.ndim for a in inputs.values())
        data = names + sum(len(n) for n in inputs)
        data += -data % 16
        head, shapes, texts, parts = b"", b"", b"", b""
        for name, a in inputs.items():
            head += struct.pack("<8I", names + len(texts), len(name), FP32, a.ndim, dims + len(shapes), data + len(parts), a.nbytes, 0)
            shapes += struct.pack(f"<{a.ndim}q", *a.shape)
            texts += name.encode()
            parts += a.tobytes() + bytes(-a.nbytes % 16)
        start = head + shapes + texts
        self.memory.write(self.store, start, self.at)
        self.memory.write(self.store, parts, data)
        outputs, count, _, failures = self.words(self.exports["tutti_execute"](self.store, self.at, len(inputs)), 4)
        assert failures == 0
        answer = {}
        for i in range(count):
            name, length, datatype, rank, dims, data, size, _ = self.words(outputs + 32 * i, 8)
            assert datatype == FP32
            shape = struct.unpack(f"<{rank}q", self.memory.read(self.store, dims, dims + 8 * rank))
            array = np.frombuffer(self.memory.read(self.store, data, data + size), np.float32).reshape(shape)
            answer[self.memory.read(self.store, name, name + length).decode()] = array
        return answer


def tensor(name, array):
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.ravel().tolist()}


def main():
    guest = Guest(HERE / "simple_wasm/1/model.wasm")
    requests = []
    for name, first, second in (
        ("one row", [[1, 2, 3, 4]], [[10, 20, 30, 0.5]]),
        ("two rows", [[-1.5, 0.25], [1e6, -1e-6]], [[0.1, -0.25], [1e-6, 3.4e38]]),
    ):
        given = {"INPUT0": np.array(first, np.float32), "INPUT1": np.array(second, np.float32)}
        answer = guest.execute(given)
        requests.append(
            {
                "name": name,
                "inputs": [tensor(k, v) for k, v in given.items()],
                "outputs": [tensor(k, answer[k]) for k in ("OUTPUT0", "OUTPUT1")],
                "atol": 0,
            }
        )
    lines = ",\n".join(json.dumps(r) for r in requests)
    (HERE / "expected.json").write_text('{"ensemble": "simple_wasm", "requests": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
