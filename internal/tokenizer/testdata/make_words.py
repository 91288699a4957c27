"""Writes words.jsonl.gz: the CRC-32 of the reference's word and sequence numbers of every seventh entry of the corpus, by kind.

A line is the tokenizer's name and [entry, CRC-32] pairs; what is summed is the JSON of both lists, -1 for none.

Run: pip install tokenizers==0.23.3 && python make_words.py
"""

import json
import zlib

from tokenizers import Tokenizer

import corpus_more
import make_gold
import make_kinds


def numbers(values):
    return [-1 if v is None else v for v in values]


def main():
    entries = make_gold.corpus() + [[a] for a in make_gold.ADDED] + corpus_more.more()
    lines = []
    for name, base in make_kinds.stored().items():
        tok, row = Tokenizer.from_str(json.dumps(base)), []
        for i in range(0, len(entries), 7):
            try:
                e = tok.encode(*entries[i])
            except Exception:
                continue
            text = json.dumps([numbers(e.word_ids), numbers(e.sequence_ids)], separators=(",", ":"))
            row.append([i, zlib.crc32(text.encode())])
        lines.append(json.dumps([name, row], separators=(",", ":")) + "\n")
    make_gold.write("words.jsonl.gz", lines)


if __name__ == "__main__":
    main()
