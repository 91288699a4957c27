#!/usr/bin/env python3
"""Write what the ensemble search of the text example searches, and its requests into expected.json.

Run once, by hand, after scripts/prepare-examples; no test needs it:

    python3 -m venv .venv
    .venv/bin/pip install numpy==2.4.6 tokenizers==0.23.3 onnxruntime==1.31.1
    .venv/bin/python scripts/make_search_example.py

The sentences are this script's own. They are embedded by the example's tokenizer and model; the answers are the
cosines computed by numpy.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

FOLDER = Path(__file__).resolve().parent.parent / "examples/ensembles/text"
K = 3

SENTENCES = """
Water boils at a lower temperature on high mountains.
Bread rises because yeast makes gas in the dough.
A sourdough starter needs flour and water every day.
Onions taste sweet when they are fried slowly.
The moon causes the tides of the sea.
A year on Mars lasts almost two years on Earth.
Telescopes in space see no clouds.
Bees tell each other by a dance where flowers are.
Cats sleep more than half of the day.
Whales breathe air and nurse their young.
Many birds fly south before winter.
A dog needs a walk twice a day.
Trees grow a ring of wood each year.
Tomatoes want sun and regular watering.
Compost turns kitchen waste into soil.
Change the oil of the car every year.
A flat tyre on a bicycle can be mended with a patch.
Electric cars charge overnight in the garage.
The train to the airport leaves every twenty minutes.
Tickets are cheaper when they are bought early.
Keep a copy of your passport when you travel.
To reset your password, follow the link in the mail.
The printer has run out of paper.
Restart the router when the internet is slow.
Save your work often, computers crash.
A good password is long and used only once.
The invoice has to be paid within thirty days.
Interest on a loan makes it more expensive.
Put some money aside for bad times.
Shares may lose their value overnight.
Drink enough water when you have a fever.
A vaccine teaches the body to know a virus.
Walking half an hour a day is good for the heart.
Wash cuts with clean water before a bandage.
The violin has four strings.
A piano has to be tuned once or twice a year.
The choir sings in the church on Sunday.
The goalkeeper may touch the ball with the hands.
A marathon is a little more than forty-two kilometres.
Chess is won by a mate of the king.
""".strip().split("\n")

QUERIES = {
    "cooking": "Why does dough get bigger?",
    "astronomy": "Why is the sea higher at some hours than at others?",
    "computers": "I cannot log in any more",
    "health": "How do I treat a wound?",
    "sport": "How far do marathon runners go?",
}


class Embedder:
    """The text example's chain: tokenizer, model, mean over the tokens, length 1."""

    def __init__(self):
        self.tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer/1/tokenizer.json"))
        self.session = onnxruntime.InferenceSession(FOLDER / "minilm/1/model.onnx", providers=["CPUExecutionProvider"])

    def __call__(self, text):
        e = self.tokenizer.encode(text)
        given = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids}
        hidden = self.session.run(None, {k: np.array([v]) for k, v in given.items()})[0][0]
        mean = hidden.mean(0)
        return mean / np.linalg.norm(mean)


def request(name, text, vector, matrix):
    scores = matrix @ vector
    best = np.argsort(-scores, kind="stable")[:K]
    print(f"{text} -> {SENTENCES[best[0]]} ({scores[best[0]]:.3f})")
    return {
        "name": name,
        "ensemble": "search",
        "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}],
        "outputs": [
            {"name": "found", "datatype": "BYTES", "shape": [1, K], "data": [SENTENCES[i] for i in best]},
            {"name": "scores", "datatype": "FP32", "shape": [1, K], "data": [round(float(scores[i]), 7) for i in best]},
        ],
        "atol": 1e-4,
    }


def main():
    embed = Embedder()
    matrix = np.stack([embed(s) for s in SENTENCES]).astype(np.float32)
    version = FOLDER / "search_nearest/1"
    version.mkdir(parents=True, exist_ok=True)
    np.save(version / "sentences.npy", matrix)
    (version / "sentences.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")

    path = FOLDER / "expected.json"
    lines = [line for line in path.read_text(encoding="utf-8").strip().split("\n")[1:-1] if '"ensemble": "search"' not in line]
    lines = [line.rstrip(",") for line in lines]
    lines += [json.dumps(request(name, text, embed(text), matrix)) for name, text in QUERIES.items()]
    path.write_text('{"ensemble": "ensemble", "requests": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


main()
