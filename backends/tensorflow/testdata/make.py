#!/usr/bin/env python3
"""Writes the models that the tests of this package load. Needs tensorflow-cpu 2.21."""

import os
import pathlib
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
TYPES = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string".split()


def save(name, module, **signatures):
    path = HERE / (name + ".savedmodel")
    shutil.rmtree(path, ignore_errors=True)
    tf.saved_model.save(module, str(path), signatures=signatures)
    (path / "fingerprint.pb").unlink(missing_ok=True)
    shutil.rmtree(path / "assets", ignore_errors=True)


def spec(shape, dtype, name):
    return tf.TensorSpec(shape, getattr(tf, dtype), name=name)


class Types(tf.Module):
    """Every element type, handed through."""

    @tf.function(input_signature=[spec([None], d, "x_" + d) for d in TYPES])
    def serve(self, *args):
        return {"y_" + d: tf.identity(x) for d, x in zip(TYPES, args)}


class Strings(tf.Module):
    """Strings in, strings and their lengths out."""

    @tf.function(input_signature=[spec([None, None], "string", "x")])
    def serve(self, x):
        return {"twice": tf.strings.join([x, x]), "length": tf.strings.length(x), "same": tf.identity(x)}


class Scalar(tf.Module):
    """No dimensions at all."""

    @tf.function(input_signature=[spec([], "float32", "x")])
    def serve(self, x):
        return {"y": x + 1.0}


class Fixed(tf.Module):
    @tf.function(input_signature=[spec([2, 3], "float32", "x")])
    def serve(self, x):
        return {"y": x * 2.0, "one": tf.constant([1.0, 2.0])}


class Keeper(tf.Module):
    """Stores its input in a variable and returns the previous one; counts its runs."""

    def __init__(self):
        super().__init__()
        self.last = tf.Variable([0.0, 0.0], shape=tf.TensorShape([None]))
        self.runs = tf.Variable(0, dtype=tf.int64)

    @tf.function(input_signature=[spec([None], "float32", "x")])
    def serve(self, x):
        before = tf.identity(self.last) * 1.0
        with tf.control_dependencies([before]):
            self.last.assign(x)
        return {"before": before, "runs": self.runs.assign_add(1)}


class Ragged(tf.Module):
    @tf.function(input_signature=[spec([None], "string", "x")])
    def serve(self, x):
        return {"words": tf.strings.split(x)}


class Two(tf.Module):
    @tf.function(input_signature=[spec([None, 2], "float32", "x")])
    def double(self, x):
        return {"y": x * 2.0}

    @tf.function(input_signature=[spec([None, 2], "float32", "x")])
    def half(self, x):
        return {"z": x / 2.0}


class Anyrank(tf.Module):
    @tf.function(input_signature=[spec(None, "float32", "x")])
    def serve(self, x):
        return {"y": x + 1.0}


def graph(name, build):
    g = tf.Graph()
    with g.as_default():
        build(tf.compat.v1)
    (HERE / (name + ".graphdef")).write_bytes(g.as_graph_def().SerializeToString())


def initialised(v1):
    """A graph with a variable that an operation fills; y is x plus it."""
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    v = v1.get_variable("v", initializer=tf.constant([10.0, 20.0]), use_resource=False)
    tf.add(x, v, name="y")
    tf.group(v.initializer, name="fill")
    tf.raw_ops.TensorListReserve(element_shape=[1], num_elements=1, element_dtype=tf.float32, name="list")


def main():
    for module in (Types(), Strings(), Scalar(), Fixed(), Keeper(), Ragged(), Anyrank()):
        save(type(module).__name__.lower(), module, serving_default=module.serve)
    save("two", two := Two(), double=two.double, half=two.half)
    graph("initialised", initialised)


if __name__ == "__main__":
    main()
