"""L0_model_config: configurations that must be refused in given words, and configurations that must be completed as given."""

import json
import shutil

import tritonclient.grpc as grpc_module
from google.protobuf import json_format, text_format
from models import ONNX, version_folders
from serving import get
from tritonclient.grpc.model_config_pb2 import ModelConfig

FOLDER = "L0_model_config"
COMPLETE = ["--strict-model-config=false"]


def golden(h, folder, target):
    """Copies a golden folder, which is a model or holds several. Returns the repository and the files of expectations."""
    repo, source = h.repo(), h.qa / FOLDER / folder / target
    if (source / "config.pbtxt").exists() or target.startswith("no_config"):
        repo.add(source)
    else:
        shutil.copytree(source, repo.path, dirs_exist_ok=True)
    return repo, sorted(source.glob("expected*")) or sorted((source / target).glob("expected*"))


def targets(h, folder, test):
    """The golden folders that are selected, and the names of their tests."""
    for path in sorted((h.qa / FOLDER / folder).iterdir()):
        name = f"{test}/{path.name}"
        if h.wanted(f"{h.family}/{name}"):
            yield path.name, name


def refused(h, folder, test, flags, prepare):
    """Expects that each golden of a folder is refused in the words of its files."""
    for target, name in targets(h, folder, test):
        repo, expected = golden(h, folder, target)
        prepare(repo, target)
        h.refuse(name, lambda repo=repo: repo, [e.read_text() for e in expected], flags)


def completed(h, folder, test, prepare):
    """Expects that each golden of a folder loads with one of the configurations of its files, over gRPC and over HTTP."""
    for target, name in targets(h, folder, test):
        repo, expected = golden(h, folder, target)
        version_folders(repo)
        prepare(repo, target)
        h.check(name, lambda repo=repo: repo, lambda target=target, expected=expected: compare(target, expected), COMPLETE)


def compare(model, expected):
    """The errors of the configuration over each protocol."""
    want = [text_format.Parse(path.read_text(), ModelConfig()) for path in expected]
    with grpc_module.InferenceServerClient("127.0.0.1:8001") as client:
        by_grpc = client.get_model_config(model, client_timeout=60).config
    by_http = json_format.ParseDict(json.loads(get(f"v2/models/{model}/config")), ModelConfig())
    found = {"grpc": by_grpc, "http": by_http}
    return {protocol: "" if any(same(got, w) for w in want) else f"differs: {got}" for protocol, got in found.items()}


def same(got, want):
    """Whether two configurations are equal. Instances on GPUs depend on the machine, so they are not compared."""
    if any(group.kind == group.KIND_GPU for group in want.instance_group):
        got, want = ModelConfig.FromString(got.SerializeToString()), ModelConfig.FromString(want.SerializeToString())
        got.ClearField("instance_group")
        want.ClearField("instance_group")
    return got == want


def nothing(repo, target):
    """Prepares nothing."""


def model_config(h):
    """L0_model_config, ensembles; needs identity, and repeat for two goldens"""

    def prepare(repo, target):  # as test.sh does, only for goldens of several models
        if not (h.qa / FOLDER / "autofill_noplatform/ensemble" / target / "config.pbtxt").exists():
            version_folders(repo)

    refused(h, "autofill_noplatform/ensemble", "ensemble", COMPLETE, prepare)
    completed(h, "autofill_noplatform_success/ensemble", "ensemble_ok", nothing)


def model_config_general(h):
    """L0_model_config, other models; needs onnx, python, identity"""
    refused(h, "noautofill_platform", "noautofill", ["--disable-auto-complete-config"], with_platform)
    for kind in ("python", "custom", "onnx"):

        def prepare(repo, target, kind=kind):
            with_files(h, repo, kind)

        if (h.qa / FOLDER / "autofill_noplatform" / kind).is_dir():
            refused(h, f"autofill_noplatform/{kind}", kind, COMPLETE, prepare)
            completed(h, f"autofill_noplatform_success/{kind}", f"{kind}_ok", prepare)
    for target, name in targets(h, "special_cases", "special"):
        if target in ("invalid_runtime", "runtime_escape"):
            repo, expected = golden(h, "special_cases", target)
            version_folders(repo, [target])
            if target == "runtime_escape":
                (repo / target / "dummy_runtime").mkdir()
                (repo / target / "dummy_runtime/libtriton_identity.so").touch()
            h.refuse(name, lambda repo=repo: repo, [e.read_text() for e in expected])


def with_platform(repo, target):
    """Gives a golden the platform of ONNX Runtime."""
    if target in ("invalid_cpu", "invalid_gpu", "negative_gpu"):
        version_folders(repo, [target])
    path = repo / target / "config.pbtxt"
    if path.exists():
        lines = [line for line in path.read_text().split("\n") if "platform:" not in line]
        path.write_text("\n".join(lines) + f"\n{ONNX}\n")


def with_files(h, repo, kind):
    """Gives the models of a golden the files that its backend loads."""
    for model in version_folders(repo).models():
        folder = repo / model
        if kind == "python":
            own = folder / "model.py"
            shutil.copy(own if own.exists() else h.qa / "python_models/auto_complete/model.py", folder / "1/model.py")
        if kind == "onnx" and not (folder / "1/model.onnx").exists():
            shutil.copy(h.checkout.identity() / "onnx_zero_1_float16/1/model.onnx", folder / "1")
