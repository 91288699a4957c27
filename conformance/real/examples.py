"""The examples of Triton's python backend."""

import shutil
import urllib.request

import numpy as np
import tritonclient.http as http_module

import images
import toys
from repository import Check, Repository, Script, equal, infer, refused
from serving import LIMIT
from tutorials import own


class Example(Repository):
    """Models that the example's page has copied into a repository: MODEL from FILE_model.py and FILE_config.pbtxt."""

    source = "python_backend"
    copied = {}  # model: the folder of the examples and the beginning of the file names

    def place(self, to):
        root = self.root()
        if not root:
            return super().place(to)
        for model, (folder, prefix) in self.copied.items():
            (to / model / "1").mkdir(parents=True)
            shutil.copy(root.parent / folder / f"{prefix}model.py", to / model / "1/model.py")
            config = root.parent / folder / f"{prefix}config.pbtxt"
            if config.exists():
                shutil.copy(config, to / model / "config.pbtxt")
        return None

    @staticmethod
    def pair():
        return np.array([1.5, -2, 3, 0.25], np.float32), np.array([4, 5, -6, 0.5], np.float32)

    def sums(self, server, model, through=None):
        """The check of the models that add and subtract, or of one that sends requests on to another."""
        a, b = self.pair()
        more = {"MODEL_NAME": np.array([through], np.object_)} if through else {}
        got = infer(server, model, {"INPUT0": a, "INPUT1": b, **more})
        yield equal(f"{model}: sum", got["OUTPUT0"], a + b)
        yield equal(f"{model}: difference", got["OUTPUT1"], a - b)


class AddSub(Example):
    published, own = "examples/add_sub", "add_sub"
    copied = {"add_sub": ("add_sub", "")}

    def checks(self, server):
        yield from self.sums(server, "add_sub")

    def scripts(self, root):
        yield Script(root / "client.py", printed=["PASS: add_sub"])


class Jax(AddSub):
    published, own = "examples/jax", "jax"
    copied = {"jax": ("jax", "")}
    imports = ("jax",)

    def checks(self, server):
        yield from self.sums(server, "jax")

    def scripts(self, root):
        yield Script(root / "client.py", printed=["PASS: jax"])


class BLS(Example):
    published, own = "examples/bls", "bls"
    imports = ("torch",)
    copied = {"add_sub": ("add_sub", ""), "pytorch": ("pytorch", ""), "bls_sync": ("bls", "sync_"), "bls_async": ("bls", "async_")}

    def checks(self, server):
        for model in ("add_sub", "pytorch"):
            yield from self.sums(server, "bls_sync", through=model)
        yield from self.sums(server, "bls_async")
        yield refused("an unknown model", lambda: list(self.sums(server, "bls_sync", through="undefined_model")), "undefined_model")

    def scripts(self, root):
        yield Script(root / "sync_client.py", printed=["PASS: BLS Sync"])
        yield Script(root / "async_client.py", printed=["PASS: BLS Async"])


class BLSDecoupled(Example):
    published, own = "examples/bls_decoupled", "bls_decoupled"
    copied = {"square_int32": ("decoupled", "square_"), "bls_decoupled_sync": ("bls_decoupled", "sync_"), "bls_decoupled_async": ("bls_decoupled", "async_")}

    def checks(self, server):
        for model, factor in (("bls_decoupled_sync", 1), ("bls_decoupled_async", 2)):
            for n in (4, 2, 0, 1):
                got = infer(server, model, {"IN": np.array([n], np.int32)})["SUM"]
                yield Check(f"{model} of {n}", got.tolist() == [factor * n * n], f"{got}, expected {factor * n * n}")

    def scripts(self, root):
        yield Script(root / "sync_client.py", printed=["PASS: BLS Decoupled Sync"])
        yield Script(root / "async_client.py", printed=["PASS: BLS Decoupled Async"])


class Decoupled(Example):
    published, own = "examples/decoupled", "decoupled"
    copied = {"square_int32": ("decoupled", "square_"), "repeat_int32": ("decoupled", "repeat_")}

    def checks(self, server):
        numbers = [4, 2, 0, 1]
        sent = {"IN": np.array(numbers, np.int32), "DELAY": np.array([1, 2, 3, 4], np.uint32), "WAIT": np.array([5], np.uint32)}
        got = streamed(server, "repeat_int32", sent)
        yield Check("repeat_int32", [(int(r.as_numpy("IDX")[0]), int(r.as_numpy("OUT")[0])) for r in got] == list(enumerate(numbers)), f"{len(got)} responses")
        for n in numbers:
            got = streamed(server, "square_int32", {"IN": np.array([n], np.int32)})
            yield Check(f"square_int32 of {n}", [int(r.as_numpy("OUT")[0]) for r in got] == [n] * n, f"{len(got)} responses")

    def scripts(self, root):
        yield Script(root / "repeat_client.py", printed=["PASS: repeat_int32"])
        yield Script(root / "square_client.py", printed=["PASS: square_int32"])


def streamed(server, model, inputs):
    """All responses of a decoupled model to one request, without the empty last one."""
    import queue

    import tritonclient.grpc as grpc_module

    responses = queue.Queue()
    with grpc_module.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: responses.put(error or result))
        sent = []
        for name, array in inputs.items():
            sent.append(grpc_module.InferInput(name, array.shape, {"int32": "INT32", "uint32": "UINT32"}[array.dtype.name]))
            sent[-1].set_data_from_numpy(array)
        client.async_stream_infer(model, sent, enable_empty_final_response=True)
        found, final = [], False
        while not final:
            result = responses.get(timeout=LIMIT)
            if isinstance(result, Exception):
                raise result
            final = result.get_response().parameters["triton_final_response"].bool_param
            found += [result] if result.get_response().outputs else []
        return found


class Preprocessing(Example):
    published, own = "examples/preprocessing", "preprocessing"
    imports = ("torch", "torchvision")

    def place(self, to):
        Repository.place(self, to)
        if self.root():
            (to / "preprocess/1").mkdir(parents=True)
            shutil.copy(self.root() / "model.py", to / "preprocess/1/model.py")
        (to / "ensemble_python_resnet50/1").mkdir(exist_ok=True)

    def weights(self, to):
        self.toy = toys.classifier(to / "resnet50_trt/1/model.onnx", "input", [None, 3, None, None], "output", [None, 1000])
        self.change(to / "resnet50_trt/config.pbtxt", '"tensorrt_plan"', '"onnxruntime_onnx"', "TensorRT plan replaced by ONNX")
        labels = to / "resnet50_trt/labels.txt"
        if not labels.exists():
            labels.write_text("".join(f"class {i}\n" for i in range(1000)))
        self.differs.append("toy weights")

    def checks(self, server):
        data = images.signs()
        pixels = own("preprocessing", "preprocess").pixels(np.frombuffer(data, np.uint8))
        for grpc in (False, True):
            got = infer(server, "ensemble_python_resnet50", {"INPUT": np.frombuffer(data, np.uint8)[None]}, grpc=grpc)
            yield equal("the scores", got["OUTPUT"], toys.run(self.toy, {"input": pixels})["output"], rtol=1e-2)

    def scripts(self, root):
        image = self.scratch / "mug.jpg"
        image.write_bytes(images.signs("JPEG"))
        yield Script(root / "client.py", ["--image", str(image)], ["Result is class:"])


class AutoComplete(Example):
    published, own = "examples/auto_complete", "auto_complete"
    copied = {"batch_auto_complete": ("auto_complete", "batch_"), "nobatch_auto_complete": ("auto_complete", "nobatch_")}

    def checks(self, server):
        yield from self.sums(server, "nobatch_auto_complete")
        a, b = (np.stack([x, x + 1]) for x in self.pair())
        yield equal("batch_auto_complete: sum", infer(server, "batch_auto_complete", {"INPUT0": a, "INPUT1": b})["OUTPUT0"], a + b)
        with http_module.InferenceServerClient(server.http) as client:
            for model, rows in (("batch_auto_complete", 4), ("nobatch_auto_complete", 0)):
                config = client.get_model_config(model)
                found = (config["max_batch_size"], [p["name"] for p in config["input"]], [p["dims"] for p in config["output"]])
                yield Check(f"{model}: configuration", found == (rows, ["INPUT0", "INPUT1"], [[4], [4]]), f"{found}")

    def scripts(self, root):
        yield Script(root / "client.py", printed=["PASS: auto_complete"])


class InstanceKind(Example):
    published, own = "examples/instance_kind", "instance_kind"
    imports = ("torch", "torchvision")
    always = imports  # it downloads weights and a client's helpers
    copied = {"resnet50": ("instance_kind", "")}

    def checks(self, server):
        image = np.random.default_rng(4).standard_normal((2, 3, 224, 224)).astype(np.float32)
        want = image.mean(axis=(2, 3), dtype=np.float32) @ own("instance_kind", "resnet50").WEIGHTS
        yield equal("the scores", infer(server, "resnet50", {"INPUT": image}, grpc=True)["OUTPUT"], want, 1e-4)

    def scripts(self, root):
        yield Script(root / "client.py", printed=["PASS: ResNet50 instance kind"])


class CustomMetrics(Example):
    published, own = "examples/custom_metrics", "custom_metrics"
    copied = {"custom_metrics": ("custom_metrics", "")}

    def checks(self, server):
        yield from self.sums(server, "custom_metrics")
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=LIMIT) as response:
            text = response.read().decode()
        for line in ("# TYPE requests_process_latency_ns counter", 'requests_process_latency_ns{model="custom_metrics",version="1"}'):
            yield Check("the metrics", line in text, f"they have no {line}")

    def scripts(self, root):
        yield Script(root / "client.py", printed=["PASS: custom_metrics"])


LIST = (AddSub, BLS, BLSDecoupled, Decoupled, Preprocessing, AutoComplete, InstanceKind, CustomMetrics, Jax)
