"""The repository of the server's documentation, and every example script of tritonclient that queries it."""

import shutil

import numpy as np
import tritonclient.grpc as grpc_module
from onnx import TensorProto

import images
import toys
from repository import OWN, Check, Repository, Script, checkout, equal, infer
from serving import LIMIT

SEQUENCE = [0, 11, 7, 5, 3, 2, 1]


class Docs(Repository):
    """The models called simple, and two classifiers of images whose weights are not published there."""

    source = "server"
    published = "docs/examples/model_repository"
    models = "."
    own = "docs"

    def weights(self, to):
        if not self.root():
            toys.arithmetic(to / "simple/1/model.onnx", TensorProto.INT32)
            toys.arithmetic(to / "simple_int8/1/model.onnx", TensorProto.INT32, TensorProto.INT8)
            toys.arithmetic(to / "simple_string/1/model.onnx", TensorProto.INT32, TensorProto.STRING)
            toys.sequence(to / "simple_sequence/1/model.onnx", dynamic=False)
            toys.sequence(to / "simple_dyna_sequence/1/model.onnx", dynamic=True)
            for model, classes in (("densenet_onnx", 1000), ("inception_onnx", 1001)):
                name = model.removesuffix("_onnx")
                (to / model / f"{name}_labels.txt").write_text("".join(f"class {i}\n" for i in range(classes)))
        self.densenet = toys.classifier(to / "densenet_onnx/1/model.onnx", "data_0", [1, 3, 224, 224], "fc6_1", [1, 1000, 1, 1])
        inception = to / "inception_onnx/1/model.onnx"
        toys.classifier(inception, "input:0", [1, 299, 299, 3], "InceptionV3/Predictions/Softmax:0", [1, 1001], channels_first=False)
        self.differs.append("toy weights of two models")

    def checks(self, server):
        a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
        for model, dtype in (("simple", np.int32), ("simple_int8", np.int8)):
            got = infer(server, model, {"INPUT0": a.astype(dtype), "INPUT1": b.astype(dtype)})
            yield equal(f"{model}: sum", got["OUTPUT0"], a + b)
            yield equal(f"{model}: difference", got["OUTPUT1"], a - b)
        texts = [np.array([[str(v) for v in x.ravel()]], np.object_) for x in (a, b)]
        got = infer(server, "simple_string", {"INPUT0": texts[0], "INPUT1": texts[1]}, grpc=True)
        yield equal("simple_string: sum", got["OUTPUT0"], np.array([[str(v) for v in (a + b).ravel()]], np.object_))
        yield equal("simple_identity", infer(server, "simple_identity", {"INPUT0": texts[0]})["OUTPUT0"], texts[0])
        for model, last in (("simple_sequence", 0), ("simple_dyna_sequence", 1007)):
            for i, n in enumerate(SEQUENCE):
                end = i == len(SEQUENCE) - 1
                options = {"sequence_id": 1007, "sequence_start": i == 0, "sequence_end": end}
                got = infer(server, model, {"INPUT": np.array([[n]], np.int32)}, grpc=i % 2 == 1, **options)
                yield equal(f"{model} {i}", got["OUTPUT"], [[n + (i == 0) + end * last]])
        image = np.ascontiguousarray(images.photo()[8:232, 48:272].transpose(2, 0, 1)) / np.float32(255)
        got = infer(server, "densenet_onnx", {"data_0": image}, grpc=True)
        yield equal("densenet_onnx", got["fc6_1"], toys.run(self.densenet, {"data_0": image[None]})["fc6_1"].ravel(), 1e-6)


V = ("-v",)
GRPC = ("-i", "grpc", "-u", "localhost:8001")
PLAIN = {
    "simple_http_health_metadata": "", "simple_grpc_health_metadata": "",
    "simple_http_infer_client": "", "simple_http_aio_infer_client": "PASS", "simple_grpc_infer_client": "PASS", "simple_grpc_aio_infer_client": "PASS",
    "simple_http_async_infer_client": "", "simple_grpc_async_infer_client": "",
    "simple_http_string_infer_client": "PASS", "simple_grpc_string_infer_client": "PASS",
    "simple_http_shm_client": "PASS", "simple_grpc_shm_client": "PASS", "simple_http_shm_string_client": "PASS", "simple_grpc_shm_string_client": "PASS",
    "simple_http_sequence_sync_infer_client": "PASS", "simple_grpc_sequence_sync_infer_client": "PASS",
    "simple_grpc_sequence_stream_infer_client": "PASS", "simple_grpc_aio_sequence_stream_infer_client": "PASS",
    "simple_grpc_keepalive_client": "PASS", "simple_grpc_custom_args_client": "PASS", "simple_grpc_custom_repeat": "PASS",
    "grpc_explicit_byte_content_client": "PASS", "grpc_explicit_int_content_client": "PASS", "grpc_explicit_int8_content_client": "PASS",
    "grpc_client": "PASS", "reuse_infer_objects_client": "", "memory_growth_test": "",
}  # fmt: skip
SEQUENCES = ("http_sequence_sync", "grpc_sequence_sync", "grpc_sequence_stream", "grpc_aio_sequence_stream")
# Scripts that run with other arguments as well.
MORE = [
    *[(f"simple_http_{k}infer_client", (*V, f"--request-compression-algorithm={c}", f"--response-compression-algorithm={c}"))
      for k in ("", "aio_") for c in ("gzip", "deflate")],
    *[(f"simple_grpc_{k}infer_client", (*V, "-C", c)) for k in ("", "aio_") for c in ("gzip", "deflate")],
    ("reuse_infer_objects_client", (*V, *GRPC)),
    ("memory_growth_test", GRPC[:2]),
    *[(f"simple_{k}_infer_client", (*V, *a)) for k in SEQUENCES for a in (("-d",), ("-o", "7"))],
]  # fmt: skip
# These end before they send anything where there is no GPU: the client cannot make the region.
CUDA = {"simple_http_cudashm_client", "simple_grpc_cudashm_client"}
MODEL_CONTROL = {"simple_http_model_control", "simple_grpc_model_control"}


class Clients(Docs):
    """Every example script of the client repository, against the repository that they are written for."""

    source = "client"
    published = "src/python/examples"
    flags = ("--allow-client-shm=true",)

    def place(self, to):
        server = checkout("server")
        shutil.copytree(server / Docs.published if server else OWN / "docs", to)
        shutil.copytree(OWN / "clients", to, dirs_exist_ok=True)  # what the scripts query besides
        self.repository = server
        self.differs.append("models of our own in the place of Triton's test backends")

    def weights(self, to):
        root, self.root = self.root, lambda: self.repository  # whether the weights are there is decided by the server's checkout
        try:
            super().weights(to)
        finally:
            self.root = root
        batched = to / "inception_batched"
        toys.classifier(batched / "1/model.onnx", "input", [None, 299, 299, 3], "probs", [None, 1001], channels_first=False)
        labels = (to / "inception_onnx/inception_labels.txt").read_text()
        for model in (batched, to / "preprocess_inception_ensemble"):
            (model / "inception_labels.txt").write_text(labels)
        (to / "preprocess_inception_ensemble/1").mkdir(exist_ok=True)
        (to / "custom_identity_int32/1").mkdir(exist_ok=True)
        (to / "repeat_int32/1").mkdir(exist_ok=True)

    def checks(self, server):
        with grpc_module.InferenceServerClient(server.grpc) as client:
            yield equal("models", np.array(len(client.get_model_repository_index(client_timeout=LIMIT).models)), 14)
        if root := self.root():
            self.differs.append("the scripts of CUDA's shared memory do not run: they need a GPU")
            known = {s.path.stem for s in self.scripts(root)} | CUDA | MODEL_CONTROL
            left = sorted({p.stem for p in root.glob("*.py")} - known)
            yield Check("every script runs", not left, f"left out: {left}")

    def scripts(self, root):
        for name, word in PLAIN.items():
            yield Script(root / f"{name}.py", V, [word] if word else [])
        for name, args in MORE:
            yield Script(root / f"{name}.py", args)
        yield Script(root / "simple_http_infer_client.py", (*V, "-u", "localhost:8000/base_path"), ["POST /base_path/v2/models/simple/infer"], fails=True)
        (self.scratch / "signs.jpg").write_bytes(images.signs("JPEG"))
        for model in ("densenet_onnx", "inception_onnx"):
            yield from self.classified(root, model, str(self.scratch / "signs.jpg"))
        for args in (("-c", "1"), ("-c", "2", *GRPC)):
            yield Script(root / "ensemble_image_client.py", (*args, str(self.scratch)), ["PASS"])

    @staticmethod
    def classified(root, model, image):
        """The scripts that have an image classified."""
        for mode in ((), ("-a",)):
            yield Script(root / "image_client.py", ("-m", model, "-s", "INCEPTION", *mode, "-c", "3", "-b", "1", image), ["PASS"])
            yield Script(root / "image_client.py", ("-m", model, "-s", "VGG", *mode, "-c", "1", "-b", "1", *GRPC, image), ["PASS"])
            yield Script(root / "grpc_image_client.py", ("-m", model, "-s", "INCEPTION", *mode, "-c", "3", "-b", "1", image), ["PASS"])
        streaming = ("-m", model, "-s", "INCEPTION", "-a", "--streaming", "-c", "1", "-b", "1")
        yield Script(root / "image_client.py", (*streaming, *GRPC, image), ["PASS"])
        yield Script(root / "grpc_image_client.py", (*streaming, image), ["PASS"])


class ModelControl(Docs):
    """The two scripts that load and unload: each counts the models of the repository."""

    source = "client"
    published = "src/python/examples"
    flags = ("--model-control-mode=explicit",)
    protocol, left_out = "grpc", ()

    @property
    def name(self):
        return f"{self.source}/{self.published}/simple_{self.protocol}_model_control.py"

    def place(self, to):
        server = checkout("server")
        shutil.copytree(server / Docs.published if server else OWN / "docs", to)
        self.repository = server

    def weights(self, to):
        root, self.root = self.root, lambda: self.repository
        try:
            super().weights(to)
        finally:
            self.root = root
        for model in self.left_out:
            shutil.rmtree(to / model)

    def checks(self, server):
        with grpc_module.InferenceServerClient(server.grpc) as client:
            client.load_model("simple", client_timeout=LIMIT)
            yield equal("loaded", np.array(client.is_model_ready("simple")), True)
            client.unload_model("simple", client_timeout=LIMIT)

    def scripts(self, root):
        yield Script(root / f"simple_{self.protocol}_model_control.py", V, ["PASS: model control"], logged="Invalid config override")


class ModelControlHTTP(ModelControl):
    protocol, left_out = "http", ("inception_onnx",)


LIST = (Docs, Clients, ModelControl, ModelControlHTTP)
