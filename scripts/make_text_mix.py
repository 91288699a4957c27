#!/usr/bin/env python3
"""Write bench/testdata/text_mix.txt: 256 sentences of 8 to 32 tokens.

Run once, by hand; needs the PyPI package tokenizers (0.23.3). Lengths count
[CLS] and [SEP], are as equal in number as 256 over 25 allows, and come in a
fixed random order. Same seed, same file.
"""

import random
from pathlib import Path

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
SHORTEST, LONGEST, COUNT = 8, 32, 256

WHO = (
    "the old baker|our neighbour|a night nurse|the train driver|my youngest sister|the museum guard|an honest lawyer|"
    "the new intern|a travelling salesman|the village council|their grandmother|the chess club|a retired pilot|"
    "the river police|the orchestra|a stray dog|the weather service|every student|Anna|Oliver|nobody|my father|Mrs Brown"
).split("|")
DOES = (
    "repaired|lost|photographed|counted|sold|described|borrowed|painted|forgot|measured|hid|ordered|inspected|returned|"
    "carried home|argued about|dreamt of|paid for"
).split("|")
WHAT = (
    "a broken clock|three crates of oranges|the spare key|an unsigned letter|the second violin|a map of the harbour|"
    "two tickets to Lisbon|the wrong umbrella|a bucket of grey paint|the annual report|some very old coins|"
    "the blueprints of the bridge|a cup of lukewarm coffee|the evening newspaper|an electric bicycle|seven wooden chairs|"
    "fresh milk|the piano|some bread|a ladder|old photographs"
).split("|")
WHERE = (
    "in the kitchen|behind the post office|on the last tram|near the lighthouse|under the railway bridge|at the airport|"
    "in a quiet side street|on the third floor|outside the theatre|between two warehouses"
).split("|")
WHEN = (
    "yesterday|before breakfast|during the storm|last winter|at half past nine|after the meeting|without any hurry|"
    "for the first time in years|while everybody was asleep|on a rainy Thursday in October"
).split("|")
WHY = (
    "because nobody else wanted to|although it was strictly forbidden|to win a small bet|since the shops were closed|"
    "so that the children could sleep|as if it had always been the plan|because the instructions were unclear"
).split("|")
SHORT = ["quietly", "again", "at last", "by mistake", "indeed", "of course", "as usual"]


def sentence(rng):
    """A sentence of one to three clauses."""
    clauses = []
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        parts = [rng.choice(WHO), rng.choice(DOES), rng.choice(WHAT)]
        for words in (SHORT, WHERE, WHEN, WHY):
            if rng.random() < 0.4:
                parts.append(rng.choice(words))
        clauses.append(" ".join(parts))
    text = rng.choice([", and ", "; ", ", but "]).join(clauses)
    return text[0].upper() + text[1:] + rng.choice([".", ".", "!", "?"])


def main():
    tokenizer = Tokenizer.from_file(str(ROOT / "examples/ensembles/text/tokenizer/1/tokenizer.json"))
    rng = random.Random(20)
    lengths = range(SHORTEST, LONGEST + 1)
    wanted = {n: COUNT // len(lengths) for n in lengths}
    for n in rng.sample(list(lengths), COUNT % len(lengths)):
        wanted[n] += 1
    chosen = []
    while len(chosen) < COUNT:
        text = sentence(rng)
        n = len(tokenizer.encode(text).ids)
        if wanted.get(n, 0) > 0 and text not in chosen:
            wanted[n] -= 1
            chosen.append(text)
    rng.shuffle(chosen)
    path = ROOT / "bench/testdata/text_mix.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(chosen) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
