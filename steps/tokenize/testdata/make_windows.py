"""Writes windows.jsonl.gz: what transformers makes of texts that are longer than max_length, with return_overflowing_tokens.

A line is a call: the tokenizer by its name in models.jsonl.gz, sections of its file to replace, the step's parameters, the entries of
the corpus that are its texts (the second ones, where there are pairs), the shape of input_ids, and by output the CRC-32 of the JSON
list of its numbers, those of padding included. Where word_ids and sequence_ids have None stands -1.

Run: pip install tokenizers==0.23.3 transformers==5.23.0 && python make_windows.py
"""

import json
import random
import zlib

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import corpus_more
import make_gold
import make_kinds

PAIRS = ["What is it about?", "How many are there, and where?", "Wer war das? Ein Gruß"]


def entries():
    return make_gold.corpus() + [[a] for a in make_gold.ADDED] + corpus_more.more()


def flat(v):
    return [x for row in v for x in flat(row)] if isinstance(v, list) else [v]


def files():
    stored = make_kinds.stored()
    for name, pad in ("wordpiece", "[PAD]"), ("roberta", "<pad>"), ("xlmr", "<pad>"):
        yield name, stored[name], pad


def main():
    corpus, rng, lines = entries(), random.Random(4), []
    single = [i for i, e in enumerate(corpus) if len(e) == 1 and 20 < len(e[0]) < 4000]
    for name, file, pad in files():
        for case in range(20):
            pairs = case % 3 == 2
            n = rng.randrange(1, 7)
            picked = rng.sample(single, n)
            length = rng.choice([8, 12, 16, 33, 64, 128]) + 16 * pairs
            stride = rng.choice([0, 0, 1, 3, length // 3 - 2]) if not pairs else rng.choice([0, 1, 4])
            strategy = rng.choice(["only_second", "longest_first"]) if pairs else rng.choice(["longest_first", "only_first"])
            side, padside = rng.choice(["right", "right", "left"]), rng.choice(["right", "right", "left"])
            pad_id = Tokenizer.from_str(json.dumps(file)).token_to_id(pad)
            patch = {
                "truncation": {"max_length": 512, "strategy": "LongestFirst", "direction": side.title(), "stride": 0},
                "padding": {"strategy": "BatchLongest", "direction": padside.title(), "pad_to_multiple_of": None, "pad_id": pad_id,
                            "pad_type_id": 0, "pad_token": pad},
            }
            tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(file | patch)), pad_token=pad, padding_side=padside,
                                          truncation_side=side)
            first = [corpus[i][0] for i in picked]
            texts = [PAIRS[k % 3] for k in range(n)] if pairs else first
            try:
                out = tok(texts, first if pairs else None, padding=True, truncation=strategy, max_length=length, stride=stride,
                          return_overflowing_tokens=True, return_offsets_mapping=True, return_special_tokens_mask=True, return_token_type_ids=True)
            except BaseException as e:  # The library's own panics, for windows that make no sense.
                print(name, case, strategy, length, stride, type(e).__name__, str(e)[:80])
                continue
            rows = len(out["input_ids"])
            values = dict(out)
            values["offset_mapping"] = [[list(o) for o in row] for row in values["offset_mapping"]]
            none = lambda ids: [-1 if i is None else i for i in ids]
            values["word_ids"] = [none(out.word_ids(i)) for i in range(rows)]
            values["sequence_ids"] = [none(out.sequence_ids(i)) for i in range(rows)]
            lines.append(json.dumps({
                "name": name, "patch": patch, "pairs": [PAIRS[k % 3] for k in range(n)] if pairs else None, "picked": picked,
                "params": {"max_length": str(length), "stride": str(stride), "truncate": strategy, "return_overflowing_tokens": "true"},
                "shape": [rows, len(out["input_ids"][0])],
                "sums": {k: zlib.crc32(json.dumps(flat(v), separators=(",", ":")).encode()) for k, v in values.items()},
            }, separators=(",", ":")) + "\n")
    make_gold.write("windows.jsonl.gz", lines)


if __name__ == "__main__":
    main()
