"""Writes gold.zip: audio files and the samples that soundfile reads from them.

    python -m venv v && v/bin/pip install numpy==1.26.4 soundfile==0.14.0
    v/bin/python steps/audio/decode/testdata/make_gold.py

Each file NAME.EXT has its samples in NAME.EXT.f32: float32 numbers, little-endian, one per channel and frame, behind two of
them, the sampling rate and the number of channels. Opus is read at 48 kHz, whatever was encoded. soundfile 0.14.0 brings libsndfile 1.2.2.
"""

import io
import pathlib
import zipfile

import numpy as np
import soundfile as sf

FILES = [  # name, frames, channels, rate, format, subtype, endian
    *[(f"{s.lower()}.wav", 400, 2, 44100, "WAV", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")],
    ("mono.wav", 401, 1, 16000, "WAV", "PCM_16"),
    ("odd8.wav", 401, 1, 8000, "WAV", "PCM_U8"),
    ("six.wav", 200, 6, 48000, "WAVEX", "PCM_24"),
    ("float.wavex.wav", 200, 2, 48000, "WAVEX", "FLOAT"),
    ("rf64.wav", 300, 2, 44100, "RF64", "PCM_16"),
    ("s8.flac", 3000, 1, 8000, "FLAC", "PCM_S8"),
    ("stereo.flac", 9000, 2, 44100, "FLAC", "PCM_16"),
    ("mono24k.flac", 3000, 1, 24000, "FLAC", "PCM_16"),
    ("high.flac", 3000, 2, 96000, "FLAC", "PCM_24"),
    ("five.flac", 1000, 5, 48000, "FLAC", "PCM_16"),
    ("stereo.mp3", 4000, 2, 44100, "MP3", "MPEG_LAYER_III"),
    ("mono.mp3", 4000, 1, 16000, "MP3", "MPEG_LAYER_III"),
    ("mono48.mp3", 4000, 1, 48000, "MP3", "MPEG_LAYER_III"),
    ("low.mp3", 4000, 2, 22050, "MP3", "MPEG_LAYER_III"),
    ("stereo.ogg", 5000, 2, 44100, "OGG", "VORBIS"),
    ("mono.ogg", 5000, 1, 16000, "OGG", "VORBIS"),
    ("short.ogg", 100, 1, 8000, "OGG", "VORBIS"),
    ("stereo.opus", 5000, 2, 48000, "OGG", "OPUS"),
    ("mono.opus", 5000, 1, 16000, "OGG", "OPUS"),
    ("mono24.opus", 3000, 1, 24000, "OGG", "OPUS"),
]


def signal(frames, channels, rate, seed):
    """Tones that glide, an edge, and noise: a different mixture in each channel."""
    rng = np.random.default_rng(seed)
    t = np.arange(frames) / rate
    out = []
    for c in range(channels):
        x = 0.4 * np.sin(2 * np.pi * (200 + 150 * c) * t * (1 + t)) + 0.2 * np.sin(2 * np.pi * rate / 9 * t)
        x += 0.03 * rng.standard_normal(frames)
        x[frames // 2 : frames // 2 + frames // 8] *= 0.05
        out.append(x)
    return np.stack(out, 1)


def at_48k(data):
    """An Ogg Opus file whose header says 48 kHz, for which libsndfile decodes it at that rate."""
    page = bytearray(data[: 27 + 1 + data[27]])
    page[28 + 12 : 28 + 16] = (48000).to_bytes(4, "little")
    page[22:26] = bytes(4)
    crc = 0
    for b in page:
        crc ^= b << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    page[22:26] = crc.to_bytes(4, "little")
    return bytes(page) + data[len(page) :]


def main():
    folder = pathlib.Path(__file__).parent
    with zipfile.ZipFile(folder / "gold.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for seed, (name, frames, channels, rate, kind, subtype) in enumerate(FILES):
            f = io.BytesIO()
            sf.write(f, signal(frames, channels, rate, seed), rate, format=kind, subtype=subtype)
            read = at_48k(f.getvalue()) if subtype == "OPUS" else f.getvalue()
            samples, rate = sf.read(io.BytesIO(read), dtype="float32", always_2d=True)
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            z.writestr(info, f.getvalue(), zipfile.ZIP_DEFLATED)
            head = np.array([rate, samples.shape[1]], "<f4").tobytes()
            z.writestr(zipfile.ZipInfo(name + ".f32", (2020, 1, 1, 0, 0, 0)), head + samples.astype("<f4").tobytes(), zipfile.ZIP_DEFLATED)
            print(name, rate, samples.shape, len(f.getvalue()))


main()
