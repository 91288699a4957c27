"""The models that every peer serves: ONNX Runtime sessions over the same files.

Nothing here knows a server; each peer wraps these in its own idiom.
"""

import os
import re

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from asked import ROOT, THREADS


def session(path):
    """A session on the CPU with the requested number of threads, which do not spin."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def identity_steps():
    """The files of identity3's models, in the order its ensemble runs them."""
    folder = os.path.join(ROOT, "bench", "repository", "identity3")
    with open(os.path.join(folder, "identity3", "config.pbtxt"), encoding="utf-8") as f:
        names = re.findall(r'model_name:\s*"([^"]+)"', f.read())
    return [os.path.join(folder, name, "1", "model.onnx") for name in names]


class Step:
    """One of identity3's models: FP32 [n, 16] in and out."""

    def __init__(self, path):
        self.session = session(path)
        self.input = self.session.get_inputs()[0].name

    def __call__(self, x):
        return self.session.run(None, {self.input: x})[0]


class Embedder:
    """Sentences in, unit vectors FP32 [n, 384] out; a shorter row is padded to the longest."""

    def __init__(self):
        folder = os.path.join(ROOT, "examples", "ensembles", "text")
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer", "1", "tokenizer.json"))
        self.tokenizer.enable_padding()
        self.session = session(os.path.join(folder, "minilm", "1", "model.onnx"))

    def __call__(self, texts):
        rows = self.tokenizer.encode_batch(texts)
        feed = {
            "input_ids": np.array([r.ids for r in rows], np.int64),
            "attention_mask": np.array([r.attention_mask for r in rows], np.int64),
            "token_type_ids": np.array([r.type_ids for r in rows], np.int64),
        }
        hidden = self.session.run(["last_hidden_state"], feed)[0]
        mask = feed["attention_mask"].astype(np.float32)
        vectors = (mask[:, None, :] @ hidden)[:, 0] / mask.sum(axis=1, keepdims=True)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def many(self, requests):
        """Several requests of one or more sentences each as one batch."""
        vectors = self([text for texts in requests for text in texts])
        ends = np.cumsum([len(texts) for texts in requests])
        return np.split(vectors, ends[:-1])
