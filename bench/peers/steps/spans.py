"""Times what numpy and Python take for the cases of steps/spans's BenchmarkPeer, one thread, microseconds of CPU an item.

Both follow the Hugging Face pipelines' postprocessing: a softmax in numpy, then a loop over the tokens; and the outer
product of start and end probabilities. Run by make bench-steps; alone:
PYTHONPATH="$(scripts/prepare-peers bench/peers/steps/requirements.txt)" python3 bench/peers/steps/spans.py
"""

import json
import time

import numpy as np

TOKENS = 128
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-MISC", "I-MISC"]
TEXT = "abcdefgh " * (TOKENS // 2)


def cost(run, items):
    """The CPU time of one item, at least 0.3 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.3:
        run()
        runs += 1
    return used / runs / items * 1e6


def numbers(n):
    return ((np.arange(n) * 7919 % 1009) / 252 - 2).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def tag(label):
    return (label[0], label[2:]) if label[:2] in ("B-", "I-") else ("I", label)


def tokens(strategy, logits, offsets, words, special):
    scores, entities = softmax(logits), []
    for i in range(TOKENS):
        if special[i]:
            continue
        part = strategy == "average" and entities and words[i] == entities[-1][2]
        if part:
            entities[-1][0].append(scores[i])
            entities[-1][4] = offsets[i][1]
        else:
            entities.append([[scores[i]], 0, words[i], offsets[i][0], offsets[i][1]])
    groups = []
    for rows, _, _, start, end in entities:
        mean = rows[0] if len(rows) == 1 else np.nanmean(np.stack(rows), axis=0)
        best = mean.argmax()
        bi, name = tag(LABELS[best])
        if groups and groups[-1]["tag"] == name and bi != "B":
            groups[-1]["scores"].append(mean[best])
            groups[-1]["end"] = end
        else:
            groups.append({"tag": name, "scores": [mean[best]], "start": start, "end": end})
    return json.dumps([
        {"label": g["tag"], "score": float(np.nanmean(g["scores"])), "text": TEXT[g["start"] : g["end"]], "start": g["start"], "end": g["end"]}
        for g in groups if g["tag"] != "O"
    ])


def answers(start, end, context, offsets, k=3, longest=15):
    start, end = softmax(np.where(context, start, -10000)), softmax(np.where(context, end, -10000))
    start[0] = end[0] = 0
    scores = np.tril(np.triu(np.outer(start, end)), longest - 1).flatten()
    wide = 2 * k + 10
    at = np.argpartition(-scores, wide)[:wide]
    at = at[np.argsort(-scores[at])]
    found = []
    for s, e in zip(*np.unravel_index(at, (TOKENS, TOKENS))):
        text = TEXT[offsets[s - s % 2][0] : offsets[e + 1 - e % 2][1]]
        same = next((f for f in found if f["text"].lower() == text.lower()), None)
        if same:
            same["score"] += scores[s * TOKENS + e].item()
        else:
            found.append({"score": scores[s * TOKENS + e].item(), "text": text, "start": offsets[s][0], "end": offsets[e][1]})
    return json.dumps(sorted(found, key=lambda f: -f["score"])[:k])


def main():
    offsets = [(i // 2 * 9 + i % 2 * 4, i // 2 * 9 + i % 2 * 4 + 4) for i in range(TOKENS)]
    words, special = [i // 2 for i in range(TOKENS)], [0] * TOKENS
    special[0] = special[-1] = 1
    logits = numbers(9 * TOKENS).reshape(TOKENS, 9)
    start, end = numbers(2 * TOKENS).reshape(2, TOKENS)
    context = np.arange(TOKENS) >= 8
    context[-1] = False
    print(json.dumps({
        "tokens simple": cost(lambda: tokens("simple", logits, offsets, words, special), 1),
        "tokens average": cost(lambda: tokens("average", logits, offsets, words, special), 1),
        "answers": cost(lambda: answers(start, end, context, offsets), 1),
    }))


main()
