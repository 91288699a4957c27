"""Writes patterns.jsonl.gz: what the regular expressions of published tokenizers match, for the test of package onig.

A line is a pattern with its name and checksums: for each 100 texts the CRC-32 of the JSON of the matches' ranges in code points.
Empty matches are left out, which the library does not show. The texts are those of the corpus, and rows of 64 code points with
an "a" behind every third one.

Run: pip install tokenizers==0.23.3 && python make_patterns.py
"""

import gzip
import json
import pathlib
import zlib

from tokenizers import Regex, pre_tokenizers

HERE = pathlib.Path(__file__).parent
CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]%s%s"
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LEAD = r"[^\r\n\p{L}\p{N}]?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(ends, without=""):
    return LEAD + CASED % (without, "*", without, "+", ends) + "|" + LEAD + CASED % (without, "+", without, "*", ends)


PATTERNS = {
    "GPT-2, Phi, OLMo": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "Llama 3, GLM 4": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Qwen 2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Qwen 3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k, GPT-OSS, Llama 4": cased(ENDS) + r"|\p{N}{1,3}" + REST,
    "Tekken of Mistral": cased("") + r"|\p{N}" + REST,
    "Kimi K2": r"[\p{Han}]+|" + cased(ENDS, r"&&[^\p{Han}]") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "DeepSeek V3, numbers": r"\p{N}{1,3}",
    "DeepSeek V3, CJK": "[一-龥぀-ゟ゠-ヿ]+",
    "DeepSeek V3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "DeepSeek Coder, letters": r"\s?\p{L}+",
    "DeepSeek Coder, marks": r"\s?\p{P}+",
    "DeepSeek Coder, CJK": "[一-龥ࠀ-一가-퟿]+",
    "DeepSeek LLM, marks": r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "DeepSeek LLM, end": r"\s+$",
    "DeepSeek LLM, lines": "[\r\n]",
    "Bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "Falcon": "[0-9][0-9][0-9]",
    "CLIP": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "CLIP, normalizer": r"\s+",
    "T5, normalizer": " {2,}",
    "SuperBPE, numbers": r"(?=(\d{3})+(?!\d))",
    "words": r"\w+|[^\w\s]+",
    "camel case": r"(?<=[a-z])(?=[A-Z])|\b",
    "POSIX brackets": "[[:punct:]]|[[:space:]]+|[[:alpha:]]+|[[:digit:]]+",
    "capitals": r"\p{Lu}\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{Ll}+",
}


def texts():
    with gzip.open(HERE / "gold.jsonl.gz") as f:
        out = [t for entry in json.loads(f.readline())["corpus"] for t in entry]
    out += [t for entry in json.loads(gzip.open(HERE / "more.json.gz").read()) for t in entry]
    for first in range(0, 0x20000, 64):
        if not 0xD800 <= first < 0xE000:
            out.append(" ".join(chr(c) + ("a" if c % 3 == 0 else "") for c in range(first, first + 64)))
    return out


def main():
    all_texts = texts()
    with gzip.GzipFile(HERE / "patterns.jsonl.gz", "wb", mtime=0) as f:
        for name, pattern in PATTERNS.items():
            split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
            found = [[list(span) for _, span in split.pre_tokenize_str(t)] if t else [] for t in all_texts]
            sums = [zlib.crc32(json.dumps(found[i:i + 100], separators=(",", ":")).encode()) for i in range(0, len(found), 100)]
            f.write(json.dumps({"name": name, "pattern": pattern, "sums": sums}, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
