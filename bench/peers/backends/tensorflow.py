#!/usr/bin/env python3
"""TensorFlow's own calls of the two-input example, one row, one thread, to be compared with.

    python bench/peers/backends/tensorflow.py [calls]

Prints one line of JSON: the version, and the medians in microseconds, by the clock and by
the process's CPU clock, of calling the SavedModel's signature with numpy arrays in and
out, of the same with tensors that are made already, and of the older Session's run, which
a graph is called by. Needs tensorflow-cpu 2.21. make bench-backends runs it beside
BenchmarkOverhead of backends/tensorflow.
"""

import json
import os
import pathlib
import statistics
import sys
import time

sys.path.pop(0)  # this file has the name of the package
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "backends" / "tensorflow"
BATCH = 50  # calls between two readings of a clock: the CPU clock is coarse


def medians(call, calls):
    for _ in range(500):
        call()
    wall, cpu = [], []
    for _ in range(max(1, calls // BATCH)):
        w, c = time.perf_counter(), time.process_time()
        for _ in range(BATCH):
            call()
        wall.append((time.perf_counter() - w) / BATCH * 1e6)
        cpu.append((time.process_time() - c) / BATCH * 1e6)
    return {"clock_us": statistics.median(wall), "cpu_us": statistics.median(cpu)}


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    x, i = np.array([[1, 2, 3, 4]], np.float32), np.array([[1, 2, 3]], np.int64)

    model = tf.saved_model.load(str(EXAMPLES / "simple_tensorflow/1/model.savedmodel"))
    serve = model.signatures["serving_default"]
    tx, ti = tf.constant(x), tf.constant(i)
    cases = {"simple_tensorflow, tensors made": medians(lambda: serve(INPUT0=tx, INPUT1=ti), calls)}

    def arrays():
        out = serve(INPUT0=tf.constant(x), INPUT1=tf.constant(i))
        return out["OUTPUT0"].numpy(), out["OUTPUT1"].numpy()

    cases["simple_tensorflow"] = medians(arrays, calls)

    v1 = tf.compat.v1
    definition = v1.GraphDef.FromString((EXAMPLES / "simple_graphdef/1/model.graphdef").read_bytes())
    with tf.Graph().as_default():
        tf.import_graph_def(definition, name="")
        with v1.Session() as session:
            run = session.make_callable(["OUTPUT0:0", "OUTPUT1:0"], ["INPUT0:0", "INPUT1:0"])
            cases["simple_graphdef"] = medians(lambda: run(x, i), calls)
    print(json.dumps({"version": tf.__version__, "cases": cases}))


if __name__ == "__main__":
    main()
