"""Writes gold.json.gz: texts of pyctcdecode, and of Wav2Vec2CTCTokenizer, for logits made here.

    python -m venv v && v/bin/pip install numpy==1.26.4 pyctcdecode==0.5.0 transformers==5.24.0
    v/bin/python steps/audio/ctc/testdata/make_gold.py
"""

import base64
import gzip
import json
import pathlib
import tempfile

import numpy as np
from pyctcdecode import build_ctcdecoder
from transformers import Wav2Vec2CTCTokenizer

TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"etaonihsrdlumwcfgypbvk'xjqz"]
TEXTS = ["the quick brown fox", "a cat saw all balloons", "hello", "it's zero", " two  spaces ", "aab bba abab"]


def logits(text, rng, noise):
    """Windows that spell a text with repeats, blanks and doubts."""
    rows = []
    for i, c in enumerate(text):
        token = TOKENS.index("|" if c == " " else c)
        if i and text[i - 1] == c:
            rows.append(0)
        rows += [token] * rng.integers(1, 4) + [0] * rng.integers(0, 3)
    x = rng.standard_normal((len(rows), len(TOKENS))) * noise
    x[:, 1:4] -= 9  # special tokens never win
    for t, token in enumerate(rows):
        x[t, token] += 4
        x[t, rng.integers(4, len(TOKENS))] += rng.uniform(1, 4)
    return x.astype(np.float32)


def main():
    rng = np.random.default_rng(26)
    labels = ["" if t == "<pad>" else " " if t == "|" else t for t in TOKENS]
    decoder = build_ctcdecoder(labels)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({t: i for i, t in enumerate(TOKENS)}, f)
        f.flush()
        tokenizer = Wav2Vec2CTCTokenizer(f.name)
        cases = []
        for i, text in enumerate(TEXTS * 2):
            x = logits(text, rng, (1, 2)[i // len(TEXTS)])
            beams = []
            for width in (2, 10, 100):
                found = decoder.decode_beams(x, beam_width=width)
                beams.append({"width": width, "texts": [b[0] for b in found[:5]], "scores": [float(b[-2]) for b in found[:5]]})
            greedy = tokenizer.decode(x.argmax(1), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            cases.append({"logits": base64.b64encode(x.tobytes()).decode(), "windows": len(x), "greedy": greedy, "beams": beams})
    with open(pathlib.Path(__file__).parent / "gold.json.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(json.dumps({"tokens": TOKENS, "cases": cases}).encode())


main()
