"""Model repositories for Triton's tests: the folders, the checkout's generators, and configurations that are written here."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"
ONNX = 'platform: "onnxruntime_onnx"'
IDENTITY = 'backend: "identity"'
FLOATS = "onnx_float32_float32_float32"  # a generated model that many families serve


class Repo:
    """A folder of models."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)

    def __truediv__(self, part):
        return self.path / part

    def __str__(self):
        return str(self.path)

    def models(self):
        """The names of all folders."""
        return sorted(p.name for p in self.path.iterdir() if p.is_dir())

    def add(self, source, name=None, versions=()):
        """Copies a model folder, and makes empty version folders."""
        to = self.path / (name or pathlib.Path(source).name)
        shutil.copytree(source, to, dirs_exist_ok=True, symlinks=True)
        for version in versions:
            (to / str(version)).mkdir(exist_ok=True)
        return self

    def put(self, model, config=None, file=None, version=1):
        """Makes a model of a configuration's text and the file of a version."""
        folder = self.path / model / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        if config is not None:
            (self.path / model / "config.pbtxt").write_text(config)
        if file is not None:
            shutil.copy(file, folder)
        return self

    def put_python(self, model, source):
        """Puts a file into a model as the model.py of its version 1."""
        (self.path / model / "1").mkdir(parents=True, exist_ok=True)
        shutil.copy(source, self.path / model / "1" / "model.py")
        return self

    def edit(self, model, *changes, append=""):
        """Applies pairs of pattern and replacement to each line of a configuration, then appends text."""
        path = self.path / model / "config.pbtxt"
        lines = path.read_text().split("\n")
        for pattern, replacement in changes:
            lines = [re.sub(pattern, replacement, line) for line in lines]
        path.write_text("\n".join(lines) + (f"\n{append}\n" if append else ""))
        return self


class Checkout:
    """The checkout of Triton's server repository, with copies and generated models in a scratch folder.

    A test may write into its own folder, so it runs in a copy. Copies and models are made once for each scratch folder.
    """

    def __init__(self, source, work):
        self.qa = source.resolve() / "qa"
        self.work = work
        self.tree, self.data, self.logs = work / "tree", work / "data", work / "logs"
        for folder in (self.tree, self.data, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.copy("common")  # most tests import from it

    def copy(self, name):
        """The copy of a folder of qa/."""
        to = self.tree / name
        if not to.is_dir():
            shutil.copytree(self.qa / name, to, symlinks=True)
        return to

    def generate(self, repository, script, *args):
        """The models that a generator of qa/common writes."""
        to = self.data / repository
        if not (to / ".done").exists():
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir(parents=True)
            command = [sys.executable, f"{script}.py", *args, f"--models_dir={to}"]
            with open(self.logs / f"generate-{repository}.log", "w") as log:
                subprocess.run(command, cwd=self.copy("common"), stdout=log, stderr=log, check=True)
            (to / ".done").touch()
        return to

    def onnx(self):
        """ONNX models that add and subtract, for each combination of data types."""
        return self.generate("qa_model_repository", "gen_qa_models", *OPSET)

    def variable(self):
        """The same with variable dimensions."""
        return self.generate("qa_variable_model_repository", "gen_qa_models", *OPSET, "--variable")

    def identity(self):
        """ONNX models that return their inputs."""
        return self.generate("qa_identity_model_repository", "gen_qa_identity_models", *OPSET)

    def sequence(self):
        """ONNX models that accumulate sequences."""
        return self.generate("qa_sequence_model_repository", "gen_qa_sequence_models", *OPSET)

    def ensembles(self):
        """Ensembles of the models that add and subtract."""
        return self.generate("qa_ensemble_model_repository", "gen_qa_models", "--ensemble")

    def sequence_ensembles(self):
        """Ensembles of the models that accumulate sequences."""
        return self.generate("qa_ensemble_sequence_model_repository", "gen_qa_sequence_models", "--ensemble")


OPSET = ("--onnx", "--onnx_opset", "17")


def tensor(name, data_type, dims):
    """An input or output in a configuration."""
    return f'{{ name: "{name}" data_type: TYPE_{data_type} dims: [ {dims} ] }}'


def config(name, served_by, inputs, outputs, batch=0, *more):
    """The text of a configuration."""
    lines = [f'name: "{name}"', served_by, f"max_batch_size: {batch}", f"input [ {', '.join(inputs)} ]", f"output [ {', '.join(outputs)} ]"]
    return "\n".join([*lines, *more]) + "\n"


def parameters(**values):
    """The parameters block of a configuration."""
    return "parameters [ " + ", ".join(f'{{ key: "{k}" value: {{ string_value: "{v}" }} }}' for k, v in values.items()) + " ]"


def simple(checkout, repo, versions=(1,)):
    """Adds the documentation's model "simple" (INT32 sum and difference), with the generated ONNX model of that signature."""
    inputs = [tensor(f"INPUT{i}", "INT32", 16) for i in (0, 1)]
    outputs = [tensor(f"OUTPUT{i}", "INT32", 16) for i in (0, 1)]
    text = config("simple", ONNX, inputs, outputs, 8, "version_policy: { all {} }", "instance_group [ { kind: KIND_CPU } ]")
    for version in versions:
        repo.put("simple", text, checkout.onnx() / "onnx_int32_int32_int32/1/model.onnx", version)
    return repo


def identity(repo, name="simple_identity", data_type="STRING"):
    """Adds a stand-in for the documentation's model "simple_identity", on the identity backend."""
    return repo.put(name, config(name, IDENTITY, [tensor("INPUT0", data_type, -1)], [tensor("OUTPUT0", data_type, -1)], 8))


def repeat(repo, decoupled):
    """Adds the model "repeat_int32"."""
    inputs = [tensor("IN", "INT32", -1), tensor("DELAY", "UINT32", -1), tensor("WAIT", "UINT32", 1)]
    outputs = [tensor("OUT", "INT32", 1), tensor("IDX", "UINT32", 1)]
    policy = f"model_transaction_policy {{ decoupled: {decoupled} }}"
    return repo.put("repeat_int32", config("repeat_int32", 'backend: "repeat"', inputs, outputs, 0, policy, "instance_group [ { kind: KIND_CPU } ]"))


def version_folders(repo, models=None):
    """Makes the version folders that ensembles and identity models need."""
    for model in models if models is not None else repo.models():
        (repo / model / "1").mkdir(exist_ok=True)
    return repo


def remove_files(folder, pattern):
    """Removes the files that a pattern matches."""
    for path in folder.glob(pattern):
        os.remove(path)
