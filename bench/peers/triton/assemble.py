"""Make the model repository that Triton serves for one scenario.

Ensembles, Python models and files are those of bench/repository (of the text
example in the scenario text). What Triton lacks here takes the place of what we
have: models/onnx/model.py runs an ONNX file, the models of models/SCENARIO stand
for the native steps. Files are linked, only configurations and model.py copied.
"""

import argparse
import re
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
FROM = {"text": ("examples/ensembles/text", ["ensemble", "tokenizer", "minilm", "pooling"])}
GROUP = "instance_group [ {{ count: {} kind: KIND_CPU }} ]\n"
THREADS = 'parameters {{ key: "intra_op_thread_count" value {{ string_value: "{}" }} }}\n'


def set_counts(config, instances, threads):
    """The configuration with the instances and threads asked for; an ensemble has neither."""
    if re.search(r'platform:\s*"ensemble"', config):
        return config
    config = re.sub(r"instance_group\s*\[\s*\{[^{}]*\}\s*\]\n*", "", config)
    config = re.sub(r'parameters\s*\{\s*key:\s*"intra_op_thread_count"\s*value\s*\{[^{}]*\}\s*\}\n*', "", config)
    return config + GROUP.format(instances) + THREADS.format(threads)


def link(source, target):
    """Every file of a version folder, linked, so that large weights are not copied."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.is_file() and not (target / file.name).exists():
            (target / file.name).symlink_to(file.resolve())


def make_model(ours, own, target, options):
    """One model folder of the repository."""
    target.mkdir(parents=True)
    config = (own if own.is_dir() else ours) / "config.pbtxt"
    text = re.sub(r'platform:\s*"onnxruntime_onnx"', 'backend: "python"', config.read_text(encoding="utf-8"))
    (target / "config.pbtxt").write_text(set_counts(text, options.instances, options.threads), encoding="utf-8")
    (target / "1").mkdir()
    if (own / "1" / "model.py").is_file():
        shutil.copy(own / "1" / "model.py", target / "1")
    elif (ours / "1" / "model.onnx").is_file():
        shutil.copy(HERE / "models/onnx/model.py", target / "1")
    link(ours / "1", target / "1")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", type=Path, required=True, help="a checkout of this repository")
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
