"""Writes the files beside it with the libraries that users write theirs with.

Run it with pandas, pyarrow and numpy installed: python make.py
"""
import os
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))

# The rows of every table: 7 of them, with what is hard to quote.
texts = ["plain", "with, comma", 'a "quote"', "two\nlines", "", "é😀", "  spaces  "]
frame = pd.DataFrame({
    "text": texts,
    "n": np.arange(7, dtype=np.int64) * 10_000_000_000,
    "x": [0.1, -2.5, 1e300, 1e-7, 0.0, -0.0, 123456.789],
    "ok": [True, False, True, True, False, False, True],
})
frame.to_csv("pandas.csv", index=False)
frame.to_csv("pandas.csv.gz", index=False, compression={"method": "gzip", "mtime": 1})
frame.to_csv("pandas.tsv", index=False, sep="\t")
frame.to_json("pandas.jsonl", orient="records", lines=True, double_precision=15)
with open("pandas.jsonl", "rb") as f, pa.CompressedOutputStream("pandas.jsonl.zst", "zstd") as out:
    out.write(f.read())
frame.to_parquet("pandas.parquet")

# Every type of Parquet that has a type of tensors, in row groups of 3, with and without a page index.
many = pa.table({
    "i8": pa.array([1, -128, 127, 0, 5], pa.int8()), "i16": pa.array([1, -2, 3, 4, 5], pa.int16()),
    "i32": pa.array([1, -2, 3, 4, 5], pa.int32()), "i64": pa.array([1, -2, 3, None, 2**62], pa.int64()),
    "u8": pa.array([1, 255, 3, 4, 5], pa.uint8()), "u16": pa.array([1, 65535, 3, 4, 5], pa.uint16()),
    "u32": pa.array([1, 2**32 - 1, 3, 4, 5], pa.uint32()), "u64": pa.array([1, 2**64 - 1, 3, 4, 5], pa.uint64()),
    "f16": pa.array(np.array([1, 0.1, -2, 0, 65504], np.float16)), "f32": pa.array([1, 0.1, -2, None, 3e38], pa.float32()),
    "f64": pa.array([1, 0.1, -2, 0, 1e308], pa.float64()), "b": pa.array([True, False, None, True, False]),
    "s": pa.array(["a", "é", "", None, "e"]), "raw": pa.array([b"\xff", b"", b"\x00\x01", None, b"z"], pa.binary()),
    "fixed": pa.array([b"ab", b"cd", b"ef", b"gh", b"ij"], pa.binary(2)),
    "ts": pa.array([0, 1, 2, 3, 1_700_000_000_000_000], pa.timestamp("us")), "date": pa.array([0, 1, 2, 3, 4], pa.date32()),
    "list": pa.array([[1, 2], [3], [], None, [4, 5, 6]], pa.list_(pa.float32())),
    "matrix": pa.array([[[1, 2], [3, 4]], [[5, 6]], [], [[7], []], [[8, None]]], pa.list_(pa.list_(pa.int64()))),
    "words": pa.array([["a", "b"], ["c"], [], ["", "é"], None], pa.list_(pa.string())),
    "three": pa.array([[1, 2, 3]] * 5, pa.list_(pa.int16(), 3)),
    "struct": pa.array([{"a": 1}] * 5), "dec": pa.array([1, 2, 3, 4, 5], pa.decimal128(5, 2)),
    "dict": pa.array(["p", "q", "p", "p", "q"]).dictionary_encode(),
})
pq.write_table(many, "types.parquet", row_group_size=3, write_page_index=True)
pq.write_table(many.select(["i64", "s", "list"]), "v2.parquet", row_group_size=2, data_page_version="2.0", compression="zstd", data_page_size=16)

arrays = {
    "f2": np.arange(6, dtype=np.float16).reshape(3, 2) / 4, "f4": np.arange(12, dtype=np.float32).reshape(3, 2, 2),
    "f8be": np.array([1, 0.1, -2], ">f8"), "b": np.array([True, False, True]), "i1": np.array([-1, 2, 3], np.int8),
    "u8": np.array([1, 2**64 - 1, 3], np.uint64), "i4be": np.array([[1, -2]] * 3, ">i4"), "empty": np.zeros((3, 0), np.float32),
}
np.savez("arrays.npz", **arrays)
np.savez_compressed("compressed.npz", **arrays)
np.save("single.npy", arrays["f4"])
with zipfile.ZipFile("zip64.npz", "w") as z:  # as numpy writes to a stream: sizes of 64 bits behind the data
    for name in ("f4", "i1"):
        with z.open(name + ".npy", "w", force_zip64=True) as f:
            np.lib.format.write_array(f, arrays[name])
np.savez("strings.npz", words=np.array(["a", "bc"]), x=np.zeros(2))
np.savez("bytes.npz", words=np.array([b"a", b"bc"]))
np.savez("objects.npz", things=np.array([{}, 1], dtype=object))
np.savez("complex.npz", z=np.zeros(2, np.complex64))
np.savez("dates.npz", d=np.zeros(2, "M8[s]"))
np.savez("fields.npz", f=np.zeros(2, [("a", "f4")]))
np.savez("fortran.npz", x=np.asfortranarray(np.zeros((2, 3))))
np.savez("scalar.npz", x=np.float32(1))
np.savez("uneven.npz", a=np.zeros(2), b=np.zeros(3))
