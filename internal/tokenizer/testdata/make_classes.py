"""Writes ../charclass/classes.txt: the classes of code points that the reference tokenizer uses.

Its parts carry tables of different Unicode versions: the regular expressions of Split and Replace (Oniguruma), those
of Whitespace and the added tokens, the standard library's digits, the normalization forms, the punctuation, control and mark
classes of BERT, the script names and the grapheme clusters of the precompiled character maps. So the classes are read from the
library's behaviour, one code point at a time. It also prints the letters whose lower case differs from Python's
(lowerRanges in ../unicode.go).

Run: pip install tokenizers==0.23.3 && python make_classes.py
"""

import pathlib
import struct

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
PROPERTIES = ["L", "N", "M", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Nd", "Han", "Hiragana",
              "Katakana", "Hangul", "Arabic", "Cyrillic", "Greek", "Latin", "Thai", "Hebrew", "Devanagari"]
BRACKETS = ["alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word", "xdigit"]


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def row(name, points):
    return f"{name} " + " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in ranges(points)) + "\n"


def bert(**on):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **on})


def bert_classes():
    nfd, lower = normalizers.NFD(), normalizers.Lowercase()
    clean, strip = bert(clean_text=True), bert(strip_accents=True)
    split = pre_tokenizers.BertPreTokenizer()
    punct, control, marks, combining = [], [], [], []
    for c in CODE_POINTS:
        ch = chr(c)
        if [p for p, _ in split.pre_tokenize_str("a" + ch + "a")] == ["a", ch, "a"]:
            punct.append(c)
        if clean.normalize_str("a" + ch + "a") == "aa":
            control.append(c)
        whole = nfd.normalize_str(ch) == ch
        if whole and strip.normalize_str("a" + ch) == "a":
            marks.append(c)
        # U+0345 has the highest combining class there is, so every other mark moves before it.
        if whole and (c == 0x345 or nfd.normalize_str("\u0345" + ch) != "\u0345" + ch):
            combining.append(c)
        low = lower.normalize_str(ch)
        if low != ch.lower() and len(low) == 1:
            print(f"{c:x} {ord(low) - c}")
    return {"punctuation": punct, "control": control, "mark": marks, "combining": combining}


def matching(pattern):
    """The code points that a pattern matches, asked for pages of them at a time."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    out = []
    for at in range(0, 0x110000, 0x400):
        text = "".join(chr(c) for c in range(at, at + 0x400) if not 0xD800 <= c < 0xE000)
        if text:
            out += [ord(c) for p, _ in split.pre_tokenize_str(text) for c in p]
    return out


def charsmap():
    """A precompiled map of 'a' and U+00A9 to 'X'."""
    units = [0] * 1024
    units[0] = 256 << 10
    at = 256 ^ 0x61
    units[at] = 512 << 10 | 1 << 8 | 0x61
    at = 256 ^ 0xC2
    units[at] = 768 << 10 | 0xC2
    at = at ^ 768 ^ 0xA9
    units[at] = 128 << 10 | 1 << 8 | 0xA9
    data = struct.pack("<I", 4096) + struct.pack("<1024I", *units) + b"X\0"
    return normalizers.Precompiled(data)


def scripts():
    """Runs of code points of one script, as numbers; 0 is no script at all."""
    split = pre_tokenizers.UnicodeScripts()

    def same(a, b):
        return len(split.pre_tokenize_str(a + b)) == 1

    found, rows = ["a", "漢"], []
    for c in CODE_POINTS:
        ch = chr(c)
        if rows and rows[-1][1] == c - 1 and rows[-1][2] and same(found[rows[-1][2] - 1], ch) \
                and not same(found[rows[-1][2] % len(found)], ch):
            rows[-1][1] = c
            continue
        if same(found[0], ch) and same(found[1], ch):
            number = 0
        else:
            number = next((i + 1 for i, f in enumerate(found) if same(f, ch)), None)
        if number is None:
            found.append(ch)
            number = len(found)
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == number:
            rows[-1][1] = c
        else:
            rows.append([c, c, number])
    return [r for r in rows if r[2]]


# PREPEND are the code points that join the one after them (Grapheme_Cluster_Break=Prepend of Unicode 16).
PREPEND = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xD4E, 0x110BD, 0x110CD, 0x111C2, 0x111C3, 0x113D1, 0x1193F,
           0x11941, *range(0x11A84, 0x11A8A), 0x11D46, 0x11F02]

# UNDECOMPOSED are code points with a compatibility decomposition that are younger than the library's tables.
UNDECOMPOSED = [0x32FF, *range(0xA7F1, 0xA7F5), 0xAB69, *range(0x10780, 0x107C0), 0x11938, *range(0x1CCD6, 0x1CCFA),
                *range(0x1E030, 0x1E06E), 0x1F16C, *range(0x1FBF0, 0x1FBFA)]


def main():
    white = pre_tokenizers.Whitespace()
    digits = pre_tokenizers.Digits(individual_digits=True)
    accents = normalizers.StripAccents()
    cmap = charsmap()
    found = {"word": [], "numeric": [], "accent": [], "joining": [], "pictograph": [], "prepend": PREPEND,
             "undecomposed": UNDECOMPOSED, **bert_classes()}
    for c in CODE_POINTS:
        ch = chr(c)
        if [p for p, _ in white.pre_tokenize_str("a" + ch + "a")] == ["a" + ch + "a"]:
            found["word"].append(c)
        if len(digits.pre_tokenize_str("a" + ch + "a")) == 3:
            found["numeric"].append(c)
        if accents.normalize_str("a" + ch) == "a":
            found["accent"].append(c)
        if cmap.normalize_str("a" + ch) == "X":
            found["joining"].append(c)
        elif c != 0xA9 and cmap.normalize_str("\u00a9\u200d" + ch + "b") == "X\u200d" + ch + "b":
            found["pictograph"].append(c)
    for a, b, n in scripts():
        found.setdefault(f"script{n}", []).extend(range(a, b + 1))
    found["onig.word"], found["onig.space"] = matching(r"\w"), matching(r"\s")
    for p in PROPERTIES:
        found[f"onig.{p}"] = matching(f"\\p{{{p}}}")
    for b in BRACKETS:
        found[f"onig.[:{b}:]"] = matching(f"[[:{b}:]]")
    rows = sorted(row(name, points) for name, points in found.items())
    pathlib.Path(__file__).parent.joinpath("../charclass/classes.txt").write_text("".join(rows))


if __name__ == "__main__":
    main()
