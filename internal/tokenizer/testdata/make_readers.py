"""Writes readers.jsonl.gz: models in the formats of sentencepiece, tiktoken and tekken (Mistral's), and what those libraries
say of the corpus.

A line is a model: its name, format, options, the file in base64 (a sentencepiece model's characters map is that of
charsmap.gz where "charsmap" is set, and left out), and by entry of the corpus the CRC-32 of the JSON list of its ids,
a space and the text that the ids decode to; "long" is the same of all those entries with spaces between them.

Run: pip install sentencepiece==0.2.3 tiktoken==0.14.0 tokenizers==0.23.3 mistral-common==1.13.1 protobuf regex && python make_readers.py
"""

import base64
import gzip
import io
import json
import pathlib
import tempfile
import zlib

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from sentencepiece import sentencepiece_model_pb2
from tiktoken._educational import bpe_train

import corpus_more
import make_gold
import make_kinds

CHARSMAP = gzip.decompress((make_kinds.HERE / "charsmap.gz").read_bytes())
CL100K = make_kinds.LLAMA3
CASES = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": CL100K,
    "o200k": "|".join(r"[^\r\n\p{L}\p{N}]?" + c + r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for c in CASES)
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen": CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),
}
TEKKEN = "|".join(r"[^\r\n\p{L}\p{N}]?" + c for c in CASES) + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SYMBOLS = ["<sep>", "of the", "漢"]
SENTENCEPIECE = {
    "unigram": ("unigram", 800, {"normalization_rule_name": "nmt_nfkc"}, {}),
    "unigram symbols": ("unigram", 1100, {"normalization_rule_name": "identity", "byte_fallback": True, "user_defined_symbols": SYMBOLS,
                                         "control_symbols": ["<ctl>"]}, {"add_bos": True, "add_eos": True}),
    "unigram plain": ("unigram", 800, {"normalization_rule_name": "nmt_nfkc", "add_dummy_prefix": False, "remove_extra_whitespaces": False}, {}),
    "unigram long": ("unigram", 1200, {"normalization_rule_name": "nmt_nfkc", "byte_fallback": True}, {}),
    "bpe": ("bpe", 800, {"normalization_rule_name": "nmt_nfkc"}, {"add_eos": True}),
    "bpe bytes": ("bpe", 1200, {"normalization_rule_name": "identity", "byte_fallback": True, "remove_extra_whitespaces": False,
                               "user_defined_symbols": SYMBOLS}, {"add_bos": True}),
    "bpe plain": ("bpe", 900, {"normalization_rule_name": "identity", "add_dummy_prefix": False}, {}),
}


def entries():
    """Every fourth text of the corpus by its number, without pairs and the longest ones."""
    everything = make_gold.corpus() + [[a] for a in make_gold.ADDED] + corpus_more.more()
    return [(i, e[0]) for i, e in enumerate(everything) if i % 4 == 0 and len(e) == 1 and len(e[0]) < 3000]


ENTRIES = entries()


def line(name, kind, options, file, encode, decode, **more):
    sums = []
    for i, text in ENTRIES:
        ids = encode(text)
        sums.append([i, zlib.crc32((json.dumps(ids, separators=(",", ":")) + " ").encode() + decode(ids))])
    head = {"name": name, "format": kind, "options": options, "file": base64.b64encode(file).decode(), **more, "sums": sums}
    if name == "unigram long":  # All texts in one, in which sums of scores are no longer exact.
        ids = encode(" ".join(text for _, text in ENTRIES))
        head["long"] = zlib.crc32((json.dumps(ids, separators=(",", ":")) + " ").encode() + decode(ids))
    return json.dumps(head, separators=(",", ":")) + "\n"


def sentencepieces():
    for name, (kind, size, training, options) in SENTENCEPIECE.items():
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(make_kinds.training()), model_writer=out, model_type=kind, vocab_size=size,
                                                 num_threads=1, minloglevel=2, character_coverage=0.98, **training)
        sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        m = sentencepiece_model_pb2.ModelProto()
        m.ParseFromString(out.getvalue())
        mapped = m.normalizer_spec.precompiled_charsmap
        if mapped:
            assert mapped == CHARSMAP
            m.normalizer_spec.ClearField("precompiled_charsmap")
        yield line(name, "sentencepiece", options, m.SerializeToString(), lambda t: sp.encode(t, **options), lambda ids: sp.decode(ids).encode(),
                   charsmap=bool(mapped))


def tiktokens():
    text = "\n".join(make_kinds.training())[:40000]
    for name, pattern in PATTERNS.items():
        ranks = bpe_train(data=text, vocab_size=400, pat_str=pattern, visualise=None)
        special = {"<|endoftext|>": 1000, "[CLS]": 1002}
        enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        file = b"".join(base64.b64encode(t) + f" {r}\n".encode() for t, r in ranks.items())
        options = {"pattern": name, "special": " ".join(f"{t}={i}" for t, i in special.items())}
        yield line("tiktoken " + name, "tiktoken", options, file, lambda t: enc.encode(t, allowed_special="all"), enc.decode_bytes)


def tekkens():
    """One file as those of version 3, and one that lists its special tokens. Both hold more tokens than are used, and "<s>" as one
    of them."""
    text = "\n".join(make_kinds.training())[:40000] + "<s> a <s> b" * 50
    ranks = bpe_train(data=text, vocab_size=500, pat_str=TEKKEN, visualise=None)
    vocab = [{"rank": r, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, r in ranks.items()]
    special = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>", "</s>", "[X]", "<pad>"])]
    for name, count, given, options in (("v3", 50, None, {"add_bos": True}), ("v11", 7, special, {"add_bos": True, "add_eos": True})):
        config = {"pattern": TEKKEN, "num_vocab_tokens": 500, "default_vocab_size": count + 450, "default_num_special_tokens": count, "version": name}
        file = json.dumps({"config": config, "vocab": vocab, "version": 1, "type": "Tekken"} | ({"special_tokens": given} if given else {})).encode()
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d, "tekken.json")
            path.write_bytes(file)
            tekken = Tekkenizer.from_file(path)
        policy = SpecialTokenPolicy.IGNORE if given else SpecialTokenPolicy.KEEP
        yield line("tekken " + name, "tekken", options | {"skip": bool(given)}, file, lambda t: tekken.encode(t, True, "add_eos" in options),
                   lambda ids: tekken.decode(ids, policy).encode())


def main():
    make_gold.write("readers.jsonl.gz", [*sentencepieces(), *tiktokens(), *tekkens()])


if __name__ == "__main__":
    main()
