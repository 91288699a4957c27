#!/usr/bin/env python3
"""Makes the models and the reference answers of this folder.

    .runtime/dali-*/bin/python examples/backends/dali/make.py

The Python is that of 'tutti runtime fetch dali'. The answers are those of DALI's own Python run of the pipelines.
"""

import importlib.util
import json
import pathlib

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali._utils import dali_trace

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"float32": "FP32", "uint8": "UINT8"}
ONE_BY_ONE = {"exec_pipelined": False, "exec_async": False, "prefetch_queue_depth": 1}


@pipeline_def(batch_size=8, num_threads=1, device_id=None, output_dtype=[types.FLOAT, types.FLOAT], output_ndim=[1, 1])
def simple():
    a = fn.external_source(device="cpu", name="INPUT0", dtype=types.FLOAT, ndim=1)
    b = fn.external_source(device="cpu", name="INPUT1", dtype=types.FLOAT, ndim=1)
    return a + b, a - b


def tensor(name, array):
    return {"name": name, "datatype": TYPES[array.dtype.name], "shape": list(array.shape), "data": array.ravel().tolist()}


def request(name, pipeline, given, outputs, atol):
    for key, array in given.items():
        pipeline.feed_input(key, array)
    answers = [output.as_array() for output in pipeline.run()]
    return {"name": name, "inputs": [tensor(*i) for i in given.items()], "outputs": [tensor(*o) for o in zip(outputs, answers)], "atol": atol}


def write(path, model, requests):
    lines = ",\n".join(json.dumps(r) for r in requests)
    path.write_text('{"ensemble": "%s", "requests": [\n%s\n]}\n' % (model, lines))


def floats(*values):
    return np.array(values, np.float32)


def main():
    dali_trace.set_tracing(enabled=False)  # a serialized pipeline has the paths of the files that define it otherwise
    (HERE / "simple_dali/1/model.dali").write_bytes(simple().serialize())
    pipeline = simple(**ONE_BY_ONE)
    pipeline.build()
    outputs = "OUTPUT0", "OUTPUT1"
    write(HERE / "expected.json", "simple_dali", [
        request("one row", pipeline, {"INPUT0": floats([1, 2, 3, 4]), "INPUT1": floats([0.5, -7, 1e6, 4])}, outputs, 1e-6),
        request("two rows", pipeline, {"INPUT0": floats([-1.5, 0], [2.25, 1e6]), "INPUT1": floats([1, 2], [-0.25, 1e-3])}, outputs, 1e-6),
    ])
    spec = importlib.util.spec_from_file_location("jpeg", HERE / "jpeg_dali/1/dali.py")
    jpeg = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(jpeg)
    pipeline = jpeg.pipe(**ONE_BY_ONE)
    pipeline.build()
    files = [np.fromfile(path, np.uint8) for path in sorted((HERE / "jpeg_dali").glob("*.jpg"))]
    write(HERE / "jpeg_dali/expected.json", "jpeg_dali",
          [request("image %d" % i, pipeline, {"IMAGE": file[np.newaxis]}, ["PIXELS"], 0.02) for i, file in enumerate(files)])


if __name__ == "__main__":
    main()
