"""Writes the parity gold of every kind of tokenizer: what the reference says of the whole corpus.

The corpus is make_gold.py's with corpus_more.py's behind it; more.json.gz holds the second half. models.json.gz holds
the tokenizers, small and trained here by `python make_kinds.py train` (the reference's training is not the same from
run to run, so the answers are made of the stored models). Each kind_NAME.jsonl.gz has a line with the tokenizer and its
variants, and a line per corpus entry with the variants' answers (see answer); parts.py lists variants that try one
component each. decoders.json.gz holds decoded ids.

Run: pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf && python make_kinds.py
"""

import base64
import gzip
import io
import json
import pathlib
import random
import sys
import zlib

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus_more
import make_gold
import parts

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def training():
    rng = random.Random(1)
    english = [" ".join(rng.choice(make_gold.WORDS) for _ in range(8)) for _ in range(300)]
    return corpus_more.ARTICLE * 2 + corpus_more.SOURCE * 3 + english


def pattern(p):
    return pre_tokenizers.Split(tokenizers.Regex(p), "isolated")


def byte_level(size, pre, special):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer, tok.decoder = pre, decoders.ByteLevel()
    tok.train_from_iterator(training(), trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def gpt2():
    tok = byte_level(900, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def roberta():
    tok = byte_level(700, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<s>", "<pad>", "</s>", "<unk>"])
    tok.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return tok


def llama3():
    split = pre_tokenizers.Sequence([pattern(LLAMA3), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok = byte_level(1000, split, ["<|begin_of_text|>", "<|end_of_text|>"])
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", 0)])])
    data = json.loads(tok.to_str())
    data["model"]["ignore_merges"] = True
    # Whole words that no merges lead to, as the real vocabulary has.
    for word in ["ĠHello", "Ġuniversal", "conscience", "Ġİstanbul".encode().decode("latin-1")]:
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    return Tokenizer.from_str(json.dumps(data))


def qwen():
    split = pre_tokenizers.Sequence([pattern(QWEN), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok = byte_level(700, split, [])
    tok.normalizer, tok.post_processor = normalizers.NFC(), processors.ByteLevel(trim_offsets=False)
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens(["<tool>"])
    return tok


def sentencepiece_model(kind, size, **options):
    import sentencepiece
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(training()), model_writer=out, model_type=kind, vocab_size=size,
                                             num_threads=1, minloglevel=2, character_coverage=0.98, **options)
    return out.getvalue()


def proto(model):
    from sentencepiece import sentencepiece_model_pb2
    m = sentencepiece_model_pb2.ModelProto()
    m.ParseFromString(model)
    return m


def charsmap(m):
    return normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap)


def llama2():
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    lines = [w for line in training() for w in line.split()]
    tok.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, limit_alphabet=150, special_tokens=words, show_progress=False))
    data = json.loads(tok.to_str())
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 3]
    tok = Tokenizer.from_str(json.dumps(data))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tok


def t5(m):
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(p.piece, p.score) for p in m.pieces[3:]] + [("<extra_id_0>", 0.0)]
    tok = Tokenizer(models.Unigram(vocab, 2, False))
    tok.normalizer = charsmap(m)
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tok.decoder = decoders.Metaspace()
    tok.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    return tok


def xlmr(m):
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + [(p.piece, p.score) for p in m.pieces[3:]] + [("<mask>", 0.0)]
    tok = Tokenizer(models.Unigram(vocab, 3, False))
    tok.normalizer = normalizers.Sequence([charsmap(m), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                       special_tokens=[("<s>", 0), ("</s>", 2)])
    tok.decoder = decoders.Metaspace()
    tok.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", tokenizers.AddedToken("<mask>", lstrip=True)])
    return tok


def wordlevel():
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    tok.train_from_iterator(training(), trainers.WordLevelTrainer(vocab_size=600, special_tokens=special, show_progress=False))
    tok.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tok


def train():
    m = proto(sentencepiece_model("unigram", 1000, normalization_rule_name="nmt_nfkc"))
    (HERE / "charsmap.gz").write_bytes(gzip.compress(m.normalizer_spec.precompiled_charsmap, 9, mtime=0))
    made = {"gpt2": gpt2(), "roberta": roberta(), "llama3": llama3(), "qwen": qwen(), "llama2": llama2(), "t5": t5(m), "xlmr": xlmr(m),
            "wordlevel": wordlevel()}
    lines = (json.dumps({"name": k, "file": json.loads(t.to_str())}, ensure_ascii=False, separators=(",", ":")) + "\n" for k, t in made.items())
    make_gold.write("models.jsonl.gz", (line.replace(encoded(), MARK) for line in lines))


# MARK stands in the stored files where the characters map of charsmap.gz goes, so that it is stored once.
MARK = "CHARSMAP"


def encoded():
    return base64.b64encode(gzip.decompress((HERE / "charsmap.gz").read_bytes())).decode()


def stored():
    lines = gzip.decompress((HERE / "models.jsonl.gz").read_bytes()).decode().replace(MARK, encoded()).splitlines()
    return {m["name"]: m["file"] for m in map(json.loads, lines)} | {"wordpiece": {**make_gold.BASE, "truncation": None, "padding": None}}


# PANIC is what an entry is given where the reference panics; it has no line.
PANIC, PANIC_TEXT = "panic", '"panic"'


def answer(tok, entry):
    """An encoding as lists: ids; type ids and attention mask as runs, without the usual one of all 0 and all 1; the
    special tokens' places, those of the second half from the end; the offsets in bytes as triples of token,
    distance from the previous token's end and length, only where the two are not 0 and the length this id had before
    in the encoding (1 at first). Trailing empty lists are left out. Overflowing encodings follow in a list; None is
    an error."""
    try:
        e = tok.encode(*entry)
    except Exception:
        return None
    except BaseException as panic:
        if isinstance(panic, (KeyboardInterrupt, SystemExit)):
            raise
        return PANIC
    return trimmed(lists(e, entry) + [[trimmed(lists(o, entry)) for o in e.overflowing]])


def lists(e, entry):
    types, mask, n = make_gold.runs(e.type_ids), make_gold.runs(e.attention_mask), len(e.ids)
    special = [i if i < n / 2 else i - n for i, s in enumerate(e.special_tokens_mask) if s]
    return [e.ids, types if any(e.type_ids) else [], mask if not all(e.attention_mask) else [], special, offsets(e, entry)]


def trimmed(out):
    while len(out) > 1 and not out[-1]:
        out.pop()
    return out


def offsets(e, entry):
    out, last, lengths = [], 0, {}
    for i, ((a, b), text) in enumerate(zip(e.offsets, e.sequence_ids)):
        if e.special_tokens_mask[i] and a == b == 0:
            last = 0
            continue
        a, b = (len(entry[min(text or 0, len(entry) - 1)][:at].encode()) for at in (a, b))
        if a != last or lengths.get(e.ids[i], 1) != b - a:
            out += [i, a - last, b - a]
        lengths[e.ids[i]], last = b - a, b
    return out


# FULL is the longest answer stored as it is; of a longer one its CRC-32 is.
FULL = 240


def gold(name, base, entries, variants):
    """The lines of a file. The name says which stored tokenizer the base is; without one the file holds it."""
    variants = list(variants)
    made = [(v, Tokenizer.from_str(json.dumps({**base, **v["patch"]}))) for v in variants]
    yield json.dumps({"tokenizers": tokenizers.__version__, "base": name, "file": None if name else base, "variants": variants}, separators=(",", ":")) + "\n"
    for i, entry in enumerate(entries):
        rows, seen = [], {}
        for k, (v, tok) in enumerate(made):
            if i < v["from"] or (i - v["from"]) % v["every"]:
                continue
            text = json.dumps(answer(tok, entry), separators=(",", ":"))
            if text == PANIC_TEXT:
                continue
            if len(text) > FULL:
                text = f"[{zlib.crc32(text.encode())}]"
            rows.append(f"[{k},{seen.setdefault(text, text)}]")
            seen[text] = str(k)
        if rows:
            yield f"[{i},{','.join(rows)}]\n"


def main():
    first = make_gold.corpus() + [[a] for a in make_gold.ADDED]
    second = corpus_more.more()
    make_gold.write("more.json.gz", [json.dumps(second, ensure_ascii=False, separators=(",", ":"))])
    everything, bases = first + second, stored()
    for name, base in bases.items():
        start = len(first) if name == "wordpiece" else 0
        make_gold.write(f"kind_{name}.jsonl.gz", gold(name, base, everything, parts.of_kind(name, base, start)))
    for name, (of, base), variants in parts.components(bases):
        make_gold.write(f"part_{name}.jsonl.gz", gold(of, base, everything, variants))
    make_gold.write("decoders.jsonl.gz", parts.decoded(bases, everything))


if __name__ == "__main__":
    train() if "train" in sys.argv else main()
