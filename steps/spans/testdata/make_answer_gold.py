#!/usr/bin/env python3
"""Writes answers.json.gz: what the Hugging Face question answering pipeline makes of random logits.

    pip install numpy==2.4.6 tokenizers==0.22.2 transformers==4.57.6
    python steps/spans/testdata/make_answer_gold.py

transformers 5 has no such pipeline any more. Its own postprocess runs, without torch and without a model, over the
text example's tokenizer. Answers of score 0, which the pipeline gives when a context has fewer spans than it looks for,
are left out. Seed fixed.
"""

import base64
import gzip
import json
import types
from pathlib import Path

import numpy as np
import transformers.pipelines.question_answering as module
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
WORDPIECE = HERE.parents[2] / "examples/ensembles/text/tokenizer/1/tokenizer.json"
PAIRS = [
    ("Who wrote the first program?", "Ada Lovelace, daughter of Lord Byron, wrote the first program in 1843; ADA LOVELACE!"),
    ("Wo liegt Zürich?", "Zürich liegt in der Schweiz 🇨🇭, an der Limmat, und ist electroencephalographisch unbeobachtet."),
    ("東京?", "日本の首都は東京です。"),
    ("?", "a"),
    ("What is it", "the the the THE The the tHe"),
]


def packed(a, kind):
    return base64.b64encode(np.ascontiguousarray(a, kind).tobytes()).decode()


def case(pipeline, tokenizer, question, context, k, longest, empty, aligned, rng):
    e = tokenizer.encode(question, context)
    n = len(e.ids)
    start, end = [(rng.normal(size=(1, n)) * 3).astype(np.float32) for _ in range(2)]
    p_mask = np.array([[0 if s == 1 else 1 for s in e.sequence_ids]])
    p_mask[0, 0] = 0  # [CLS]
    output = {"start": start, "end": end, "p_mask": p_mask, "encoding": e, "example": types.SimpleNamespace(context_text=context)}
    found = pipeline.postprocess([output], top_k=k, handle_impossible_answer=empty, max_answer_len=longest, align_to_words=aligned)
    found = [found] if isinstance(found, dict) else found
    want = [{"score": float(f["score"]), "text": f["answer"], "start": int(f["start"]), "end": int(f["end"])} for f in found]
    words = [-1 if w is None else w for w in e.word_ids]
    out = {"text": context, "tokens": n, "top_k": k, "longest": longest, "empty": empty, "start": packed(start, "<f4"), "end": packed(end, "<f4")}
    out |= {"offsets": packed(e.offsets, "<i8"), "special": packed(e.special_tokens_mask, "<i8"), "sequences": packed([-1 if q is None else q for q in e.sequence_ids], "<i8")}
    return out | {"want": [w for w in want if w["score"] > 0]} | ({"words": packed(words, "<i8")} if aligned else {})


def main():
    rng, cases = np.random.default_rng(6), []
    tokenizer = Tokenizer.from_file(str(WORDPIECE))
    tokenizer.no_padding()
    pipeline = object.__new__(module.QuestionAnsweringPipeline)
    pipeline.framework = "numpy"
    pipeline.tokenizer = types.SimpleNamespace(is_fast=True, padding_side="right")
    for question, context in PAIRS:
        for k in [1, 3, 20]:
            for longest in [1, 4, 15]:
                for empty in [False, True]:
                    for aligned in [False, True]:
                        cases.append(case(pipeline, tokenizer, question, context, k, longest, empty, aligned, rng))
    text = json.dumps(cases, indent=0, ensure_ascii=False).encode()
    (HERE / "answers.json.gz").write_bytes(gzip.compress(text, mtime=0))


main()
