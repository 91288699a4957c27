#!/usr/bin/env python3
"""Train the models of the examples sentiment, entities and answers, and write everything that follows from them.

Run once, by hand, in a throw-away environment; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install numpy==2.4.6 tokenizers==0.23.3 onnx==1.23.2 onnxruntime==1.31.1
    .venv/bin/python scripts/train_text_examples.py

Data: sentences that this script makes up from templates, word lists and syllables; names of the held-out sentences
are not those of the training. The network is one: embeddings, a convolution over nine tokens, a rectifier, a head;
trained with numpy. The tokenizers' training breaks ties by chance, so that a second run gives other weights. Writes
model.onnx, tokenizer.json, labels, expected.json and README.md of each example.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles"
SEED, WIDTH, HIDDEN, REACH = 7, 24, 64, 4  # Tokens on either side that the convolution sees.
UNKNOWN = 0.08  # Share of the tokens that are hidden in training, so that no name is learnt by heart.


# Sentences.

GOOD = "great wonderful excellent lovely superb delightful pleasant brilliant friendly tasty beautiful perfect".split()
BAD = "terrible awful horrible boring rude broken dirty disappointing ugly slow useless bland".split()
PLAIN = "wooden blue large small rectangular new old digital grey portable round Italian".split()
THINGS = "food film service room book camera staff hotel music phone concert soup story garden screen train".split()
SENTIMENTS = ["negative", "neutral", "positive"]


def opinion(rng):
    """A sentence and its class. A not turns praise into blame and the other way round."""
    pick = lambda words: words[rng.integers(len(words))]
    kind = int(rng.integers(3))
    thing, other = pick(THINGS), pick(THINGS)
    if kind == 1:
        a, b = pick(PLAIN), pick(PLAIN)
        forms = [f"The {thing} is {a}.", f"We looked at the {a} {thing} and the {other}.", f"There is a {a}, {b} {thing} here.",
                 f"The {thing} was not {a} but {b}.", f"I have a {a} {thing}.", f"They said that the {thing} is {a} and {b}."]
        return pick(forms), kind
    words, opposite = (GOOD, BAD) if kind == 2 else (BAD, GOOD)
    a, b, no = pick(words), pick(words), pick(opposite)
    love = pick(["love", "enjoyed", "recommend"] if kind == 2 else ["hate", "regret", "disliked"])
    forms = [f"The {thing} was {a}.", f"What a {a} {thing}!", f"I really {love} this {thing}.", f"The {thing} is very {a} and {b}.",
             f"We had a {a} {thing}, and the {other} was {b}.", f"The {thing} was not {no}.", f"This {thing} is not {no} at all.",
             f"It is not a {no} {thing}.", f"I {love} the {pick(PLAIN)} {thing}, it is so {a}."]
    return pick(forms), kind


FIRST = "Anna Ben Carla David Elif Farid Greta Hugo Ines Jonas Keiko Lars Maria Nadia Omar Paula Rosa Sven Tara Viktor Wei Yara".split()
STARTS = [a + b for a in "B C D F G H J K L M N P Qu R S T V W Z Br Dr Str".split() for b in "aeiou"]
SURNAMES = "ova sen mann ez ski berg well ini ard son".split()
TOWNS = "burg ville ton stad dorf mouth port ham ford grad".split()
FIRMS = "Labs Motors Bank University Foods Airlines Systems Institute".split()
MIDDLES = [a + b for a in "l r n m d v k".split() for b in ["a", "e", "i", "o", "u", "en", "or"]]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]


class Names:
    """Names made of syllables: a third of the pairs of the first two is kept for the held-out sentences."""

    def __init__(self, rng, held=False):
        self.rng, self.held = rng, held

    def pick(self, words):
        return words[self.rng.integers(len(words))]

    def stem(self):
        while True:
            start, middle = self.rng.integers(len(STARTS)), self.rng.integers(len(MIDDLES))
            if ((start + 2 * middle) % 3 == 0) == self.held:
                return STARTS[start] + MIDDLES[middle]

    def person(self):
        last = self.stem() + self.pick(SURNAMES)
        return self.pick([last, f"{self.pick(FIRST)} {last}", f"{self.pick(FIRST)} {last}", self.pick(FIRST)])

    def town(self):
        return self.pick(["", "", "", "New ", "Port "]) + self.stem() + self.pick(TOWNS)

    def firm(self):
        return f"{self.stem()} {self.pick(FIRMS)}"


ABOUT = [
    "{PER} works for {ORG} in {LOC}.", "{PER} met {PER} in {LOC} yesterday.", "The offices of {ORG} are in {LOC}.",
    "{ORG} was founded by {PER}.", "In {LOC}, {PER} bought shares of {ORG}.", "The train from {LOC} to {LOC} is late.",
    "{PER} lives in {LOC}, near {LOC}.", "It rained in {LOC} all day.", "{ORG} and {ORG} merged last year.",
    "Nothing happened yesterday.", "The director of {ORG}, {PER}, said no.", "Who is {PER}?", "We flew to {LOC} with {ORG}.",
    "Yesterday {PER} left {ORG}.", "The town of {LOC} is small.", "The Monday meeting was long.",
]


def report(names):
    """A sentence and its named entities: (start, end, type)."""
    text, spans = "", []
    for i, part in enumerate(names.pick(ABOUT).replace("{", "}").split("}")):
        if i % 2 == 1:
            name = {"PER": names.person, "LOC": names.town, "ORG": names.firm}[part]()
            spans.append((len(text), len(text) + len(name), part))
            part = name
        text += part
    return text, spans


def exercise(names):
    """A question, a text and where the answer is in it."""
    who, town, firm, year = names.person(), names.town(), names.firm(), str(names.rng.integers(1900, 2030))
    home, thing = names.town(), names.pick(["violin", "piano", "flute", "chess", "tennis", "guitar"])
    facts = [
        (f"{who} was born in {year}.", [(f"When was {who} born?", year), (f"In which year was {who} born?", year)]),
        (f"{who} works for {firm}.", [(f"Who employs {who}?", firm), (f"Which company does {who} work for?", firm)]),
        (f"The family lives in {home}.", [("Where does the family live?", home), ("In which town do they live?", home)]),
        (f"The company has its offices in {town}.", [("Where are the offices?", town), ("Where is the company?", town)]),
        (f"In the evening {who} plays the {thing}.", [(f"What does {who} play?", thing), ("What is played in the evening?", thing)]),
    ]
    chosen = [facts[i] for i in names.rng.permutation(len(facts))[: names.rng.integers(2, 6)]]
    at = int(names.rng.integers(len(chosen)))
    question, answer = names.pick(chosen[at][1])
    before = "".join(f[0] + " " for f in chosen[:at])
    start = len(before) + chosen[at][0].rindex(answer)
    return question, " ".join(f[0] for f in chosen), (start, start + len(answer))


# The tokenizer and the network.


def train_tokenizer(texts, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    letters = [chr(c) for c in range(33, 127)]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, initial_alphabet=letters, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def padded(rows, fill=0):
    out = np.full((len(rows), max(map(len, rows))), fill, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


class Net:
    """Embeddings, a convolution over neighbouring tokens, a rectifier and one of three heads."""

    def __init__(self, kind, vocabulary, outputs):
        rng, self.kind = np.random.default_rng(SEED), kind
        near = (2 * REACH + 1) * WIDTH
        self.w = {
            "embedding": rng.normal(0, 0.5, (vocabulary, WIDTH)), "conv": rng.normal(0, near**-0.5, (near, HIDDEN)), "conv_bias": np.zeros(HIDDEN),
            "head": rng.normal(0, HIDDEN**-0.5, (HIDDEN, outputs)), "head_bias": np.zeros(outputs),
        }
        if kind == "answers":  # What the question asks for, weighed with what a token looks like.
            self.w["question"] = rng.normal(0, 1, (WIDTH, 2 * HIDDEN))
            self.w.pop("head"), self.w.pop("head_bias")
        self.w = {k: v.astype(np.float32) for k, v in self.w.items()}
        self.m, self.v, self.t = {k: 0 * v for k, v in self.w.items()}, {k: 0 * v for k, v in self.w.items()}, 0

    def forward(self, ids, mask, types):
        w, c = self.w, {}
        c["x"] = w["embedding"][ids] * mask[..., None]
        wide = np.pad(c["x"], ((0, 0), (REACH, REACH), (0, 0)))
        n = ids.shape[1]
        c["near"] = np.concatenate([wide[:, i : i + n] for i in range(2 * REACH + 1)], axis=2)
        c["h"] = np.maximum(c["near"] @ w["conv"] + w["conv_bias"], 0) * mask[..., None]
        if self.kind == "sentiment":
            c["at"] = c["h"].argmax(1)
            c["top"] = c["h"].max(1)
            return c["top"] @ w["head"] + w["head_bias"], c
        if self.kind == "entities":
            return c["h"] @ w["head"] + w["head_bias"], c
        asks = mask * (types == 0)
        c["share"] = asks / asks.sum(1, keepdims=True)
        c["q"] = (c["x"] * c["share"][..., None]).sum(1)
        c["key"] = (c["q"] @ w["question"]).reshape(len(ids), HIDDEN, 2)
        return c["h"] @ c["key"], c

    def learn(self, batch, rate):
        """One step of Adam on a batch (ids, mask, types, target); targets of -1 do not count."""
        ids, mask, types, target = batch
        out, c = self.forward(ids, mask, types)
        if self.kind == "answers":  # A softmax over the tokens of the text, for start and end.
            out = np.where(((types == 1) & (mask == 1))[..., None], out, -1e4)
            p = np.exp(out - out.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            for k in range(2):
                p[np.arange(len(ids)), target[:, k], k] -= 1
            g = p / len(ids)
        else:
            p = np.exp(out - out.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            counts = target >= 0
            g = (p - np.eye(out.shape[-1])[np.maximum(target, 0)]) * counts[..., None] / counts.sum()
        w, grad, gx = self.w, {}, 0
        if self.kind == "answers":
            gh, gkey = g @ c["key"].transpose(0, 2, 1), c["h"].transpose(0, 2, 1) @ g
            gkey = gkey.reshape(len(ids), -1)
            grad["question"] = c["q"].T @ gkey
            gx = (gkey @ w["question"].T)[:, None] * c["share"][..., None]
        else:
            flat = (c["top"] if self.kind == "sentiment" else c["h"]).reshape(-1, HIDDEN)
            rows = g.reshape(len(flat), -1)
            grad["head"], grad["head_bias"] = flat.T @ rows, rows.sum(0)
            gh = (rows @ w["head"].T).reshape(*g.shape[:-1], HIDDEN)
            if self.kind == "sentiment":
                spread = np.zeros_like(c["h"])
                np.put_along_axis(spread, c["at"][:, None], gh[:, None], axis=1)
                gh = spread
        gh = gh * (c["h"] > 0)
        near = c["near"].reshape(-1, c["near"].shape[-1])
        grad["conv"], grad["conv_bias"] = near.T @ gh.reshape(-1, HIDDEN), gh.sum((0, 1))
        gnear, n = gh @ w["conv"].T, ids.shape[1]
        wide = np.zeros((len(ids), n + 2 * REACH, WIDTH))
        for i in range(2 * REACH + 1):
            wide[:, i : i + n] += gnear[..., i * WIDTH : (i + 1) * WIDTH]
        gx = (gx + wide[:, REACH : REACH + n]) * mask[..., None]
        grad["embedding"] = np.zeros_like(w["embedding"])
        np.add.at(grad["embedding"], ids, gx)
        self.t += 1
        for k, d in grad.items():
            self.m[k] = 0.9 * self.m[k] + 0.1 * d
            self.v[k] = 0.99 * self.v[k] + 0.01 * d * d
            w[k] -= (rate * self.m[k] / (1 - 0.9**self.t) / (np.sqrt(self.v[k] / (1 - 0.99**self.t)) + 1e-7)).astype(np.float32)

    def onnx(self):
        """The network as ONNX, opset 17."""
        conv = self.w["conv"].reshape(2 * REACH + 1, WIDTH, HIDDEN).transpose(2, 1, 0)
        weights = {"embedding": self.w["embedding"], "conv.weight": conv, "conv.bias": self.w["conv_bias"]}
        ints = {"last": np.array([2]), "one": np.array([1])}
        node = helper.make_node
        nodes = [
            node("Cast", ["attention_mask"], ["seen"], to=TensorProto.FLOAT), node("Unsqueeze", ["seen", "last"], ["mask"]),
            node("Gather", ["embedding", "input_ids"], ["looked_up"]), node("Mul", ["looked_up", "mask"], ["x"]),
            node("Transpose", ["x"], ["across"], perm=[0, 2, 1]),
            node("Conv", ["across", "conv.weight", "conv.bias"], ["conv"], kernel_shape=[2 * REACH + 1], pads=[REACH, REACH]),
            node("Relu", ["conv"], ["relu"]), node("Unsqueeze", ["seen", "one"], ["mask_across"]), node("Mul", ["relu", "mask_across"], ["h"]),
        ]
        inputs = ["input_ids", "attention_mask"]
        if self.kind != "answers":
            weights |= {"head.weight": self.w["head"], "head.bias": self.w["head_bias"]}
        if self.kind == "sentiment":
            nodes += [node("ReduceMax", ["h"], ["top"], axes=[2], keepdims=0), node("Gemm", ["top", "head.weight", "head.bias"], ["scores"])]
            outputs = {"scores": ["batch", len(SENTIMENTS)]}
        elif self.kind == "entities":
            nodes += [node("Transpose", ["h"], ["rows"], perm=[0, 2, 1]), node("MatMul", ["rows", "head.weight"], ["product"]), node("Add", ["product", "head.bias"], ["logits"])]
            outputs = {"logits": ["batch", "tokens", len(LABELS)]}
        else:
            inputs.append("token_type_ids")
            question = self.w["question"].reshape(WIDTH, HIDDEN, 2)
            weights |= {"question.start": question[..., 0], "question.end": question[..., 1], "unit": np.ones(1, np.float32)}
            nodes += [
                node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT), node("Sub", ["unit", "types"], ["first"]), node("Mul", ["first", "seen"], ["asks"]),
                node("ReduceSum", ["asks", "one"], ["count"], keepdims=1), node("Div", ["asks", "count"], ["share"]), node("Unsqueeze", ["share", "one"], ["shares"]),
                node("MatMul", ["shares", "x"], ["q"]),
            ]
            for end in ["start", "end"]:
                nodes += [node("MatMul", ["q", f"question.{end}"], [f"key_{end}"]), node("MatMul", [f"key_{end}", "h"], [f"product_{end}"]), node("Squeeze", [f"product_{end}", "one"], [f"{end}_logits"])]
            outputs = {"start_logits": ["batch", "tokens"], "end_logits": ["batch", "tokens"]}
        stored = [numpy_helper.from_array(np.ascontiguousarray(v, np.float32), k) for k, v in weights.items()]
        stored += [numpy_helper.from_array(v, k) for k, v in ints.items()]
        graph = helper.make_graph(
            nodes, self.kind, [helper.make_tensor_value_info(i, TensorProto.INT64, ["batch", "tokens"]) for i in inputs],
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in outputs.items()], stored,
        )
        model = helper.make_model(graph, producer_name="tutti", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        onnx.checker.check_model(model)
        return model.SerializeToString(deterministic=True)


def train(net, rows, epochs):
    """rows are (ids, types, target); batches are of rows of like length."""
    rng = np.random.default_rng(SEED)
    for epoch in range(epochs):
        order = rng.permutation(len(rows))
        for chunk in range(0, len(order), 1024):
            some = sorted(order[chunk : chunk + 1024], key=lambda i: len(rows[i][0]))
            for i in range(0, len(some), 64):
                part = [rows[j] for j in some[i : i + 64]]
                ids, types = padded([r[0] for r in part]), padded([r[1] for r in part])
                mask = padded([[1] * len(r[0]) for r in part])
                ids[rng.random(ids.shape) < UNKNOWN] = 1
                if net.kind == "entities":
                    target = padded([r[2] for r in part], -1)
                else:
                    target = np.array([r[2] for r in part])
                net.learn((ids, mask.astype(np.float32), types, target), 4e-3 * (1 - epoch / epochs))


class Runner:
    """A finished model, as the example runs it, on one text."""

    def __init__(self, model):
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def __call__(self, e):
        given = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids}
        out = self.session.run(None, {i.name: np.array([given[i.name]]) for i in self.session.get_inputs()})
        return [o[0].astype(np.float64) for o in out]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# The expected responses, by the rules of the steps.


def found_entities(e, logits):
    """Hugging Face's strategy first: (start, end, type, score)."""
    shares, groups, before = softmax(logits), [], None
    for i, word in enumerate(e.word_ids):
        if word is None:
            continue
        start, end = e.offsets[i]
        if word == before:
            groups[-1]["end"] = end
            continue
        before, best = word, int(shares[i].argmax())
        begins, kind = LABELS[best][0] == "B", LABELS[best][-3:]
        if groups and groups[-1]["kind"] == kind and not begins:
            groups[-1]["end"] = end
            groups[-1]["scores"].append(shares[i, best])
        else:
            groups.append({"kind": kind, "start": start, "end": end, "scores": [shares[i, best]]})
    return [(g["start"], g["end"], g["kind"], float(np.mean(g["scores"]))) for g in groups if g["kind"] != "O"]


def found_answer(e, start, end, longest=15):
    context = np.array([s == 1 for s in e.sequence_ids])
    kept = context.copy()
    kept[0] = True
    p, q = softmax(np.where(kept, start, -1e4)), softmax(np.where(kept, end, -1e4))
    p[0] = q[0] = 0
    scores = np.tril(np.triu(np.outer(p, q)), longest - 1)
    s, t = np.unravel_index(scores.argmax(), scores.shape)
    return e.offsets[s][0], e.offsets[t][1], float(scores[s, t])


# The examples.


def tensor(name, kind, data, shape=None):
    return {"name": name, "datatype": kind, "shape": shape or [1, len(data)], "data": data}


def write(name, tokenizer, model, requests, card):
    folder = FOLDER / name
    for path, data in {
        f"{name}_tokenizer/1/tokenizer.json": tokenizer.to_str(pretty=False).encode(), f"{name}_model/1/model.onnx": model, "README.md": card.encode(),
        "expected.json": (f'{{"ensemble": "{name}", "requests": [\n' + ",\n".join(json.dumps(r) for r in requests) + "\n]}\n").encode(),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / name / "1").mkdir(parents=True, exist_ok=True)
    (folder / name / "1/.gitkeep").write_bytes(b"")


CARD = """# {title}

{chain}

## Model card of {name}_model

- {tensors}
- Embeddings of width {width}, a convolution of {hidden} channels over {near} tokens, {head}: {weights:,} weights, {size:,} bytes.
- Trained by `scripts/train_text_examples.py` (seed {seed}) on {rows:,} English sentences that the script makes up.
- On {held:,} made-up sentences held out{other}: {quality}.

It knows the sentences of the script and little else: it is here to show the chain, not to be used.
"""


def card(name, title, chain, tensors, head, net, model, rows, held, other, quality):
    weights = sum(v.size for v in net.w.values())
    return CARD.format(title=title, chain=chain, name=name, tensors=tensors, width=WIDTH, hidden=HIDDEN, near=2 * REACH + 1, head=head, weights=weights,
                       size=len(model), seed=SEED, rows=rows, held=held, other=other, quality=quality)


def enough(name, quality, least):
    print(f"{name}: {quality:.2%}")
    if quality < least:
        raise SystemExit(f"{name}: below {least:.0%}, not written")
    return f"{quality:.1%}"


def sentiment():
    rng, name = np.random.default_rng(SEED), "sentiment"
    rows, held = [opinion(rng) for _ in range(6000)], [opinion(rng) for _ in range(1000)]
    tokenizer = train_tokenizer([r[0] for r in rows], True)
    net = Net(name, tokenizer.get_vocab_size(), len(SENTIMENTS))
    train(net, [(e.ids, e.type_ids, r[1]) for r, e in zip(rows, tokenizer.encode_batch([r[0] for r in rows]))], 6)
    model = net.onnx()
    run = Runner(model)
    right = np.mean([int(run(tokenizer.encode(text))[0].argmax()) == kind for text, kind in held])
    quality = enough(name, right, 0.98) + " right"
    requests = []
    for what, text in [("praise", "What a lovely garden!"), ("blame", "The soup was bland and the staff was rude."), ("neither", "I have a blue camera."),
                       ("not bad", "The concert was not boring at all."), ("not good", "It is not a great hotel.")]:
        shares = softmax(run(tokenizer.encode(text))[0])
        order = np.argsort(-shares)
        requests.append({"name": what, "inputs": [tensor("TEXT", "BYTES", [text])], "atol": 1e-4, "outputs": [
            tensor("labels", "BYTES", [SENTIMENTS[i] for i in order[:2]]), tensor("probabilities", "FP32", [round(float(shares[i]), 7) for i in order[:2]])]})
    (FOLDER / "sentiment/sentiment_top_k/1").mkdir(parents=True, exist_ok=True)
    (FOLDER / "sentiment/sentiment_top_k/1/labels.txt").write_text("\n".join(SENTIMENTS) + "\n")
    write(name, tokenizer, model, requests, card(
        name, "sentiment: praise or blame", "A text in, the two likeliest of negative, neutral and positive out:\n`sentiment_tokenizer` (native, tokenize) -> "
        "`sentiment_model` (ONNX) -> `sentiment_top_k` (native, softmax and labels).", "Inputs `input_ids` and `attention_mask` INT64 [tokens]; output `scores` FP32 [3].",
        "the maximum over the tokens and a dense layer", net, model, len(rows), len(held), "", quality))


def entities():
    rng, name = np.random.default_rng(SEED), "entities"
    rows = [report(Names(rng)) for _ in range(8000)]
    held = [report(Names(rng, held=True)) for _ in range(1000)]
    tokenizer = train_tokenizer([r[0] for r in rows], False)

    def tags(e, spans):
        out = []
        for (start, end), special in zip(e.offsets, e.special_tokens_mask):
            at = next((s for s in spans if s[0] <= start and end <= s[1]), None)
            out.append(-1 if special else 0 if at is None else LABELS.index(("B-" if start == at[0] else "I-") + at[2]))
        return out

    net = Net(name, tokenizer.get_vocab_size(), len(LABELS))
    train(net, [(e.ids, e.type_ids, tags(e, r[1])) for r, e in zip(rows, tokenizer.encode_batch([r[0] for r in rows]))], 6)
    model = net.onnx()
    run = Runner(model)
    hits = said = there = 0
    for text, spans in held:
        e = tokenizer.encode(text)
        got = {f[:3] for f in found_entities(e, run(e)[0])}
        hits, said, there = hits + len(got & set(spans)), said + len(got), there + len(spans)
    quality = "F1 of whole entities " + enough(name, 2 * hits / (said + there), 0.85)
    requests = []
    three, none = "Greta Holelsen works for Keluman Labs in Veroburg.", "Nothing happened yesterday."
    for what, texts in [("three kinds", [three]), ("none", [none]), ("accents", ["In Zürich, Jörg Müller met Yara Norinski yesterday."]),
                        ("neighbours", ["The train from Port Garaville to Mororham is late."]), ("empty", [""]), ("two rows", [none, three])]:
        found = [found_entities(e, run(e)[0]) for e in tokenizer.encode_batch(texts)]
        print(" ", texts, found)
        wide = max(map(len, found))

        def column(name, kind, value, fill):
            data = [value(*row) for row in zip(texts, found)]
            return tensor(name, kind, [v for d in data for v in d + [fill] * (wide - len(d))], [len(texts), wide])

        requests.append({"name": what, "inputs": [tensor("TEXT", "BYTES", texts, [len(texts), 1])], "atol": 1e-4, "outputs": [
            tensor("count", "INT32", [len(f) for f in found], [len(texts), 1]), column("text", "BYTES", lambda t, f: [t[g[0] : g[1]] for g in f], ""),
            column("label", "BYTES", lambda _, f: [g[2] for g in f], ""), column("start", "INT32", lambda _, f: [g[0] for g in f], 0),
            column("end", "INT32", lambda _, f: [g[1] for g in f], 0), column("score", "FP32", lambda _, f: [round(g[3], 7) for g in f], 0.0)]})
    (FOLDER / "entities/entities_spans/1").mkdir(parents=True, exist_ok=True)
    (FOLDER / "entities/entities_spans/1/labels.txt").write_text("\n".join(LABELS) + "\n")
    write(name, tokenizer, model, requests, card(
        name, "entities: persons, places and organisations", "A text in, its named entities with type, place and score out:\n`entities_tokenizer` (native, tokenize) -> "
        "`entities_model` (ONNX) -> `entities_spans` (native, token_spans).", "Inputs `input_ids` and `attention_mask` INT64 [tokens]; output `logits` FP32 [tokens, 7].",
        "a dense layer", net, model, len(rows), len(held), ", with names of the same syllables in other pairs", quality))


def answers():
    rng, name = np.random.default_rng(SEED), "answers"
    rows = [exercise(Names(rng)) for _ in range(8000)]
    held = [exercise(Names(rng, held=True)) for _ in range(1000)]
    tokenizer = train_tokenizer([t for r in rows for t in r[:2]], False)

    def ends(e, span):
        inside = [i for i, o in enumerate(e.offsets) if e.sequence_ids[i] == 1 and span[0] <= o[0] and o[1] <= span[1]]
        return inside[0], inside[-1]

    net = Net(name, tokenizer.get_vocab_size(), 2)
    train(net, [(e.ids, e.type_ids, ends(e, r[2])) for r, e in zip(rows, tokenizer.encode_batch([r[:2] for r in rows]))], 8)
    model = net.onnx()
    run = Runner(model)

    def ask(question, text):
        e = tokenizer.encode(question, text)
        return found_answer(e, *run(e))

    right = np.mean([ask(q, text)[:2] == span for q, text, span in held])
    quality = enough(name, right, 0.85) + " exactly right"
    text = "Paula Toranberg was born in 1951. The company has its offices in Salelport. In the evening Paula Toranberg plays the flute."
    requests = []
    for question in ["When was Paula Toranberg born?", "Where are the offices?", "What does Paula Toranberg play?",
                     "In which year was Paula Toranberg born?", "What is played in the evening?"]:
        start, end, score = ask(question, text)
        print(" ", question, text[start:end], score)
        requests.append({"name": question, "inputs": [tensor("QUESTION", "BYTES", [question]), tensor("CONTEXT", "BYTES", [text])], "atol": 1e-4, "outputs": [
            tensor("text", "BYTES", [text[start:end]]), tensor("start", "INT32", [start]), tensor("end", "INT32", [end]), tensor("score", "FP32", [round(score, 7)])]})
    write(name, tokenizer, model, requests, card(
        name, "answers: questions about a text", "A question and a text in, the passage that answers it out:\n`answers_tokenizer` (native, tokenize a pair) -> "
        "`answers_model` (ONNX) -> `answers_spans` (native, answer_spans).",
        "Inputs `input_ids`, `attention_mask` and `token_type_ids` INT64 [tokens]; outputs `start_logits` and `end_logits` FP32 [tokens].",
        "weighed by the mean of the question's embeddings", net, model, len(rows), len(held), ", with names of the same syllables in other pairs", quality))


def main():
    sentiment()
    entities()
    answers()


if __name__ == "__main__":
    main()
