"""Prints the arrays that NumPy reads from .npz files.

usage: python read_npz.py FILE...
Prints a line of JSON for each file: {NAME: {"dtype": NAME, "shape": [N], "hex": BYTES}}.
A BYTES tensor that is in three arrays is put together again: its "dtype" is "bytes".
"""

import json
import sys

import numpy


def joined(arrays, name):
    data, offsets = arrays[name + ".data"].tobytes(), arrays[name + ".offsets"]
    return [data[a:b] for a, b in zip(offsets[:-1], offsets[1:])], arrays[name + ".shape"].tolist()


def read(path):
    found = {}
    with numpy.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            base = name.removesuffix(".offsets")
            if base != name and base + ".data" in arrays.files:
                texts, shape = joined(arrays, base)
                found[base] = {"dtype": "bytes", "shape": shape, "texts": [t.hex() for t in texts]}
                continue
            a = arrays[name]
            texts = [t.hex() for t in a.reshape(-1).tolist()] if a.dtype.kind == "S" else None
            found[name] = {"dtype": a.dtype.name, "shape": list(a.shape), "hex": a.tobytes().hex(), "texts": texts}
    return found


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(json.dumps(read(path)))
