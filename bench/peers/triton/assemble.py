"""Make the model repository that Triton serves for one scenario.

Ensembles, Python models and files are those of bench/repository (of the text
example in the scenario text). What Triton lacks here takes the place of what we
have: models/onnx/model.py runs an ONNX file, the models of models/SCENARIO stand
for the native steps. Files are linked; only configurations and model.py are copied.

With --onnx-backend all files are copied and the ONNX ones stay with the onnxruntime
backend, for a Triton elsewhere that has it. That backend runs texts of one length at a time, so the tokenizer then
fills them up to multiples of 16, which lets some share a batch.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FROM = {"text": ("examples/ensembles/text", ["ensemble", "tokenizer", "minilm", "pooling"])}
GROUP = "instance_group [ {{ count: {} kind: KIND_CPU }} ]\n"
THREADS = 'parameters {{ key: "intra_op_thread_count" value {{ string_value: "{}" }} }}\n'
LENGTHS = 'parameters {{ key: "lengths" value {{ string_value: "{}" }} }}'


def set_counts(config, instances, threads):
    """The configuration with the requested instances and threads; an ensemble has neither."""
    if re.search(r'platform:\s*"ensemble"', config):
        return config
    config = re.sub(r"instance_group\s*\[\s*\{[^{}]*\}\s*\]\n*", "", config)
    config = re.sub(r'parameters\s*\{\s*key:\s*"intra_op_thread_count"\s*value\s*\{[^{}]*\}\s*\}\n*', "", config)
    return config + GROUP.format(instances) + THREADS.format(threads)


def for_onnx_backend(config):
    """A Python model's configuration for the onnxruntime backend, which does not fill up rows itself."""
    config = config.replace(" allow_ragged_batch: true", "")
    return re.sub(r'backend:\s*"python"', 'platform: "onnxruntime_onnx"', config)


def without_count(config):
    """The configuration without the number of tokens, which the tokenizers here do not count."""
    config = re.sub(r'\s*output_map\s*\{\s*key: "token_count"[^}]*\}', "", config)
    return re.sub(r',\s*\{\s*name: "token_count"[^}]*\}', "", config)


def add_files(source, target, copies):
    """Every file of a version folder that is not there yet: links, or copies that can go to another machine."""
    for file in sorted(source.iterdir()):
        there = target / file.name
        if not file.is_file() or there.exists():
            continue
        if copies:
            shutil.copy(file, there)
        else:
            there.symlink_to(file.resolve())


def plain(source, made):
    """The file that plain.py makes of source; it is kept."""
    if not made.is_file() or made.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([sys.executable, HERE / "plain.py", source, made], check=True)
    return made.resolve()


def make_model(ours, own, target, options):
    """One model folder of the repository."""
    target.mkdir(parents=True)
    text = ((own if own.is_dir() else ours) / "config.pbtxt").read_text(encoding="utf-8")
    text = without_count(text)
    onnx = (ours / "1" / "model.onnx").is_file()
    if onnx and options.onnx_backend:
        text = for_onnx_backend(text)
    elif onnx:
        text = re.sub(r'platform:\s*"onnxruntime_onnx"', 'backend: "python"', text)
    elif options.onnx_backend:
        text = text.replace(LENGTHS.format(1), LENGTHS.format(16))
    (target / "config.pbtxt").write_text(set_counts(text, options.instances, options.threads), encoding="utf-8")
    (target / "1").mkdir()
    if (own / "1" / "model.py").is_file():
        shutil.copy(own / "1" / "model.py", target / "1")
    elif onnx and not options.onnx_backend:
        shutil.copy(HERE / "models/onnx/model.py", target / "1")
    if options.plain and target.name == "minilm":
        (target / "1" / "model.onnx").symlink_to(plain(ours / "1" / "model.onnx", options.plain))
    add_files(ours / "1", target / "1", options.onnx_backend)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", type=Path, required=True, help="a checkout of this repository")
    parser.add_argument("--plain", type=Path, metavar="FILE", help="the text model as it is usually exported (plain.py), kept in this file")
    parser.add_argument("--onnx-backend", action="store_true", help="for a Triton with the onnxruntime backend")
    parser.add_argument("target", type=Path, help="the folder to make; what is there is removed")
    options = parser.parse_args()

    folder, names = FROM.get(options.scenario, (f"bench/repository/{options.scenario}", None))
    source = options.models / folder
    if names is None:
        names = sorted(p.name for p in source.iterdir() if (p / "config.pbtxt").is_file())
    if options.scenario == "text" and not (source / "minilm/1/model.onnx").is_file():
        parser.exit(3, "start: the text model is not there: run make examples first\n")
    shutil.rmtree(options.target, ignore_errors=True)
    for name in names:
        make_model(source / name, HERE / "models" / options.scenario / name, options.target / name, options)


if __name__ == "__main__":
    main()
