"""Writes gold.json.gz: samples of torchaudio.transforms.Resample.

    python3.10 -m venv v && v/bin/pip install "numpy<2" torch==1.12.1 torchaudio==0.12.1
    v/bin/python steps/audio/resample/testdata/make_gold.py
"""

import base64
import gzip
import json
import pathlib

import numpy as np
import torch
from torchaudio.transforms import Resample

CASES = [  # from, to, samples, options
    (44100, 16000, 3000, {}),
    (48000, 16000, 3000, {}),
    (8000, 16000, 800, {}),
    (22050, 16000, 1501, {}),
    (16000, 44100, 700, {}),
    (11025, 48000, 400, {}),
    (16000, 8000, 7, {}),
    (44100, 16000, 2000, {"lowpass_filter_width": 64, "rolloff": 0.9475937167399596, "resampling_method": "kaiser_window", "beta": 14.769656459379492}),
    (16000, 24000, 500, {"lowpass_filter_width": 16, "rolloff": 0.85, "resampling_method": "kaiser_window", "beta": 8.555504641634386}),
]


def pack(x):
    return base64.b64encode(np.ascontiguousarray(x, "<f4").tobytes()).decode()


def main():
    rng, cases = np.random.default_rng(7), []
    for orig, new, n, kwargs in CASES:
        t = np.arange(n) / orig
        x = 0.5 * np.sin(2 * np.pi * 440 * t) + 0.3 * np.sin(2 * np.pi * orig * 0.4 * t) + 0.1 * rng.standard_normal(n)
        x = x.astype(np.float32)
        y = Resample(orig, new, **kwargs)(torch.from_numpy(x)).numpy()
        o = {"Width": kwargs.get("lowpass_filter_width", 6), "Rolloff": kwargs.get("rolloff", 0.99), "Kaiser": "beta" in kwargs, "Beta": kwargs.get("beta", 0)}
        cases.append({"from": orig, "to": new, "options": o, "samples": pack(x), "resampled": pack(y)})
    with open(pathlib.Path(__file__).parent / "gold.json.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(json.dumps(cases).encode())


main()
