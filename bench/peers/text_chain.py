#!/usr/bin/env python3
"""The text example's chain in plain Python, to be compared with.

tokenizers -> ONNX Runtime -> numpy, one sentence per request, in a pool of
worker processes. There is no server and no queue: every worker holds all
sentences and draws the number of its next request from a shared counter, so
eight outstanding requests, or any other number not below the workers, cost the
same. That is the best case for the peer: what is counted is the chain alone.

Prints one line of JSON:

    requests      answered requests
    cpu_seconds   user and system time of all processes, start-up and warm-up left out
    wall_seconds  from the first request to the last answer
    tokens        tokens over all requests, so that a reader can check the mix
    sample        the first values of the first sentence's embedding

Needs the packages of requirements.txt beside it.
"""

import argparse
import json
import multiprocessing
import os
import time

WARM_UP = 64


class Chain:
    """One worker's tokenizer and session; a call is one request."""

    def __init__(self, options):
        import numpy
        import onnxruntime
        from tokenizers import Tokenizer

        self.np = numpy
        self.tokenizer = Tokenizer.from_file(options.tokenizer)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.inter_op_num_threads = 1
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        settings.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(options.model, settings, providers=["CPUExecutionProvider"])

    def __call__(self, text):
        np, encoded = self.np, self.tokenizer.encode(text)
        feed = {
            "input_ids": np.array([encoded.ids], np.int64),
            "attention_mask": np.array([encoded.attention_mask], np.int64),
            "token_type_ids": np.array([encoded.type_ids], np.int64),
        }
        hidden = self.session.run(["last_hidden_state"], feed)[0]
        mask = feed["attention_mask"].astype(np.float32)
        vectors = (mask[:, None, :] @ hidden)[:, 0] / mask.sum(axis=1, keepdims=True)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), len(encoded.ids)


def work(options, sentences, counter, start, results):
    """A worker process: warm up, wait for the others, then serve until no request is left."""
    chain = Chain(options)
    for i in range(WARM_UP):
        chain(sentences[i % len(sentences)])
    start.wait()
    cpu, wall = time.process_time(), time.monotonic()
    done = tokens = 0
    while True:
        with counter.get_lock():
            number = counter.value
            counter.value += 1
        if number >= options.requests:
            break
        _, length = chain(sentences[number % len(sentences)])
        done, tokens = done + 1, tokens + length
    cpu, end = time.process_time() - cpu, time.monotonic()
    sample = [round(float(v), 6) for v in chain(sentences[0])[0][0][:4]]
    results.put((done, tokens, cpu, wall, end, sample))


def measure(options, sentences):
    """Run the pool; the result as a dictionary."""
    context = multiprocessing.get_context("spawn")
    counter, start, results = context.Value("q", 0), context.Barrier(options.workers), context.Queue()
    shared = (options, sentences, counter, start, results)
    pool = [context.Process(target=work, args=shared) for _ in range(options.workers)]
    for process in pool:
        process.start()
    rows = [results.get(timeout=options.timeout) for _ in pool]
    for process in pool:
        process.join()
    return {
        "peer": "python",
        "workers": options.workers,
        "threads": options.threads,
        "requests": sum(r[0] for r in rows),
        "cpu_seconds": round(sum(r[2] for r in rows), 4),
        "wall_seconds": round(max(r[4] for r in rows) - min(r[3] for r in rows), 4),
        "tokens": sum(r[1] for r in rows),
        "sample": rows[0][5],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="ONNX Runtime threads of each")
    parser.add_argument("--requests", type=int, default=2048)
    parser.add_argument("--model", default="examples/ensembles/text/minilm/1/model.onnx")
    parser.add_argument("--tokenizer", default="examples/ensembles/text/tokenizer/1/tokenizer.json")
    parser.add_argument("--mix", default="bench/testdata/text_mix.txt", help="a sentence per line")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for a worker")
    options = parser.parse_args()
    if options.workers < 1 or options.threads < 1 or options.requests < 1:
        parser.error("--workers, --threads and --requests must be at least 1")

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with open(options.mix, encoding="utf-8") as f:
        sentences = f.read().splitlines()
    print(json.dumps(measure(options, sentences)))


if __name__ == "__main__":
    main()
