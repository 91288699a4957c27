"""Writes the recordings and expected.json of examples/ensembles/vad, and the golden results of steps/audio/speech.

    apt-get install espeak-ng
    python3.10 -m venv v && v/bin/pip install "numpy<2" torch==1.12.1 torchaudio==0.12.1 silero-vad==6.2.3 onnxruntime soundfile==0.14.0
    v/bin/python scripts/make_vad_example.py

The sentences are spoken by eSpeak NG. The expected segments and probabilities are those of the package silero-vad.
"""

import base64
import gzip
import io
import json
import pathlib
import subprocess

import numpy as np
import soundfile as sf
import torch
import torchaudio
from silero_vad import get_speech_timestamps, load_silero_vad

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/ensembles/vad"


def say(text, voice="en", speed=150):
    data = subprocess.run(["espeak-ng", "--stdout", "-v", voice, "-s", str(speed), text], capture_output=True, check=True).stdout
    return sf.read(io.BytesIO(data), dtype="float32")


def recording(parts, seed):
    """Sentences, and pauses in seconds, with noise. Returns samples and their rate."""
    rng, pieces, rate = np.random.default_rng(seed), [], 22050
    for p in parts:
        pieces.append(np.zeros(int(p * rate), np.float32) if isinstance(p, float) else say(*p)[0])
    x = np.concatenate(pieces) * 0.7
    return (x + 0.001 * rng.standard_normal(len(x))).astype(np.float32), rate


def expected(path, model):
    """What silero-vad says about a file, at 16 kHz."""
    x, rate = sf.read(path, dtype="float32", always_2d=True)
    x = torch.from_numpy(x.T).mean(0)
    if rate != 16000:
        x = torchaudio.transforms.Resample(rate, 16000)(x)
    segments = get_speech_timestamps(x, model)
    model.reset_states()
    probabilities = model.audio_forward(x.unsqueeze(0), 16000)[0]
    return x, segments, probabilities.numpy()


def tensor(name, kind, data):
    return {"name": name, "datatype": kind, "shape": [len(data)], "data": data}


def example(model):
    requests = []
    for name, file, kind, parts in [
        ("two sentences", "two.flac", ("FLAC", "PCM_16", 16000), [0.6, ("Good morning.",), 1.2, ("Please close the door.", "en-us"), 0.8]),
        ("stereo", "stereo.ogg", ("OGG", "VORBIS", 22050), [0.3, ("One, two, three.", "en", 130), 0.9, ("Four.",), 0.5]),
        ("compressed", "call.mp3", ("MP3", "MPEG_LAYER_III", 16000), [("Hello, who is there?", "en-gb"), 1.0]),
        ("telephone", "phone.wav", ("WAV", "ULAW", 8000), [0.4, ("Yes.",), 0.5, ("No, thank you.", "en", 170), 0.4]),
        ("no speech", "noise.wav", ("WAV", "PCM_16", 8000), [1.1]),
    ]:
        x, rate = recording(parts, len(requests))
        form, subtype, out = kind
        if out != rate:
            x = torchaudio.transforms.Resample(rate, out)(torch.from_numpy(x)).numpy()
        if name == "stereo":
            x = np.stack([x, 0.5 * x], 1)
        sf.write(EXAMPLE / file, x, out, format=form, subtype=subtype)
        _, segments, probabilities = expected(EXAMPLE / file, model)
        print(name, segments)
        requests.append({
            "name": name,
            "inputs": [{"name": "AUDIO", "datatype": "BYTES", "shape": [1], "file": file}],
            "outputs": [
                tensor("START", "INT64", [s["start"] for s in segments]), tensor("END", "INT64", [s["end"] for s in segments]),
                tensor("COUNT", "INT32", [len(segments)]), tensor("speech", "FP32", [round(float(p), 6) for p in probabilities]),
            ],
            "atol": 0.02 if form == "MP3" else 0.0005,  # the server's decoder of MP3 gives 16 bits
        })
    with open(EXAMPLE / "expected.json", "w") as f:
        json.dump({"ensemble": "vad", "requests": requests}, f, indent=1)
        f.write("\n")


class Fixed:
    """A detector that returns stored probabilities."""

    def __init__(self, values):
        self.values = values

    def reset_states(self):
        self.left = iter(self.values)

    def __call__(self, chunk, rate):
        return torch.tensor(next(self.left))


def gold():
    """Segments of random probabilities, with many parameters."""
    rng, cases = np.random.default_rng(11), []
    for i in range(60):
        n = int(rng.integers(1, 200))
        p = np.clip(np.repeat(rng.random(n // 4 + 1), 4)[:n] * 1.2 - 0.1 + 0.25 * (rng.random(n) - 0.5), 0, 1).astype(np.float32)
        samples = 512 * n - int(rng.integers(0, 512))
        kwargs = dict(threshold=float(rng.choice([0.5, 0.35, 0.7])), min_speech_duration_ms=int(rng.choice([250, 0, 64])),
                      min_silence_duration_ms=int(rng.choice([100, 0, 64, 300])), speech_pad_ms=int(rng.choice([30, 0, 200])))
        if i % 3 == 0:
            kwargs |= dict(max_speech_duration_s=float(rng.choice([0.5, 1, 2.5])), min_silence_at_max_speech=int(rng.choice([98, 32])))
        if i % 7 == 0:
            kwargs |= dict(neg_threshold=0.25)
        segments = get_speech_timestamps(torch.zeros(samples), Fixed(p.tolist()), **kwargs)
        cases.append({"speech": base64.b64encode(p.astype("<f4").tobytes()).decode(), "samples": samples, "options": kwargs,
                      "start": [s["start"] for s in segments], "end": [s["end"] for s in segments]})
    with open(ROOT / "steps/audio/speech/testdata/gold.json.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as f:
        f.write(json.dumps(cases).encode())


example(load_silero_vad(onnx=True))
gold()
