#!/usr/bin/env python3
"""Writes tokens.json.gz: what the Hugging Face token classification pipeline makes of random logits.

    pip install numpy==2.4.6 tokenizers==0.23.3 transformers==5.23.0
    python steps/spans/testdata/make_token_gold.py

The pipeline's own postprocess runs, without torch and without a model, over a WordPiece tokenizer (the text example's,
whose words are known) and over a byte-level BPE trained here (whose words end at spaces). Left out are texts whose
characters the normalizer takes apart, for which the pipeline mistakes words for parts of words. Seed fixed.
"""

import base64
import gzip
import json
import types
import warnings
from pathlib import Path

import numpy as np
import transformers.pipelines.token_classification as module
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
WORDPIECE = HERE.parents[2] / "examples/ensembles/text/tokenizer/1/tokenizer.json"
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "I-some-thing"]
TEXTS = [
    "Angela Merkel met Wolfgang Schäuble in Berlin-Mitte.",
    "unbelievably electroencephalographic Llanfairpwllgwyngyll",
    "日本の東京 and 서울, Москва too",
    "Emoji 👩‍💻 near Zürich 🇨🇭!",
    "a",
    "  spaces   between\twords\nand lines  ",
    "O'Neill's e-mail: o.neill@example.org (2026-11-21)",
    "",
    "ΑΘΗΝΑ ist nicht Athens, nor is ΘΕΣΣΑΛΟΝΙΚΗ",
    "New York New York New York",
]


class Array(np.ndarray):
    """What the pipeline takes for a torch tensor."""

    def numpy(self):
        return np.asarray(self)


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return tokenizer


def packed(a, kind):
    return base64.b64encode(np.ascontiguousarray(a, kind).tobytes()).decode()


def case(pipeline, tokenizer, known, text, strategy, rng):
    e = tokenizer.encode(text)
    logits = (rng.normal(size=(len(e.ids), len(LABELS))) * 2).astype(np.float32)
    for i in range(1, len(e.ids)):  # neighbours alike, or hardly anything would be joined
        logits[i] += logits[i - 1] * rng.choice([0, 0.7])
    special = np.array(e.special_tokens_mask)
    output = {
        "logits": logits[None].view(Array), "sentence": text, "input_ids": np.array([e.ids]),
        "offset_mapping": np.array([e.offsets]), "special_tokens_mask": special[None].view(Array),
    }
    found = pipeline.postprocess([output], module.AggregationStrategy(strategy))
    want = [
        {"label": f.get("entity_group", f.get("entity")), "score": float(f["score"]), "text": text[f["start"] : f["end"]], "start": f["start"], "end": f["end"]}
        for f in found
    ]
    words = [-1 if w is None else w for w in e.word_ids]
    out = {"text": text, "strategy": strategy, "tokens": len(e.ids), "logits": packed(logits, "<f4")}
    out |= {"offsets": packed(e.offsets, "<i8"), "special": packed(special, "<i8"), "want": want}
    return out | ({"words": packed(words, "<i8")} if known else {})


def main():
    warnings.simplefilter("ignore")
    module.torch = types.SimpleNamespace(bfloat16="bfloat16", float16="float16")
    rng, cases = np.random.default_rng(6), []
    wordpiece = Tokenizer.from_file(str(WORDPIECE))
    wordpiece.no_padding()
    for tokenizer, known in [(wordpiece, True), (byte_level(), False)]:
        pipeline = object.__new__(module.TokenClassificationPipeline)
        pipeline.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]" if known else None)
        pipeline.model = types.SimpleNamespace(config=types.SimpleNamespace(id2label=dict(enumerate(LABELS))))
        for strategy in ["none", "simple", "first", "average", "max"]:
            for text in TEXTS:
                for _ in range(4):
                    cases.append(case(pipeline, tokenizer, known, text, strategy, rng))
    text = json.dumps({"labels": LABELS, "cases": cases}, indent=0, ensure_ascii=False).encode()
    (HERE / "tokens.json.gz").write_bytes(gzip.compress(text, mtime=0))


main()
