"""Times what numpy takes for the cases of steps/tensorop's BenchmarkPeer, one thread, microseconds of CPU an item.

Every result is dense, as a tensor that is sent on must be. Run by make bench-steps.
"""

import json
import time

import numpy as np

ROWS = 8


def numbers(dtype, *shape):
    return (1 + np.arange(ROWS * int(np.prod(shape))) % 4).astype(dtype).reshape(ROWS, *shape)


def cost(run):
    """The CPU time of one item, at least 0.2 s of runs."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.2:
        for _ in range(20):
            run()
        runs += 20
    return used / runs / ROWS * 1e6


embedding, weights = numbers(np.float32, 384) / 2, numbers(np.float32, 384) / 2
hidden, scores = numbers(np.float32, 32, 384) / 2, numbers(np.float32, 1000) / 2
pixels, picture = numbers(np.uint8, 64, 64, 3), numbers(np.float32, 64, 64, 3)
integers, half = numbers(np.int32, 384), numbers(np.float16, 384)
chosen = numbers(np.int32, 384) % 2 == 1
classes = numbers(np.int64, 10)
dense = np.ascontiguousarray
split = [slice(0, 192), slice(192, 384)]


def one_hot():
    out = np.zeros((ROWS, 10, 100), np.float32)
    np.put_along_axis(out, classes[..., None], 1, -1)
    return out


print(json.dumps({
    "add": cost(lambda: embedding + weights),
    "multiply value": cost(lambda: embedding * np.float32(0.5)),
    "subtract broadcast": cost(lambda: hidden - weights[:, None, :]),
    "floor divide": cost(lambda: integers // np.int32(7)),
    "less": cost(lambda: scores < np.float32(1)),
    "exp": cost(lambda: np.exp(embedding)),
    "clip": cost(lambda: np.clip(scores, np.float32(0), np.float32(1))),
    "sum last": cost(lambda: hidden.sum(-1)),
    "mean first": cost(lambda: hidden.mean(1)),
    "max": cost(lambda: scores.max(1)),
    "argmax": cost(lambda: scores.argmax(1)),
    "cast to FP32": cost(lambda: pixels.astype(np.float32)),
    "cast to FP16": cost(lambda: scores.astype(np.float16)),
    "cast to INT32": cost(lambda: scores.astype(np.int32)),
    "add FP16": cost(lambda: half + np.float16(1)),
    "transpose UINT8": cost(lambda: dense(pixels.transpose(0, 3, 1, 2))),
    "transpose FP32": cost(lambda: dense(picture.transpose(0, 3, 1, 2))),
    "transpose matrix": cost(lambda: dense(hidden.transpose(0, 2, 1))),
    "reshape": cost(lambda: hidden.reshape(ROWS, -1)),
    "slice": cost(lambda: dense(hidden[:, 0])),
    "slice step": cost(lambda: dense(picture[:, ::2, ::-2])),
    "concat": cost(lambda: np.concatenate((embedding, weights), 1)),
    "stack": cost(lambda: np.stack((embedding, weights), 1)),
    "split": cost(lambda: [dense(embedding[:, s]) for s in split]),
    "gather": cost(lambda: np.take(hidden, [3, 1, 4, 1, 5, 9, 2, 6], 1)),
    "where": cost(lambda: np.where(chosen, embedding, weights)),
    "pad": cost(lambda: np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)))),
    "one hot": cost(one_hot),
}))
