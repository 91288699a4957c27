"""L0_simple_ensemble, L0_optional_input, L0_infer, L0_response_cache and L0_decoupled: ensembles and the models of their steps."""

import onnx
from harness import Tests, logged
from models import CPU, FLOATS, ONNX, Repo, config, repeat, simple, tensor, version_folders

VERBOSE = ["--log-verbose=1"]


def simple_ensemble(h):
    """L0_simple_ensemble; needs onnx, and python for one test"""
    folder, file = "L0_simple_ensemble", "ensemble_test.py"

    def repo(partial):
        r = simple(h.checkout, h.repo(), versions=(1, 2))
        for model in sorted((h.qa / folder / "models").iterdir()):
            if model.name != "simple" and (partial or "partial" not in model.name):
                r.add(model, versions=(1,))
        return r

    for name in h.names(folder, file):
        h.run(lambda name=name: repo("partial" in name), Tests(folder, file, [name], flags=VERBOSE))


def optional_input(h):
    """L0_optional_input; needs identity, and python for one test"""
    folder, file = "L0_optional_input", "optional_input_test.py"

    def repo(python):
        r = h.repo()
        for model in (h.qa / folder / "models").iterdir():
            if python or model.name not in ("optional_identity", "optional_connecting_tensor"):
                r.add(model, versions=(1,))
        return r

    for name in h.names(folder, file):
        h.run(lambda name=name: repo("connecting" in name), Tests(folder, file, [name], flags=VERBOSE, timing=True))


MIXED = (
    "wrong_label_int32_float32_float32", "label_override_int32_float32_float32", "mix_type_int32_float32_float32",
    "batch_to_nobatch_float32_float32_float32", "batch_to_nobatch_nobatch_float32_float32_float32",
    "nobatch_to_batch_float32_float32_float32", "nobatch_to_batch_nobatch_float32_float32_float32",
    "mix_nobatch_batch_float32_float32_float32", "mix_platform_float32_float32_float32", "mix_ensemble_int32_float32_float32",
)  # fmt: skip


def infer(h):
    """L0_infer; needs onnx, identity"""
    folder, file = "L0_infer", "infer_test.py"
    names = h.names(folder, file)
    # The tests of mixed ensembles run when the frameworks are named whose models they mix; those are ONNX models here.
    mixed = [n for n in names if "test_ensemble_" in n]
    for variant, chosen, backends in (("", [n for n in names if n not in mixed], "onnx"), ("mixed", mixed, "onnx graphdef savedmodel")):
        env = {"BACKENDS": backends, "ENSEMBLES": "1", "BATCH": "1", "NOBATCH": "1", "TRITON_SERVER_CPU_ONLY": "1"}
        tests = Tests(folder, file, chosen, variant, ["--exit-timeout-secs=120"], client_env=env, limit=900)
        h.run(lambda: infer_repository(h), tests)


def infer_repository(h):
    """All ONNX models, their ensembles, and the ensembles that mix models."""
    r, sums, ensembles = h.repo(), h.checkout.onnx(), h.checkout.ensembles()
    for model in sums.iterdir():
        if model.name.startswith("onnx") and "bf16" not in model.name:
            r.add(model).edit(model.name, append=CPU)
    for model in ensembles.iterdir():
        if model.is_dir() and ("onnx" in model.name and "bf16" not in model.name or model.name.startswith("nop_")):
            r.add(model)
    for name in MIXED:
        r.add(h.qa / "ensemble_models" / name, versions=(1,))
        r.edit(name, *((f'"{framework}_', '"onnx_') for framework in ("graphdef", "savedmodel", "libtorch", "plan")))
    zero, batched = "custom_zero_1_float32", "custom_nobatch_zero_1_float32"
    source = h.qa / "custom_models" / zero
    r.add(source, versions=(1,)).edit(zero, ("max_batch_size: 1", "max_batch_size: 8"), (r"dims: \[ 1 \]", "dims: [ -1 ]"), append=CPU)
    r.add(source, batched, versions=(1,))
    r.edit(batched, (zero, batched), ("max_batch_size: 1", "max_batch_size: 0"), (r"dims: \[ 1 \]", "dims: [ -1, -1 ]"), append=CPU)
    return version_folders(r, [m for m in r.models() if m.startswith("nop_")])


STEP = "graphdef_float32_float32_float32"  # the tests' name of the model, which is an ONNX model here
ENSEMBLE = "simple_" + STEP
CACHE = "response_cache { enable: True }"
DECOUPLED = "model_transaction_policy { decoupled: True }"
EXPLICIT = "--model-control-mode=explicit"


def cached_ensemble(h, ensemble="", step=""):
    """An ensemble and its step, with text appended to their configurations, where the tests edit them."""
    r = Repo(h.checkout.copy("L0_response_cache") / "models/ensemble_models")
    r.add(h.checkout.onnx() / FLOATS, STEP).add(h.checkout.ensembles() / f"simple_{FLOATS}", ENSEMBLE)
    changes = ('"onnx_', '"graphdef_'), ('"simple_onnx_', '"simple_graphdef_')
    r.edit(ENSEMBLE, *changes, append=ensemble)
    return r.edit(STEP, *changes, append=step)


def response_cache(h):
    """L0_response_cache; needs onnx, the local cache"""
    folder, file = "L0_response_cache", "ensemble_cache_test.py"
    for name in h.names(folder, file, ["EnsembleCacheTest"]):
        fails = name.endswith("insertion_failure")
        flags = ["--cache-config", f"local,size={200 if fails else 10480}", EXPLICIT, "--log-verbose=1"]
        h.run(lambda: cached_ensemble(h), Tests(folder, file, [name], flags=flags, after=logged("failed to insert key") if fails else None))
    flags, text = ["--cache-config", "local,size=10480", EXPLICIT], ["response cache does not currently support.*decoupled"]
    ensemble = f"--load-model={ENSEMBLE}"
    options = {"prefix": "", "ignore_case": True}
    h.refuse("decoupled_ensemble", lambda: cached_ensemble(h, f"{CACHE}\n{DECOUPLED}"), text, [*flags, ensemble], **options)
    h.refuse("decoupled_composing", lambda: cached_ensemble(h, CACHE, DECOUPLED), text, [*flags, ensemble], **options)
    h.refuse("decoupled_model", lambda: cached_models(h), text, [*flags, "--load-model=decoupled_cache"], **options)
    cache_flags(h)


def cached_models(h):
    """Two models with a response cache, one of them decoupled."""
    models = h.qa / "L0_response_cache/models"
    return h.repo().add(models / "decoupled_cache", versions=(1,)).add(models / "identity_cache", versions=(1,))


def cache_flags(h):
    """Which flags of the cache are refused together, and which start the server."""
    load = [EXPLICIT, "--load-model=identity_cache"]
    two = ["--cache-config=local,size=8192", "--cache-config=redis,key=value", *load]
    both = ["--response-cache-byte-size=12345", "--cache-config=local,size=67890", *load]
    h.refuse("two_caches", lambda: cached_models(h), ["[Mm]ultiple cache configurations"], two, prefix="")
    h.refuse("old_and_new_flag", lambda: cached_models(h), ["[Ii]ncompatible flags"], both, prefix="")
    for name, flag in (("old_flag", "--response-cache-byte-size=8192"), ("new_flag", "--cache-config=local,size=8192")):
        h.check(name, lambda: cached_models(h), lambda: None, [flag, *load])


def sums(path, outputs):
    """Writes an ONNX model with the difference and the sum of two numbers."""
    values = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [1]) for name in ("INPUT0", "INPUT1", *outputs)}
    nodes = [onnx.helper.make_node(kind, ["INPUT0", "INPUT1"], [out]) for kind, out in zip(("Sub", "Add"), outputs, strict=True)]
    graph = onnx.helper.make_graph(nodes, "sums", [values["INPUT0"], values["INPUT1"]], [values[out] for out in outputs])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(path))


def decoupled_repository(h):
    """The decoupled models, and the ensembles of them."""
    r = h.repo()
    for model in (h.qa / "L0_decoupled/models").iterdir():
        r.add(model, versions=(1,))
    kind = "instance_group [ { kind: KIND_CPU } ]"
    square = config("square_int32", 'backend: "square"', [tensor("IN", "INT32", 1)], [tensor("OUT", "INT32", 1)], 0, DECOUPLED, kind)
    repeat(r, True).put("square_int32", square)
    for name, prefix in (("libtorch_nobatch_int32_int32_int32", "OUTPUT__"), ("onnx_nobatch_int32_int32_int32", "OUTPUT")):
        outputs = [prefix + "0", prefix + "1"]
        inputs = [tensor(f"INPUT{i}", "INT32", 1) for i in (0, 1)]
        r.put(name, config(name, ONNX, inputs, [tensor(o, "INT32", 1) for o in outputs], 0, CPU))
        sums(r / name / "1/model.onnx", outputs)
    return r


def decoupled(h):
    """L0_decoupled; needs repeat, square, identity, onnx; takes half an hour"""
    folder, file, delayed = "L0_decoupled", "decoupled_test.py", "DecoupledTest.test_one_to_multi_many"
    names = [n for n in h.names(folder, file, ["DecoupledTest"]) if n != delayed]
    h.run_each(lambda: decoupled_repository(h), Tests(folder, file, names, limit=2400))
    env = {"TRITONSERVER_DELAY_GRPC_RESPONSE": "2000"}
    h.run(lambda: decoupled_repository(h), Tests(folder, file, [delayed], client_env=env, limit=2400))
    h.run(lambda: repeat(h.repo(), False), Tests(folder, file, ["NonDecoupledTest"]))
