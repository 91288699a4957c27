"""Times what soundfile, librosa and transformers take for the cases of steps/audio's BenchmarkPeer, microseconds of CPU each.

`make bench-audio` runs both sides.
"""

import io
import json
import pathlib
import time

import librosa
import numpy as np
import soundfile as sf
from transformers import WhisperFeatureExtractor

VAD = pathlib.Path(__file__).resolve().parents[3] / "examples/ensembles/vad"


def cost(run):
    """The CPU time of a run, at least 0.5 s of them."""
    run()
    runs, start = 0, time.process_time()
    while (used := time.process_time() - start) < 0.5:
        run()
        runs += 1
    return used / runs * 1e6


def reader(name):
    data = (VAD / name).read_bytes()
    return lambda: librosa.to_mono(sf.read(io.BytesIO(data), dtype="float32")[0].T)


def main():
    x10, x30 = (np.arange(n, dtype=np.float32) % 50 / 50 for n in (441000, 480000))
    whisper = WhisperFeatureExtractor()
    cases = {name: reader(name) for name in ("two.flac", "stereo.ogg", "call.mp3", "phone.wav")}
    cases |= {
        "10 s from 44100 to 16000": lambda: librosa.resample(x10, orig_sr=44100, target_sr=16000),
        "30 s whisper": lambda: whisper(x30, sampling_rate=16000, return_tensors="np"),
        "30 s mel": lambda: librosa.power_to_db(librosa.feature.melspectrogram(y=x30, sr=16000)),
    }
    print(json.dumps({name: round(cost(run)) for name, run in cases.items()}, indent=1))


main()
