#!/usr/bin/env python3
"""Write the words, the ONNX model and the expected.json of the example python_chain.

Run by hand after a change; needs onnx and numpy only. The expected answers are worked out here with numpy, not by running
the models.
"""

import json
import re
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/python_chain"
LENGTH = 16
LABELS = ["plain", "bad", "good"]
MOODS = {"bad": "awful bad boring broken dull hate poor sad slow terrible ugly worst",
         "plain": "a and as at is it maybe of okay on so some the this to was",
         "good": "beautiful best bright clever fast fine good great happy love nice wonderful żółty"}
TEXTS = {
    "praise": ["What a wonderful, clever thing: I love it!"],
    "complaint": ["Slow, dull and broken; the worst of all."],
    "indifferent": ["It is as it was."],
    "nothing": [""],
    "long": ["good " * 15 + "bad " * 40],
    "three rows": ["Nice and bright", "sad, SAD, sad", "ŻÓŁTY?"],
}

WORDS = ["<unknown>"] + sorted(" ".join(MOODS.values()).split())


def weights():
    """A row of scores for each word; words that nobody knows say little."""
    table = np.zeros((len(WORDS), len(LABELS)), np.float32)
    table[0, 0] = 0.125
    for i, label in enumerate(LABELS):
        for word in MOODS[label].split():
            table[WORDS.index(word), i] = (1 + len(word) % 4 / 4) * (0.25 if label == "plain" else 1)
    return table


def write_model(table):
    node, port = helper.make_node, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Gather", ["table", "ids"], ["of_words"]), node("Unsqueeze", ["mask", "last"], ["wide"]),
         node("Mul", ["of_words", "wide"], ["counted"]), node("ReduceSum", ["counted", "words"], ["scores"], keepdims=0)],
        "chain_model", [port("ids", TensorProto.INT64, ["batch", LENGTH]), port("mask", TensorProto.FLOAT, ["batch", LENGTH])],
        [port("scores", TensorProto.FLOAT, ["batch", len(LABELS)])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([2], np.int64), "last"),
         numpy_helper.from_array(np.array([1], np.int64), "words")])
    model = helper.make_model(graph, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    (FOLDER / "chain_model/1/model.onnx").write_bytes(model.SerializeToString(deterministic=True))


def answer(texts, table):
    found = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())[:LENGTH]
        scores = sum((table[WORDS.index(w) if w in WORDS else 0] for w in words), np.zeros(len(LABELS)))
        odds = np.exp(scores - scores.max())
        found.append((LABELS[int(scores.argmax())], odds / odds.sum()))
    return found


def request(name, texts, table):
    found = answer(texts, table)
    return {"name": name, "atol": 1e-6,
            "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": texts}],
            "outputs": [{"name": "LABEL", "datatype": "BYTES", "shape": [len(texts), 1], "data": [label for label, _ in found]},
                        {"name": "PROBABILITIES", "datatype": "FP32", "shape": [len(texts), len(LABELS)],
                         "data": [round(float(p), 7) for _, row in found for p in row]}]}


def main():
    table = weights()
    (FOLDER / "chain_words/1/words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    write_model(table)
    lines = ",\n".join(json.dumps(request(*t, table), ensure_ascii=False) for t in TEXTS.items())
    (FOLDER / "expected.json").write_text(f'{{"ensemble": "python_chain", "requests": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
