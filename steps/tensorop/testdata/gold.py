"""Writes gold.json.gz: operations, inputs and what numpy makes of them.

numpy 2.4.6 and ml_dtypes 0.6.0 (for BF16); run it in this folder.
"""

import base64
import gzip
import itertools
import json

import ml_dtypes
import numpy as np

np.seterr(all="ignore")
rng = np.random.default_rng(6)
TYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": ml_dtypes.bfloat16,
}
NAMES = {np.dtype(v): k for k, v in TYPES.items()}
INTS = [n for n in TYPES if "INT" in n]
FLOATS = ["FP16", "FP32", "FP64", "BF16"]
NUMBERS = INTS + FLOATS
# How far apart, relative to the greater, results of functions and of sums may be.
NEAR = {"FP16": 2e-3, "BF16": 2e-2, "FP32": 2e-6, "FP64": 1e-13}
cases = []


def sample(dtype, *shape, special=True):
    """Numbers of which some are the extremes of the type."""
    t = np.dtype(TYPES[dtype])
    n = int(np.prod(shape))
    if dtype == "BOOL":
        out = rng.integers(0, 2, n).astype(bool)
    elif dtype in INTS:
        i = np.iinfo(t)
        out = np.where(rng.random(n) < 0.6, rng.integers(max(i.min, -9), 10, n), rng.integers(i.min, i.max, n, dtype=t, endpoint=True)).astype(t) \
            if dtype != "UINT64" else rng.integers(0, i.max, n, dtype=t, endpoint=True)
        if special and n > 2:
            out[0], out[n - 1] = i.min, i.max
    else:
        out = np.where(rng.random(n) < 0.3, np.round(rng.normal(0, 4, n)), rng.normal(0, 4, n)).astype(t)
        if special and n > 6:
            out[1:6] = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]).astype(t)
    return out.reshape(shape)


def pack(a):
    if a.dtype == object:
        data = b"".join(len(s).to_bytes(4, "little") + s for s in a.reshape(-1))
        return {"dtype": "BYTES", "dims": list(a.shape), "data": base64.b64encode(data).decode()}
    return {"dtype": NAMES[a.dtype], "dims": list(a.shape), "data": base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()}


def case(params, inputs, run, near=0.0, batch=False):
    """One case. In a batch, run is called for each row."""
    if batch:
        rows = [run(*[a[i] for a in inputs]) for i in range(len(inputs[0]))]
        many = isinstance(rows[0], (list, tuple))
        out = [np.stack(list(r)) for r in zip(*rows)] if many else [np.stack([np.asarray(r) for r in rows])]
    else:
        out = run(*inputs)
        out = list(out) if isinstance(out, (list, tuple)) else [np.asarray(out)]
    cases.append({"params": params, "batch": batch, "in": [pack(a) for a in inputs], "want": [pack(a) for a in out], "near": near})


def casts():
    for a, b in itertools.product(list(TYPES), list(TYPES)):
        if a == b:
            continue
        t = TYPES[b]
        x = sample(a, 2, 13)
        if b in INTS and a in FLOATS:  # what numpy does outside of the range depends on the machine
            i = np.iinfo(t)
            f = x.astype(np.float64)
            x = np.where(np.isfinite(f) & (np.trunc(f) >= i.min) & (np.trunc(f) <= i.max), f, 7.75).astype(TYPES[a])
        case({"op": "cast", "dtype": b}, [x], lambda x: x.astype(t))
        if a in INTS and b in INTS:
            i = np.iinfo(t)
            case({"op": "cast", "dtype": b, "overflow": "saturate"}, [x],
                 lambda x: np.array([min(max(int(v), int(i.min)), int(i.max)) for v in x.reshape(-1)], dtype=t).reshape(x.shape))


SHAPES = [((5, 7), (5, 7)), ((3, 1, 4), (2, 1)), ((300,), (300,)), ((2, 3), (4, 2, 3)), ((70, 3), (3,)), ((6, 1), (1, 5)), ((1,), (600,)), ((), (3,)), ((0, 3), (3,))]


def arithmetic():
    table = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "floor_divide": np.floor_divide,
             "remainder": np.remainder, "power": np.power, "minimum": np.minimum, "maximum": np.maximum}
    for (name, f), d in itertools.product(table.items(), NUMBERS):
        for k in range(3):
            s, t = SHAPES[int(rng.integers(len(SHAPES)))] if k else SHAPES[0]
            a, b = sample(d, *s), sample(d, *t)
            run, near = f, 0.0
            if d in INTS:
                if name in ("divide", "floor_divide", "remainder"):
                    b[b == 0] = 3
                if name == "power":
                    b = (np.abs(b.astype(np.int64) % 7)).astype(TYPES[d])
                if name == "divide":
                    def run(x, y):
                        return np.divide(x.astype(np.float64), y.astype(np.float64))
            elif name in ("power", "floor_divide", "remainder"):
                near = NEAR[d]
                if d == "BF16" or name != "power":  # far quotients differ by how they are rounded on the way
                    a, b = np.abs(sample(d, *s, special=False)), np.abs(sample(d, *t, special=False)) + TYPES[d](1)
                    a, b = np.round(a), np.round(b)
            case({"op": name}, [a, b], run, near)
        v = TYPES[d](3)
        x = sample(d, 4, 5)
        if d in INTS:
            x[x == 0] = 1
        for swap in ("", "true"):
            if name == "power" or (name in ("floor_divide", "remainder") and d in FLOATS) or (name == "divide" and d in INTS):
                continue
            case({"op": name, "value": "3"} | ({"swap": swap} if swap else {}), [x], (lambda x: f(v, x)) if swap else (lambda x: f(x, v)))
        case({"op": name}, [sample(d, 3, 4, 2, special=False) % TYPES[d](5) + TYPES[d](1), sample(d, 3, 2, special=False) % TYPES[d](3) + TYPES[d](1)],
             (lambda x, y: f(x.astype(np.float64), y.astype(np.float64))) if name == "divide" and d in INTS else f, NEAR.get(d, 0), batch=True)


def functions():
    table = {"absolute": np.absolute, "negative": np.negative, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "floor": np.floor, "ceil": np.ceil, "rint": np.rint}
    for (name, f), d in itertools.product(table.items(), FLOATS + ["INT8", "INT16", "INT32", "INT64"]):
        if d in INTS and name not in ("absolute", "negative"):
            continue
        case({"op": name}, [sample(d, 3, 31)], f, NEAR.get(d, 0) if name in ("exp", "log") else 0)
    for d in NUMBERS:
        x = sample(d, 4, 9)
        case({"op": "clip", "low": "2", "high": "7"}, [x], lambda x: np.clip(x, TYPES[d](2), TYPES[d](7)).astype(TYPES[d]))
        case({"op": "clip", "low": "3"}, [x], lambda x: np.maximum(x, TYPES[d](3)))
        case({"op": "clip", "high": "3"}, [x], lambda x: np.minimum(x, TYPES[d](3)), batch=True)
    case({"op": "logical_not"}, [sample("BOOL", 40)], np.logical_not)


def comparisons():
    table = {"equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal}
    for (name, f), d in itertools.product(table.items(), NUMBERS + ["BOOL"]):
        s, t = SHAPES[int(rng.integers(len(SHAPES)))]
        case({"op": name}, [sample(d, *s), sample(d, *t)], f)
        if d != "BOOL":
            case({"op": name, "value": "2"}, [sample(d, 3, 8)], lambda x: f(x, TYPES[d](2)), batch=True)
    for name, f in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
        case({"op": name}, [sample("BOOL", 4, 8), sample("BOOL", 8)], f)
    text = np.array([b"a", b"b", b"", b"ab", b"\xff", b"b"], dtype=object).reshape(2, 3)
    for name, f in table.items():
        case({"op": name}, [text, np.array([b"b", b"b", b"a"], dtype=object)], lambda x, y: f(x, y).astype(bool))
        case({"op": name, "value": "ab"}, [text], lambda x: f(x, b"ab").astype(bool))


def reductions():
    table = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "min": np.min, "max": np.max}
    axes = [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (-1, 0)]
    for (name, f), d in itertools.product(table.items(), NUMBERS + ["BOOL"]):
        for k, ax in enumerate(axes):
            x = sample(d, 3, 4, 17, special=name in ("min", "max"))
            if d in FLOATS and name == "prod":
                x = (1 + 0.01 * x.astype(np.float64)).astype(TYPES[d])
            if d in FLOATS and name in ("sum", "mean"):
                x = np.abs(x)
            wide = d in ("FP16", "BF16") and name in ("sum", "prod", "mean")

            def run(x):
                if d == "BOOL" and name in ("sum", "prod", "mean"):
                    x = x.astype(np.int64)
                if d in INTS and name == "mean":
                    x = x.astype(np.float64)
                y = f(x.astype(np.float32) if wide else x, axis=ax or None, keepdims=bool(k % 2))
                return np.asarray(y).astype(TYPES[d]) if wide else y
            p = {"op": name} | ({"axes": ",".join(map(str, ax))} if ax else {}) | ({"keep_dims": "true"} if k % 2 else {})
            near = NEAR.get(d, 1e-13 if name == "mean" else 0) if name in ("sum", "prod", "mean") else 0
            case(p, [x], run, near, batch=False)
            if k % 3 == 0:
                case(p, [np.stack([x, x[::-1]])], run, near, batch=True)
    for name, f in {"argmax": np.argmax, "argmin": np.argmin}.items():
        for d in NUMBERS + ["BOOL"]:
            for ax in (0, 1, -1):
                x = sample(d, 3, 5, 4)
                if d == "BF16":
                    def run(x):
                        return f(x.astype(np.float32), axis=ax)
                else:
                    def run(x):
                        return f(x, axis=ax)
                case({"op": name, "axis": str(ax)}, [x], run)
            case({"op": name, "keep_dims": "true"}, [x], lambda x: np.asarray(f(x.astype(np.float32) if d == "BF16" else x, axis=-1, keepdims=True)), batch=True)
    case({"op": "sum", "axes": "1"}, [sample("FP32", 3, 5000, special=False)], lambda x: np.sum(x.astype(np.float64), axis=1).astype(np.float32), 1e-5)


def text(*shape):
    n = int(np.prod(shape))
    return np.array([bytes(rng.integers(97, 123, int(rng.integers(0, 5))).astype(np.uint8)) for _ in range(n)], dtype=object).reshape(shape)


def moves():
    for d in [*TYPES, "BYTES"]:
        def some(*shape):
            return text(*shape) if d == "BYTES" else sample(d, *shape)
        x = some(2, 3, 4)
        big = some(4, 19, 3) if d != "BYTES" else x
        for batch in (False, True):
            case({"op": "reshape", "dims": "-1, 2" if batch else "2, -1, 2"}, [x], (lambda x: x.reshape(-1, 2)) if batch else lambda x: x.reshape(2, -1, 2), batch=batch)
            case({"op": "transpose"}, [x], lambda x: x.T, batch=batch)
            case({"op": "concat", "axis": "-1"}, [x, x[..., :1], x[..., 2:]], lambda *a: np.concatenate(a, -1), batch=batch)
            case({"op": "concat"}, [x, x], lambda *a: np.concatenate(a, 0), batch=batch)
            case({"op": "stack", "axis": "1"}, [x, x[::-1]], lambda *a: np.stack(a, 1), batch=batch)
            case({"op": "split", "axis": "1", "sizes": "1, 0, 2" if not batch else "3, 1"}, [x], (lambda x: np.split(x, [3], 1)) if batch else lambda x: np.split(x, [1, 1], 1), batch=batch)
            case({"op": "split", "axis": "-1", "sizes": "2"}, [x], lambda x: np.split(x, 2, -1), batch=batch)
            case({"op": "gather", "indices": "2, -1, 0, 0"}, [some(3, 3, 2)], lambda x: np.take(x, [2, -1, 0, 0], 0), batch=batch)
            case({"op": "gather", "axis": "1"}, [some(3, 4, 5), rng.integers(-4, 4, (3, 2)).astype(np.int32)], lambda x, i: np.take(x, i, 1), batch=batch)
            case({"op": "gather", "axis": "-1"}, [some(3, 4, 5), rng.integers(-5, 5, (3, 2, 2))], lambda x, i: np.take(x, i, -1), batch=batch)
            case({"op": "where"}, [sample("BOOL", 2, 1, 4), x, x[:, ::-1]], np.where, batch=batch)
            case({"op": "where"}, [sample("BOOL", 2, 4), x if not batch else some(2, 4), x[:, :, :1] if not batch else some(2, 1)], (lambda c, a, b: np.where(c[:, None, :], a, b)) if False else np.where, batch=batch) if batch else \
                case({"op": "where"}, [sample("BOOL", 4), x, x[:, :, :1]], np.where)
            for mode in ("constant", "edge", "reflect"):
                p = [(1, 2), (0, 5)] if batch else [(2, 0), (1, 2), (0, 5)]
                kw = {}
                if mode == "constant":
                    kw = {"constant_values": b"x" if d == "BYTES" else np.asarray(1).astype(TYPES[d])}
                case({"op": "pad", "pads": ",".join(f"{a},{b}" for a, b in p), "mode": mode} | ({"value": "x" if d == "BYTES" else "1"} if kw else {}), [x],
                     lambda x: np.pad(x, p, mode, **kw), batch=batch)
        for text_, at in {"1:, ::2": np.s_[1:, ::2], "..., 0": np.s_[..., 0], "::-1, -2, 3:0:-2": np.s_[::-1, -2, 3:0:-2], "1": np.s_[1], "0:1": np.s_[0:1],
                          "-9:9, 2:1": np.s_[-9:9, 2:1], "1, 1, 1": np.s_[1, 1, 1], "..., ::-3": np.s_[..., ::-3]}.items():
            case({"op": "slice", "slice": text_}, [x], lambda x: np.asarray(x[at]) if d != "BYTES" else np.array(x[at], dtype=object))
        case({"op": "slice", "slice": "1:, ::-1"}, [x], lambda x: x[1:, ::-1], batch=True)
        case({"op": "slice", "slice": "-1"}, [x], lambda x: x[-1], batch=True)
        for perm in itertools.permutations(range(3)):
            case({"op": "transpose", "axes": ",".join(map(str, perm))}, [big], lambda x: np.transpose(x, perm))
    for d in TYPES:
        case({"op": "one_hot", "depth": "4", "dtype": d}, [rng.integers(-4, 4, (2, 3))], lambda i: np.eye(4, dtype=TYPES[d])[i])
    case({"op": "one_hot", "depth": "7"}, [rng.integers(0, 7, (3, 5)).astype(np.int32)], lambda i: np.eye(7, dtype=np.float32)[i], batch=True)


def lines():
    """Lengths around those that go as vectors."""
    for n, special in itertools.product((7, 8, 15, 16, 17, 24, 33, 100), (False, True)):
        x = sample("FP32", 4, n, special=special)
        x[1, -1] = 50
        x[2, n // 2] = 60
        case({"op": "argmax"}, [x], lambda x: np.argmax(x, -1))
        case({"op": "argmin"}, [x], lambda x: np.argmin(x, -1))
        case({"op": "max", "axes": "1"}, [x], lambda x: np.max(x, 1))
        case({"op": "exp"}, [x * 8], np.exp, NEAR["FP32"])
        case({"op": "cast", "dtype": "INT32"}, [np.nan_to_num(x, posinf=5, neginf=-5)], lambda x: x.astype(np.int32))


lines()
casts()
arithmetic()
functions()
comparisons()
reductions()
moves()
with gzip.GzipFile("gold.json.gz", "wb", mtime=0) as f:
    f.write(json.dumps(cases, separators=(",", ":")).encode())
print(len(cases), "cases")
