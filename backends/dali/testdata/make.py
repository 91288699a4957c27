#!/usr/bin/env python3
"""Makes the pipelines of this folder: .runtime/dali-*/bin/python backends/dali/testdata/make.py

Some have the definitions of the examples and tests of Triton's DALI backend.
"""

import pathlib

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali._utils import dali_trace

HERE = pathlib.Path(__file__).resolve().parent
CPU = {"num_threads": 1, "device_id": None}


@pipeline_def(batch_size=3, **CPU)
def identity():
    return fn.external_source(device="cpu", name="DALI_INPUT_0")


@pipeline_def(batch_size=1, **CPU)
def multi_input():
    x = fn.external_source(device="cpu", name="DALI_X_INPUT")
    y = fn.external_source(device="cpu", name="DALI_Y_INPUT")
    return x, y * fn.external_source(device="cpu", name="DALI_SCALAR")


@pipeline_def(batch_size=256, output_dtype=types.FLOAT, output_ndim=1, **CPU)
def unbatched():
    a = fn.external_source(device="cpu", name="DALI_INPUT_0", ndim=1, dtype=types.FLOAT)
    b = fn.external_source(device="cpu", name="DALI_INPUT_1", ndim=1, dtype=types.INT32)
    return a * 2, fn.cast(b * 3, dtype=types.FLOAT)


@pipeline_def(batch_size=256, output_dtype=[types.FLOAT16, types.FLOAT], output_ndim=[1, 1], **CPU)
def declared():
    a = fn.external_source(device="cpu", name="DALI_INPUT_0", dtype=types.FLOAT16, ndim=1)
    b = fn.external_source(device="cpu", name="DALI_INPUT_1", dtype=types.FLOAT16, ndim=1)
    return fn.cast(a / 4, dtype=types.FLOAT16, name="DALI_OUTPUT_0"), fn.cast(b / 2, dtype=types.FLOAT, name="DALI_OUTPUT_1")


@pipeline_def(batch_size=4, output_dtype=[types.UINT8], output_ndim=[3], **CPU)
def mixed():
    files = fn.external_source(device="cpu", name="IMAGE", dtype=types.UINT8, ndim=1)
    return fn.decoders.image(files, device="mixed")


@pipeline_def(batch_size=4, output_dtype=[types.UINT8], output_ndim=[3], **CPU)
def flip():
    image = fn.external_source(device="cpu", name="DALI_INPUT_0", layout="HWC", dtype=types.UINT8)
    return fn.flip(image, name="DALI_OUTPUT_0")


@pipeline_def(batch_size=4, output_dtype=[types.INT32], output_ndim=[2], **CPU)
def sequences():
    return fn.reshape(fn.external_source(device="cpu", name="FLAT", dtype=types.INT32, ndim=1), shape=[-1, 2], name="PAIRS")


def main():
    dali_trace.set_tracing(enabled=False)  # a serialized pipeline has the paths of the files that define it otherwise
    for make in identity, multi_input, unbatched, declared, mixed, flip, sequences:
        (HERE / (make.__name__ + ".dali")).write_bytes(make().serialize())


main()
