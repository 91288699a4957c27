"""The variants that make_kinds.py makes gold of: every kind whole, cut and padded; every normalizer, pre-tokenizer and
post-processor alone and in sequences; added tokens; every decoder."""

import json
import random

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

import make_gold

RNG = random.Random(66)


def as_json(component):
    return json.loads(component.__getstate__())


def variant(name, patch, start=0, every=1):
    return {"name": name, "patch": patch, "from": start, "every": every}


def truncation(n, strategy="LongestFirst", direction="Right", stride=0):
    return {"max_length": n, "strategy": strategy, "direction": direction, "stride": stride}


def padding(strategy="BatchLongest", direction="Right", multiple=None):
    return {"strategy": strategy, "direction": direction, "pad_to_multiple_of": multiple, "pad_id": 2, "pad_type_id": 3, "pad_token": "x"}


def of_kind(name, base, start):
    """A kind's variants: whole on every entry, cut and padded on some, without special tokens' post-processor on some."""
    yield variant("plain", {}, start)
    yield variant("cut and padded", {"truncation": truncation(16), "padding": padding({"Fixed": 16}, "Left")}, start + 3, 40)
    yield variant("no post-processor", {"post_processor": None}, start + 5, 40)


NFKC_PARTS = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
NORMALIZERS = {
    "bert": normalizers.BertNormalizer(), "bert cased": normalizers.BertNormalizer(lowercase=False),
    "bert chinese": normalizers.BertNormalizer(clean_text=False, lowercase=False, strip_accents=False),
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(),
    "lowercase": normalizers.Lowercase(), "strip accents": normalizers.StripAccents(), "nmt": normalizers.Nmt(),
    "strip": normalizers.Strip(), "strip left": normalizers.Strip(right=False), "strip right": normalizers.Strip(left=False),
    "replace": normalizers.Replace("e", "▁▁"), "replace nothing": normalizers.Replace("a", ""), "replace regex": normalizers.Replace(Regex(r"[aeiou]+|\d{2}"), "#"),
    "replace spaces": normalizers.Replace(Regex(" {2,}"), " "), "prepend": normalizers.Prepend("▁"), "prepend two": normalizers.Prepend("é_"),
    "byte level": normalizers.ByteLevel(), "sequence": normalizers.Sequence(NFKC_PARTS),
    "nfd strip lower": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.NFC()]),
    "quotes": normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.Prepend("x"), normalizers.Replace("x", "yy")]),
    "empty sequence": normalizers.Sequence([]),
}
METASPACES = {f"metaspace {s} {v}": pre_tokenizers.Metaspace(prepend_scheme=s, split=v) for s in ("always", "never", "first") for v in (True, False)}
PUNCTUATION = {f"punctuation {b}": pre_tokenizers.Punctuation(b)
               for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")}
SPLITS = {f"split {b} {i}": pre_tokenizers.Split(Regex(r"[a-m]+|\d|\s+"), b, i) for i in (False, True)
          for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")}
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS = {
    "bert": pre_tokenizers.BertPreTokenizer(), "whitespace": pre_tokenizers.Whitespace(), "whitespace split": pre_tokenizers.WhitespaceSplit(),
    **PUNCTUATION, "digits": pre_tokenizers.Digits(), "single digits": pre_tokenizers.Digits(True), **SPLITS,
    "split text": pre_tokenizers.Split("a", "merged_with_next"), "split o200k": pre_tokenizers.Split(Regex(O200K), "isolated"),
    "split gpt-2": pre_tokenizers.Split(Regex(GPT2), "isolated"),
    "split look": pre_tokenizers.Split(Regex(r"(?<=[a-z])(?=[A-Z])|\b"), "isolated"),
    "split possessive": pre_tokenizers.Split(Regex(r"\p{Han}++|[^\p{Han}\s]{1,4}"), "isolated"),
    "split digits by three": pre_tokenizers.Split(Regex(r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*\b)"), "isolated"),
    "split class": pre_tokenizers.Split(Regex(r"[\w&&[^\d_]]+|[[:punct:]]"), "isolated"),
    "split back": pre_tokenizers.Split(Regex(r"(\w)\1"), "isolated"),
    "delimiter": pre_tokenizers.CharDelimiterSplit("e"), "byte level": pre_tokenizers.ByteLevel(),
    "byte level no prefix": pre_tokenizers.ByteLevel(add_prefix_space=False), "byte level no regex": pre_tokenizers.ByteLevel(use_regex=False),
    **METASPACES, "metaspace other": pre_tokenizers.Metaspace("_"), "unicode scripts": pre_tokenizers.UnicodeScripts(),
    "fixed length": pre_tokenizers.FixedLength(3),
    "sequence": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(True)]),
    "sequence bytes": pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]),
    "sequence scripts": pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace()]),
    "empty sequence": pre_tokenizers.Sequence([]),
}


def template(single, pair):
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("[CLS]", 1), ("[SEP]", 2), ("[UNK]", 0)])


BERT, ROBERTA = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)), processors.RobertaProcessing
POST_PROCESSORS = {
    "none": None, "bert": BERT, "roberta": ROBERTA(("[SEP]", 2), ("[CLS]", 1)), "roberta untrimmed": ROBERTA(("[SEP]", 2), ("[CLS]", 1), trim_offsets=False),
    "roberta no prefix": ROBERTA(("[SEP]", 2), ("[CLS]", 1), add_prefix_space=False),
    "byte level": processors.ByteLevel(), "byte level untrimmed": processors.ByteLevel(trim_offsets=False),
    "byte level no prefix": processors.ByteLevel(add_prefix_space=False),
    "template": template("[CLS] $0 [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
    "template turned": template("$A:4 [SEP]:5", "$B:3 [SEP]:2 [CLS] $A:7"), "template twice": template("$A $A", "$A $B $A"),
    "template bare": template("$A", "$A $B"),
    "sequence": processors.Sequence([processors.ByteLevel(), template("[CLS] $A", "[CLS] $A [SEP]:1 $B:1")]),
    "sequence of templates": processors.Sequence([template("[CLS] $A", "[CLS] $A $B:1"), template("$A [SEP]", "$A [SEP] $B [SEP]:2")]),
}


def byte_tokens():
    """A model whose tokens are the bytes of what the normalizer made."""
    vocab = {"<unk>": 0} | {f"<0x{b:02X}>": b + 1 for b in range(256)}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": model}


def words(base):
    """The word-level kind without anything before and behind its model."""
    return {**base, "normalizer": None, "post_processor": None, "added_tokens": []}


def cuts():
    for strategy in ("LongestFirst", "OnlyFirst", "OnlySecond"):
        for direction in ("Right", "Left"):
            for n, stride in ((5, 0), (8, 2), (7, 3)):
                yield f"cut {strategy} {direction} {n} {stride}", {"truncation": truncation(n, strategy, direction, stride)}
    for direction in ("Right", "Left"):
        yield f"pad {direction}", {"padding": padding({"Fixed": 12}, direction)}
        yield f"pad multiple {direction}", {"padding": padding("BatchLongest", direction, 8)}
        yield f"pad fixed multiple {direction}", {"padding": padding({"Fixed": 12}, direction, 8)}
        yield f"pad and cut {direction}", {"padding": padding({"Fixed": 10}, direction), "truncation": truncation(9, "LongestFirst", direction, 1)}


def flags():
    for i in range(24):
        yield {k: bool(RNG.randrange(2)) for k in ("lstrip", "rstrip", "single_word", "normalized", "special")}


CONTENTS = ["<s>", "<mask>", "<tool>", "the", "and", "  ", "é", "ing", "▁a", "人", "'s", "12", "<0x0A>", "<|endoftext|>"]


def added(n):
    """Variants with added tokens under every kind of flags."""
    for k, chosen in enumerate([list(flags()) for _ in range(8)]):
        contents = RNG.sample(CONTENTS, 9)
        tokens = [make_gold.token(c, n + i, **f) for i, (c, f) in enumerate(zip(contents, chosen))]
        yield f"added {k}", {"added_tokens": tokens, "normalizer": {"type": "Lowercase"} if k % 2 else None}


def components(bases):
    """The files of component variants: name, tokenizer, variants."""
    bare, level = ("", byte_tokens()), ("", words(bases["wordlevel"]))
    of = {k: (k, v) for k, v in bases.items()}
    yield "normalizers", bare, [variant(k, {"normalizer": as_json(v)}, 1, 13) for k, v in NORMALIZERS.items()]
    yield "pretokenizers", bare, [variant(k, {"pre_tokenizer": as_json(v)}, 2, 29) for k, v in PRE_TOKENIZERS.items()]
    yield "words", level, [variant(k, {"pre_tokenizer": as_json(v)}, 3, 17) for k, v in PRE_TOKENIZERS.items()]
    yield "postprocessors", of["gpt2"], [variant(k, {"post_processor": v and as_json(v)}, 4, 31) for k, v in POST_PROCESSORS.items()]
    yield "cuts", of["wordlevel"], [variant(k, v, 6, 19) for k, v in cuts()]
    yield "added", of["gpt2"], [variant(k, v, 7, 11) for k, v in added(2000)]
    yield "models", of["llama2"], list(model_variants(bases["llama2"]["model"], bases["gpt2"], bases["t5"]))


def model_variants(llama, gpt2, t5):
    """Options of the models beside those of the kinds."""
    few = {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "▁a": 1, "▁": 2}}
    tokens = ["<unk>"] + [a + b for a in ("", "##") for b in "abcdefghijklmnopqrstuvwxyz"] + [c + "</w>" for c in "aeinst"]
    bpe = {**llama, "byte_fallback": False, "vocab": {t: i for i, t in enumerate(tokens + ["th", "the", "##th", "##the", "an", "and", "##nd"])},
           "merges": [["t", "##h"], ["th", "##e"], ["##t", "##h"], ["##th", "##e"], ["a", "##n"], ["an", "##d"], ["##n", "##d"]]}
    split = {"pre_tokenizer": {"type": "Whitespace"}, "normalizer": {"type": "Lowercase"}, "post_processor": None, "added_tokens": []}
    suffix = {**bpe, "vocab": {t: i for i, t in enumerate(tokens + ["th", "the</w>", "an"])},
              "merges": [["t", "h"], ["th", "e</w>"], ["a", "n"]], "end_of_word_suffix": "</w>"}
    suffix["vocab"]["e</w>"] = suffix["vocab"].get("e</w>", 900)
    for k, options in enumerate([{"fuse_unk": False}, {"fuse_unk": True}, {"fuse_unk": False, "unk_token": None}]):
        yield variant(f"prefix {k}", {**split, "model": {**bpe, **options, "continuing_subword_prefix": "##"}}, 8, 23)
        yield variant(f"suffix {k}", {**split, "model": {**suffix, **options}}, 8, 23)
    yield variant("no byte fallback", {"model": {**llama, "byte_fallback": False}}, 9, 23)
    yield variant("no fused unknown", {"model": {**llama, "byte_fallback": False, "fuse_unk": False}}, 9, 23)
    yield variant("ignore merges", {**{k: gpt2[k] for k in ("normalizer", "pre_tokenizer", "post_processor", "added_tokens")},
                                    "model": {**gpt2["model"], "ignore_merges": True}}, 9, 23)
    yield variant("word level", {"model": few}, 9, 23)
    bytes_too = t5["model"]["vocab"] + [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    rest = {k: t5[k] for k in ("pre_tokenizer", "post_processor", "added_tokens")}
    yield variant("unigram bytes", {**rest, "normalizer": None, "model": {**t5["model"], "vocab": bytes_too, "byte_fallback": True}}, 9, 23)
    yield variant("unigram plain", {**rest, "normalizer": None}, 9, 23)
    pieces = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 8, "vocab": bpe["vocab"]}
    yield variant("short word pieces", {**split, "model": pieces}, 9, 23)


DECODERS = {
    "none": None, "byte level": decoders.ByteLevel(), "word piece": decoders.WordPiece(), "word piece kept": decoders.WordPiece("##", False),
    "word piece prefix": decoders.WordPiece("@", True), "metaspace": decoders.Metaspace(), "metaspace never": decoders.Metaspace("▁", "never"),
    "metaspace first": decoders.Metaspace("_", "first"), "bpe": decoders.BPEDecoder(), "bpe suffix": decoders.BPEDecoder("@@"),
    "ctc": decoders.CTC(), "ctc kept": decoders.CTC("<pad>", "|", False), "ctc other": decoders.CTC("a", " ", True), "fuse": decoders.Fuse(),
    "strip": decoders.Strip(" ", 1, 0), "strip both": decoders.Strip("a", 2, 3), "byte fallback": decoders.ByteFallback(),
    "replace": decoders.Replace("▁", " "), "replace regex": decoders.Replace(Regex("[ab]+"), "x"), "replace nothing": decoders.Replace("b", ""),
    "llama": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "unfused strip": decoders.Sequence([decoders.Strip("a", 1, 1), decoders.Replace("▁", " ")]),
    "bytes and words": decoders.Sequence([decoders.ByteFallback(), decoders.WordPiece()]), "empty sequence": decoders.Sequence([]),
    "ctc and fuse": decoders.Sequence([decoders.CTC(), decoders.Fuse(), decoders.Strip("a", 1, 1)]),
    "byte level sequence": decoders.Sequence([decoders.ByteLevel(), decoders.Replace("a", "b")]),
}
ODD = ["<pad>", "|", "a", "b", "ab", "▁a", "▁", "▁▁b", "_c", "c</w>", "d@@", "##d", "##", "@e", "aa", "aab", "<0xE4>", "<0xBA>", "<0xBA>", "<0xFF>", "<0x0A>",
       "<0x41>", "<0xG1>", ".", "?", ",", "!", " '", "n't", "'m", "do", "not", "'s", "'ve", "'re", " ", "é", "人", "Ġ", "Ġthe", "Ċ", "Ã©", "Ã", "[CLS]",
       "</s>", "<unk>", "n", "'", "'s'", " .", " do not", "##.", "x ", "'t", "Ġ人"]


def decoded(bases, entries):
    """The decoders' gold: a line for the tokenizer (a base's name or the file) and one per variant; a case is ids and the
    texts without and with special tokens."""
    rng = random.Random(7)
    vocab = {t: i for i, t in enumerate(dict.fromkeys(ODD))}
    odd = {**byte_tokens(), "model": {"type": "WordPiece", "vocab": vocab, "unk_token": "<unk>", "continuing_subword_prefix": "##",
                                      "max_input_chars_per_word": 100},
           "added_tokens": [make_gold.token(t, vocab[t], special=t != "x ") for t in ("[CLS]", "</s>", "<pad>", "x ")]}
    rows = [[rng.randrange(len(vocab)) for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13]))] for _ in range(150)] + [[i] for i in range(len(vocab))]
    rows += [[i, i, 0, i] for i in (2, 3, 5, 8)] + [[16, 17, 18, 2], [16, 2, 17], [19, 2], [16, 17, 0, 17]]
    yield from lines("", {k: {**odd, "decoder": v and as_json(v)} for k, v in DECODERS.items()}, {k: rows for k in DECODERS}, odd)
    for name, base in bases.items():
        tok = Tokenizer.from_str(json.dumps(base))
        texts = [e[0] for e in entries[10::45] if len(e) == 1 and len(e[0]) < 200]
        n = tok.get_vocab_size()
        ids = [tok.encode(t).ids for t in texts] + [[rng.randrange(n) for _ in range(rng.randrange(12))] for _ in range(60)]
        yield from lines(name, {name: base}, {name: ids}, None)


def lines(base, files, rows, file):
    for k, f in files.items():
        tok = Tokenizer.from_str(json.dumps(f))
        cases = [[ids, text(tok, ids, False), text(tok, ids, True)] for ids in rows[k]]
        cases = [c if c[1] != c[2] else c[:2] for c in cases if c[1] is not None and c[2] is not None]
        yield json.dumps({"name": k, "base": base, "file": file, "decoder": f.get("decoder"), "cases": cases}, ensure_ascii=False, separators=(",", ":")) + "\n"
        file = None


def text(tok, ids, skip):
    """The decoded text, None where the reference panics."""
    try:
        return tok.decode(ids, skip_special_tokens=skip)
    except BaseException as panic:
        if isinstance(panic, (KeyboardInterrupt, SystemExit)):
            raise
        return None
