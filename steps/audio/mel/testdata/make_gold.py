"""Writes gold.json.gz: mel spectrograms of librosa and of the feature extractor of Whisper.

    python -m venv v && v/bin/pip install numpy==1.26.4 librosa==0.11.0 transformers==5.24.0
    v/bin/python steps/audio/mel/testdata/make_gold.py
"""

import base64
import gzip
import json
import pathlib

import librosa
import numpy as np
from transformers import WhisperFeatureExtractor


def signal(n, rate, seed):
    """A voice-like sound: harmonics whose pitch moves, pauses, and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / rate
    phase = 2 * np.pi * np.cumsum(140 + 40 * np.sin(2 * np.pi * 2.1 * t)) / rate
    x = sum(np.sin(k * phase) / k for k in range(1, 25)) * (np.sin(2 * np.pi * 1.3 * t) > -0.4) * 0.2
    return (x + 0.001 * rng.standard_normal(n)).astype(np.float32)


def numbers(x):
    return {"shape": list(x.shape), "data": base64.b64encode(np.ascontiguousarray(x, "<f4").tobytes()).decode()}


def main():
    cases = []
    for mels in (80, 128):
        x = signal(24000, 16000, mels)
        features = WhisperFeatureExtractor(feature_size=mels)(x, sampling_rate=16000, return_tensors="np")["input_features"][0]
        cases.append({"name": f"whisper {mels}", "samples": numbers(x), "mel": numbers(features[:, :160]), "last": numbers(features[:, -3:]), "frames": features.shape[1],
                      "options": {"Rate": 16000, "FFT": 400, "Window": 400, "Hop": 160, "Mels": mels, "High": 8000, "Area": True, "Center": True, "Reflect": True, "Log": 1, "Pad": 480000}})
    for name, rate, n, kwargs, options, db in [
        ("defaults", 22050, 11025, {}, {"FFT": 2048, "Window": 2048, "Hop": 512, "Mels": 128, "High": 11025, "Area": True}, {"ref": 1.0}),
        ("htk", 16000, 8000, dict(n_fft=512, hop_length=200, win_length=400, n_mels=40, fmin=50, fmax=7000, htk=True, norm=None, center=False, power=1.0),
         {"FFT": 512, "Window": 400, "Hop": 200, "Mels": 40, "Lowest": 50, "High": 7000, "HTK": True, "Magnitude": True}, None),
        ("max", 16000, 8001, dict(n_fft=400, hop_length=160, n_mels=64, pad_mode="reflect"),
         {"FFT": 400, "Window": 400, "Hop": 160, "Mels": 64, "High": 8000, "Area": True, "Reflect": True}, {"ref": np.max, "top_db": 60}),
    ]:
        x = signal(n, rate, n)
        mel = librosa.feature.melspectrogram(y=x, sr=rate, **kwargs)
        options |= {"Rate": rate, "Center": kwargs.get("center", True), "Floor": 1e-10}
        if db is not None:
            mel = librosa.power_to_db(mel, **db)
            options |= {"Log": 2, "RefMax": db["ref"] is np.max, "TopDB": db.get("top_db", 80)}
        cases.append({"name": f"librosa {name}", "samples": numbers(x), "mel": numbers(mel), "frames": mel.shape[1], "options": options})
    with open(pathlib.Path(__file__).parent / "gold.json.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(json.dumps(cases).encode())


main()
