#!/usr/bin/env python3
"""Turn a BERT encoder's model.safetensors and config.json into model.onnx.

Needs only onnx, safetensors and numpy: no torch, no framework. The same
input gives the same bytes.

The graph is the BERT encoder: embeddings, then layers of self-attention and a
feed-forward part, each followed by a LayerNormalization; standard operators
of opset 17 only. It is laid out for speed on a CPU: between the layers the
tokens of all rows lie in one matrix [tokens, hidden] without the padding
between them, so that every dense layer is one Gemm, with its bias inside, over
what is really there; only the attention itself sees padded rows. So a batch of
texts of different lengths costs little more than its tokens. Q, K and V are one
product; GELU is spelt by Erf, in the shape that optimisers know how to fuse.
The mask is added to the scores as (1 - mask) * MASKED, so padding changes no
answer; what the output holds at padded places is not meant to be read.

    inputs   input_ids, attention_mask, token_type_ids  INT64 [batch, sequence]
    output   last_hidden_state                          FP32  [batch, sequence, hidden]
"""

import argparse
import json
import math
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

OPSET = 17
IR_VERSION = 8  # The first one that goes with opset 17: old readers keep working.
# Added to a masked score: exp(-50) is 2e-22, far below what FP32 can add to the sum
# of a softmax. A larger one would be no more exact but slow: its exponential is a
# denormal number, on which a processor takes a hundred times as long.
MASKED = -50.0


class Graph:
    """Collects nodes and weights; every node has one output, named after it."""

    def __init__(self):
        self.nodes = []
        self.weights = []

    def node(self, name, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def scalar(self, name, value):
        return self.weight(name, np.array(value, np.float32))

    def dense(self, name, x, weights, *sources):
        """x @ W^T + b for a matrix x; several sources lie side by side in the result."""
        w = self.weight(name + ".weight", np.concatenate([weights[s + ".weight"] for s in sources]))
        b = self.weight(name + ".bias", np.concatenate([weights[s + ".bias"] for s in sources]))
        return self.node(name, "Gemm", x, w, b, transB=1)

    def norm(self, name, x, weights, source, epsilon):
        scale = self.weight(name + ".weight", weights[source + ".weight"])
        shift = self.weight(name + ".bias", weights[source + ".bias"])
        return self.node(name, "LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)


def embeddings(g, w, epsilon):
    """Word + position + type embedding, normalised: [tokens, hidden]."""
    words = g.weight("word_embeddings", w["embeddings.word_embeddings.weight"])
    types = g.weight("type_embeddings", w["embeddings.token_type_embeddings.weight"])
    places = g.weight("position_embeddings", w["embeddings.position_embeddings.weight"])
    one = g.weight("sequence_axis", np.array([1], np.int64))
    zero = g.weight("from_zero", np.array([0], np.int64))

    length = g.node("length", "Gather", "shape", one, axis=0)
    # A slice of the table, not Range and Gather: rows of positions lie together.
    position = g.node("positions", "Slice", places, zero, length, zero)
    word = g.node("words", "Gather", words, "input_ids", axis=0)
    kind = g.node("types", "Gather", types, "token_type_ids", axis=0)
    both = g.node("words_types", "Add", word, kind)
    total = g.node("embedding_sum", "Add", both, position)
    rows = g.node("embedding_rows", "Reshape", total, "rows_shape")
    rows = g.node("embedding_tokens", "Gather", rows, "token_places", axis=0)
    return g.norm("embedding", rows, w, "embeddings.LayerNorm", epsilon)


def additive_mask(g):
    """[batch, 1, 1, sequence]: 0 where the mask is 1, MASKED where it is 0."""
    axis1 = g.weight("axis1", np.array([1], np.int64))
    axis2 = g.weight("axis2", np.array([2], np.int64))
    wide = g.node("mask_wide", "Unsqueeze", g.node("mask_row", "Unsqueeze", "attention_mask", axis1), axis2)
    real = g.node("mask_real", "Cast", wide, to=TensorProto.FLOAT)
    gone = g.node("mask_gone", "Sub", g.scalar("one", 1), real)
    return g.node("mask", "Mul", gone, g.scalar("masked", MASKED))


def packing(g):
    """Where the tokens lie among the padded places, and back.

    token_places [tokens]: the place of each token whose mask is not 0, counted over
    all rows. place_tokens [batch * sequence]: the token at each place, at padded
    ones the last before them. The first place of a row always counts as a token, so
    that there is one even where a mask is all 0.
    """
    zero = g.weight("zero", np.array(0, np.int64))
    one = g.weight("one_int", np.array(1, np.int64))
    axis0 = g.weight("axis0", np.array([0], np.int64))
    length = g.node("row_length", "Gather", "shape", one, axis=0)
    first = g.node("first_place", "Equal", g.node("place_in_row", "Range", zero, length, one), zero)
    some = g.node("masked_in", "Cast", "attention_mask", to=TensorProto.BOOL)
    real = g.node("real_rows", "Or", some, first)
    flat = g.node("real", "Reshape", real, g.weight("flat_shape", np.array([-1], np.int64)))
    g.node("token_places", "Squeeze", g.node("real_places", "NonZero", flat), axis0)
    count = g.node("tokens_so_far", "CumSum", g.node("real_int", "Cast", flat, to=TensorProto.INT64), zero)
    g.node("place_tokens", "Sub", count, one)


def attention(g, layer, x, mask, w, cfg):
    """Multi-head self-attention without its residual connection."""
    source, name = f"encoder.layer.{layer}.attention.", f"layer{layer}."
    parts = ["query", "key", "value"]
    joint = g.dense(name + "qkv", x, w, *[source + "self." + p for p in parts])
    joint = g.node(name + "qkv.padded", "Gather", joint, "place_tokens", axis=0)
    g.nodes.append(helper.make_node("Split", [joint], [name + p for p in parts], axis=1, name=name + "split"))

    def heads(part, perm):
        y = g.node(name + part + ".heads", "Reshape", name + part, "heads_shape")
        return g.node(name + part + ".turned", "Transpose", y, perm=perm)

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scores = g.node(name + "scores", "MatMul", query, key)
    size = cfg["hidden_size"] // cfg["num_attention_heads"]
    scores = g.node(name + "scaled", "Div", scores, g.scalar(name + "root", math.sqrt(size)))
    scores = g.node(name + "seen", "Add", scores, mask)
    shares = g.node(name + "shares", "Softmax", scores, axis=-1)
    mixed = g.node(name + "mixed", "MatMul", shares, value)
    mixed = g.node(name + "joined", "Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = g.node(name + "rows", "Reshape", mixed, "rows_shape")
    mixed = g.node(name + "tokens", "Gather", mixed, "token_places", axis=0)
    return g.dense(name + "attended", mixed, w, source + "output.dense")


def gelu(g, name, x):
    """Exact GELU: x * 0.5 * (1 + erf(x / sqrt 2))."""
    inner = g.node(name + ".erf", "Erf", g.node(name + ".div", "Div", x, g.scalar(name + ".root2", math.sqrt(2))))
    plus = g.node(name + ".plus", "Add", inner, g.scalar(name + ".one", 1))
    return g.node(name, "Mul", g.node(name + ".whole", "Mul", x, plus), g.scalar(name + ".half", 0.5))


def encoder_layer(g, layer, x, mask, w, cfg):
    """One transformer layer over [tokens, hidden]."""
    source, name = f"encoder.layer.{layer}.", f"layer{layer}."
    epsilon = cfg["layer_norm_eps"]
    attended = attention(g, layer, x, mask, w, cfg)
    x = g.node(name + "attention_sum", "Add", attended, x)
    x = g.norm(name + "attention_norm", x, w, source + "attention.output.LayerNorm", epsilon)
    inner = gelu(g, name + "gelu", g.dense(name + "intermediate", x, w, source + "intermediate.dense"))
    x = g.node(name + "sum", "Add", g.dense(name + "output", inner, w, source + "output.dense"), x)
    return g.norm(name + "norm", x, w, source + "output.LayerNorm", epsilon)


def shapes(g, heads, hidden):
    """Target shapes: one row per token, heads apart, and the output's own."""
    g.node("shape", "Shape", "input_ids")
    g.weight("rows_shape", np.array([-1, hidden], np.int64))
    apart = g.weight("heads_size", np.array([heads, hidden // heads], np.int64))
    g.node("heads_shape", "Concat", "shape", apart, axis=0)
    whole = g.weight("hidden_size", np.array([hidden], np.int64))
    g.node("output_shape", "Concat", "shape", whole, axis=0)


def build(weights, cfg):
    """The whole ModelProto for a checkpoint's weights and config."""
    g = Graph()
    hidden = cfg["hidden_size"]
    shapes(g, cfg["num_attention_heads"], hidden)
    packing(g)
    x = embeddings(g, weights, cfg["layer_norm_eps"])
    mask = additive_mask(g)
    for layer in range(cfg["num_hidden_layers"]):
        x = encoder_layer(g, layer, x, mask, weights, cfg)
    x = g.node("padded", "Gather", x, "place_tokens", axis=0)
    g.node("last_hidden_state", "Reshape", x, "output_shape")

    dims = ["batch", "sequence"]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, dims)
        for n in ("input_ids", "attention_mask", "token_type_ids")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, dims + [hidden])
    graph = helper.make_graph(g.nodes, "bert", inputs, [output], g.weights)
    model = helper.make_model(
        graph, producer_name="tutti", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    onnx.checker.check_model(model)
    return model


def check_config(cfg):
    """Refuse what the graph above does not say."""
    expected = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, want in expected.items():
        found = cfg.get(key, want)
        if found != want:
            sys.exit(f"config.json: {key}: expected '{want}', found '{found}'")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("safetensors", help="model.safetensors")
    parser.add_argument("config", help="config.json beside it")
    parser.add_argument("output", help="the model.onnx to write")
    args = parser.parse_args()

    with open(args.config, encoding="utf-8") as f:
        cfg = json.load(f)
    check_config(cfg)
    data = build(load_file(args.safetensors), cfg).SerializeToString(deterministic=True)
    with open(args.output, "wb") as f:
        f.write(data)


if __name__ == "__main__":
    main()
