#!/usr/bin/env python3
"""Writes the models of examples/backends/tensorflow and their stored answers.

The same function as a SavedModel and as a frozen graph: OUTPUT0 is INPUT0*0.5+2,
OUTPUT1 the rows of a table [100, 10] that INPUT1 names. The answers are those of
TensorFlow's own Python. Needs tensorflow-cpu 2.21 and numpy:

    python scripts/make_tensorflow.py
"""

import json
import os
import pathlib
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent / "examples" / "backends" / "tensorflow"
TABLE = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)

CONFIG = """platform: "%s"
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "INPUT1" data_type: TYPE_INT64 dims: [ -1 ] }
]
output [
  { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ -1, 10 ] }
]
"""


class Simple(tf.Module):
    """The two-input model."""

    def __init__(self):
        super().__init__()
        self.table = tf.Variable(TABLE, name="table")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.float32, name="INPUT0"),
            tf.TensorSpec([None, None], tf.int64, name="INPUT1"),
        ]
    )
    def serve(self, INPUT0, INPUT1):
        return {
            "OUTPUT0": tf.identity(INPUT0 * 0.5 + 2.0, name="OUTPUT0"),
            "OUTPUT1": tf.nn.embedding_lookup(self.table, INPUT1, name="OUTPUT1"),
        }


def folder(name, platform):
    version = ROOT / name / "1"
    shutil.rmtree(version, ignore_errors=True)
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIG % platform)
    return version


def frozen():
    """The same as one graph without variables, its tensors under the ports' names."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, None], name="INPUT0")
        i = v1.placeholder(tf.int64, [None, None], name="INPUT1")
        tf.add(x * 0.5, 2.0, name="OUTPUT0")
        tf.identity(tf.gather(tf.constant(TABLE), i), name="OUTPUT1")
    return graph.as_graph_def()


def values(tensor, datatype):
    return {"datatype": datatype, "shape": list(tensor.shape), "data": [v.item() for v in tensor.ravel()]}


def answers(module):
    draw = np.random.default_rng(7)
    requests = []
    for name in ("simple_tensorflow", "simple_graphdef"):
        for rows, n, m in ((1, 4, 3), (3, 1, 1), (8, 16, 5)):
            x = draw.standard_normal((rows, n)).astype(np.float32)
            i = draw.integers(0, 100, (rows, m))
            out = module.serve(tf.constant(x), tf.constant(i))
            requests.append(
                {
                    "name": f"{name}_{rows}",
                    "ensemble": name,
                    "inputs": [{"name": "INPUT0", **values(x, "FP32")}, {"name": "INPUT1", **values(i, "INT64")}],
                    "outputs": [{"name": k, **values(out[k].numpy(), "FP32")} for k in sorted(out)],
                    "atol": 1e-6,
                }
            )
    return {"ensemble": "simple_tensorflow", "requests": requests}


def main():
    module = Simple()
    path = folder("simple_tensorflow", "tensorflow_savedmodel") / "model.savedmodel"
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    (path / "fingerprint.pb").unlink(missing_ok=True)  # differs from run to run
    shutil.rmtree(path / "assets", ignore_errors=True)
    (folder("simple_graphdef", "tensorflow_graphdef") / "model.graphdef").write_bytes(frozen().SerializeToString())
    (ROOT / "expected.json").write_text(json.dumps(answers(module), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
