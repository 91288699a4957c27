"""Times what PyPI tokenizers takes for the cases of steps/tokenize's BenchmarkPeer, one thread, microseconds of CPU a text.

The fastest way of the library: a batch, without offsets.

Run by make bench-steps; alone: PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 -P bench/peers/steps/tokenize.py
"""

import base64
import gzip
import json
import os
import pathlib
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

DATA = pathlib.Path(__file__).parents[3] / "internal" / "tokenizer" / "testdata"


def read(name):
    return gzip.decompress((DATA / name).read_bytes())


def files():
    """The tokenizers by kind."""
    charsmap = base64.b64encode(read("charsmap.gz")).decode()
    lines = read("models.jsonl.gz").decode().replace("CHARSMAP", charsmap).splitlines()
    out = {m["name"]: m["file"] for m in map(json.loads, lines)}
    out["wordpiece"] = {**json.loads(read("minilm.json.gz")), "truncation": None, "padding": None}
    return out


def rare():
    """Texts of words of 1 to 12 random letters, hardly any of them twice, so that no memory of words helps."""
    out, x = [], 1
    for _ in range(4000):
        text = ""
        for _ in range(12):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF
            for _ in range((x >> 16) % 12 + 1):
                x = (x * 1103515245 + 12345) & 0x7FFFFFFF
                text += chr(97 + (x >> 16) % 26)
            text += " "
        out.append(text)
    return out


def texts():
    """The corpus without pairs and the longest texts: every fifth of them, and those in English and code."""
    entries = json.loads(read("gold.jsonl.gz").split(b"\n", 1)[0])["corpus"] + json.loads(read("more.json.gz"))
    single = [e[0] for e in entries if len(e) == 1 and len(e[0].encode()) <= 2000]
    return {"corpus": single[::5], "english": [t for t in single if t.isascii() and len(t) >= 20], "rare words": rare()}


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def main():
    out = {}
    for kind, file in files().items():
        tok = Tokenizer.from_str(json.dumps(file))
        for name, lines in texts().items():
            out[f"{kind}, {name}"] = cost(lambda: tok.encode_batch_fast(lines), len(lines))
    print(json.dumps(out))


main()
