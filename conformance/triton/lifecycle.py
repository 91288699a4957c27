"""L0_lifecycle: loading, unloading and ending, without the tests that need other frameworks."""

import functools
import shutil
import subprocess

from harness import Tests
from models import FLOATS, Repo, parameters, remove_files
from serving import ADDRESSES, get

FOLDER = "L0_lifecycle"
INTS = "identity_zero_1_int32"
ENSEMBLE = "ensemble_zero_1_float32"
SLOW = "custom_zero_1_float32"
EXPLICIT = "--model-control-mode=explicit"
LOOSE = [EXPLICIT, "--exit-timeout-secs=5", "--strict-model-config=false", "--strict-readiness=false"]
ONE_ROW = ("max_batch_size:.*", "max_batch_size: 1")
SLEEP = "    def {}:\n        import time\n        time.sleep({})\n"


def lifecycle(h):
    """L0_lifecycle; needs onnx, identity, python"""
    for strict, variant in (("true", "strict"), ("false", "")):
        flags = [f"--strict-readiness={strict}", "--exit-on-error=false"]
        tests = Tests(FOLDER, "lifecycle_test.py", ["LifeCycleTest.test_parse_error_noexit"], variant, flags, ready="port")
        h.run(lambda: "/nonexistent/xyzx", tests)
    model_control(h)
    reloads(h)
    overrides(h)
    concurrent_loads(h)
    shutdowns(h)
    load_flags(h)


def fresh(h, fill):
    """Returns a function that makes the repository where the tests edit it, in their own folder, and fills it."""

    def make():
        folder = h.checkout.copy(FOLDER)
        remove_files(folder, "config.pbtxt.*")
        for models in folder.glob("models*"):
            shutil.rmtree(models)
        repo = Repo(folder / "models")
        fill(h, repo)
        return repo

    return make


def run(h, names, fill, flags, variant="", **more):
    """Runs tests on a repository that fill(h, repo) makes."""
    names = [f"LifeCycleTest.{n}" for n in names.split()]
    h.run(fresh(h, fill), Tests(FOLDER, "lifecycle_test.py", names, variant, flags, timing=True, **more))


def floats(h, repo):
    """The generated model of floats."""
    return repo.add(h.checkout.onnx() / FLOATS)


def with_ensemble(h, repo):
    """The generated model, and its ensemble."""
    floats(h, repo).edit(FLOATS, ONE_ROW)
    repo.add(h.checkout.ensembles() / f"simple_{FLOATS}").edit(f"simple_{FLOATS}", ONE_ROW)


def without_files(h, repo):
    """The generated model with empty version folders."""
    floats(h, repo).edit(FLOATS, ONE_ROW)
    remove_files(repo / FLOATS, "[0-9]*/*")


def model_control(h):
    """Loads and unloads over the protocols."""
    run(h, "test_model_control", with_ensemble, LOOSE)
    run(h, "test_model_control_ensemble", with_ensemble, LOOSE)
    run(h, "test_model_control_fail", without_files, LOOSE)


def ints(h, repo, versions=(1,), file="", changes=("", ""), policy="version_policy: { specific { versions: [2] }}"):
    """The identity model. With file, its version 1, and besides it the configuration that the test loads later."""
    repo.add(h.qa / FOLDER / INTS, versions=versions)
    if file:
        path = repo / INTS / "config.pbtxt"
        text = path.read_text()
        repo.edit(INTS, append="version_policy: { specific { versions: [1] }}")
        new = text.replace(*changes) + f"\n{policy}\n" if policy else path.read_text()
        (h.checkout.copy(FOLDER) / file).write_text(new)


def reloads(h):
    """Loads a model again while it serves."""
    flags = [EXPLICIT, f"--load-model={INTS}", "--strict-readiness=false"]
    changed = functools.partial(ints, versions=(1, 2), file="config.pbtxt.v2")
    unchanged = functools.partial(ints, versions=(1, 2), file="config.pbtxt.new", policy="")
    for protocol, env in (("http", {}), ("grpc", {"TRITONSERVER_USE_GRPC": "1"})):
        run(h, "test_model_availability_on_reload", ints, flags, protocol, client_env=env)
        run(h, "test_model_availability_on_reload_2", changed, flags, protocol, client_env=env)
        run(h, "test_model_availability_on_reload_3", unchanged, flags, protocol, client_env=env)
    gpu = functools.partial(ints, versions=(1, 2), file="config.pbtxt.v2.gpu", changes=("KIND_CPU", "KIND_GPU"))
    run(h, "test_model_reload_fail", gpu, flags)


def overrides(h):
    """Loads models with a configuration or with files from the request."""

    def only_version_2(h, repo):
        floats(h, repo)
        for version in (1, 3):
            remove_files(repo / FLOATS / str(version), "*")

    def without_version_1(h, repo):
        floats(h, repo)
        shutil.rmtree(repo / FLOATS / "1")

    completed = "--strict-model-config=false"
    run(h, "test_config_override", only_version_2, [EXPLICIT, completed])
    flags = [EXPLICIT, f"--load-model={FLOATS}", completed]
    run(h, "test_file_override test_file_override_security", without_version_1, flags)


def python(h, repo, source="identity_fp32", name=None, tail="", configured=True):
    """Adds a Python model, with text appended to its model.py."""
    name = name or source
    repo.add(h.qa / "python_models" / source, name, versions=(1,))
    path = repo / name / "1/model.py"
    shutil.move(repo / name / "model.py", path)
    path.write_text(path.read_text() + tail)
    if not configured:
        (repo / name / "config.pbtxt").unlink()
    return repo


def concurrent_loads(h):
    """Loads and unloads from several clients at once."""
    name = "identity_model"

    def two_repositories(h, repo):
        repo.add(h.qa / FOLDER / INTS, name, versions=(1,)).edit(name, (INTS, name))
        python(h, Repo(f"{repo}_v2"), name=name).edit(name, ("identity_fp32", name))

    def slow_to_load(h, repo):
        for model in (INTS, ENSEMBLE):
            repo.add(h.qa / FOLDER / model, versions=(1,))
        repo.add(h.qa / "custom_models" / SLOW, versions=(1,)).edit(SLOW, append=parameters(creation_delay_sec=10))

    def quick_to_load(h, repo):
        ints(h, repo)
        repo.edit(INTS, ('string_value: "10"', 'string_value: "0"'))

    def slow_to_initialize(h, repo):
        python(h, repo, tail=SLEEP.format("initialize(self, args)", 5), configured=False)

    run(h, "test_concurrent_model_load", two_repositories, [EXPLICIT])
    run(h, "test_concurrent_model_load_unload", slow_to_load, [EXPLICIT])
    run(h, "test_concurrent_same_model_load_unload_stress", quick_to_load, [EXPLICIT, "--model-load-thread-count=32", "--log-verbose=2"])
    run(h, "test_model_config_overwite", slow_to_initialize, [EXPLICIT, "--load-model=identity_fp32"])


def shutdowns(h):
    """Ends the server while it executes, loads and unloads."""
    verbose = [EXPLICIT, "--log-verbose=2"]

    def executing(h, repo):
        repo.add(h.qa / "custom_models" / SLOW, versions=(1,))
        repo.edit(SLOW, append="dynamic_batching {}\n" + parameters(execute_delay_ms=5000))

    def executing_ensemble(h, repo):
        executing(h, repo)
        repo.add(h.qa / FOLDER / ENSEMBLE, versions=(1,))

    def unloading(h, repo):
        python(h, repo, tail=SLEEP.format("finalize(self)", 10))

    def loading(h, repo):
        python(h, repo, tail=SLEEP.format("initialize(self, args)", 10))

    run(h, "test_shutdown_dynamic", executing, ["--log-verbose=1", "--exit-timeout-secs=120"], ends=True)
    run(h, "test_shutdown_ensemble", executing_ensemble, ["--log-verbose=1"], ends=True)
    run(h, "test_shutdown_while_background_unloading", unloading, [*verbose, "--load-model=identity_fp32"], ends=True)
    run(h, "test_shutdown_while_loading", loading, verbose, ends=True)
    run(h, "test_shutdown_with_live_connection", functools.partial(python, source="add_sub"), [], ends=True)


def load_flags(h):
    """Starts that must fail: flags that name models, and ports that are taken."""
    wildcard = ["Wildcard model name '\\*' must be the ONLY startup model"]
    h.refuse("load_all_plus_one", fresh(h, floats), wildcard, [EXPLICIT, "--load-model=*", f"--load-model={FLOATS}"], prefix="")
    unknown = ["model not found in any model repository"]
    h.refuse("load_unknown", fresh(h, floats), unknown, [EXPLICIT, "--load-model=does-not-exist"], prefix="")
    h.check("port_taken", fresh(h, floats), lambda: taken_ports(h))


def taken_ports(h):
    """Starts a second server on each port of the first: it must fail, and the first must go on."""
    others = {
        "http": ["--grpc-port=8003", "--metrics-port=8004"],
        "grpc": ["--http-port=8003", "--metrics-port=8004"],
        "metrics": ["--http-port=8003", "--grpc-port=8004"],
    }
    wrong = {}
    for port, flags in others.items():
        command = [*h.command, f"--model-repository={h.checkout.copy(FOLDER) / 'models'}", *ADDRESSES, *flags]
        run = subprocess.run(command, capture_output=True, timeout=30, cwd=h.cwd)
        wrong[port] = "" if run.returncode else "the second server did not fail"
    get("v2/health/ready")
    return wrong
