"""The repositories of Triton's tutorials: the conceptual guide."""

import importlib.util
import json
import os
import queue
import shutil
import sys
import types

import numpy as np
import tritonclient.grpc as grpc_module

import images
import toys
from repository import OWN, Check, Repository, Script, equal, infer
from serving import LIMIT

GUIDE = "Conceptual_Guide/"


def own(repository, model):
    """The functions of a model.py of ours, to compute the expected outputs."""
    path = OWN / repository / model / "1" / "model.py"
    spec = importlib.util.spec_from_file_location(f"{repository}_{model}".replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("triton_python_backend_utils", types.ModuleType("triton_python_backend_utils"))
    spec.loader.exec_module(module)
    return module


def detected(model, image):
    """The crops of the signs in an image [1,H,W,3], as the tutorial's client and its models find them."""
    found = toys.run(model, {"input_images:0": image})
    scores, boxes = found["feature_fusion/Conv_7/Sigmoid:0"], found["feature_fusion/concat_3:0"]
    return own("part5", "detection_postprocessing").crops(scores[0], boxes[0], image[0])


class Part1(Repository):
    published = GUIDE + "Part_1-model_deployment"
    own = "part1"

    def weights(self, to):
        self.detection = toys.text_detection(to / "text_detection/1/model.onnx")
        self.recognition = toys.text_recognition(to / "text_recognition/1/model.onnx", batch=1)
        self.differs.append("toy weights")

    def checks(self, server):
        image = np.asarray(images.photo())[None, :224, :320]
        names = ["feature_fusion/Conv_7/Sigmoid:0", "feature_fusion/concat_3:0"]
        got = infer(server, "text_detection", {"input_images:0": image}, names)
        want = toys.run(self.detection, {"input_images:0": image})
        for name in names:
            yield equal("text_detection " + name, got[name], want[name], 1e-5)
        row = np.linspace(-1, 1, 3200, dtype=np.float32).reshape(1, 1, 32, 100)
        got = infer(server, "text_recognition", {"input.1": row}, grpc=True)
        yield equal("text_recognition", got["308"], toys.run(self.recognition, {"input.1": row})["308"], 1e-3)

    def scripts(self, root):
        import cv2

        blob = cv2.dnn.blobFromImage(cv2.imread(str(root / "img1.jpg")), 1.0, (640, 480), (123.68, 116.78, 103.94), True, False)
        crops = detected(self.detection, np.transpose(blob, (0, 2, 3, 1)))
        scores = toys.run(self.recognition, {"input.1": crops[:1]})["308"]
        yield Script(root / "client.py", printed=[own("part5", "recognition_postprocessing").text(scores[0])])


class Part2(Repository):
    published = GUIDE + "Part_2-improving_resource_utilization"
    own = "part2"
    most = 8

    def weights(self, to):
        self.recognition = toys.text_recognition(to / "text_recognition/1/model.onnx")
        self.differs.append("toy weights")

    def checks(self, server):
        rows = np.random.default_rng(1).uniform(-1, 1, (self.most, 1, 32, 100)).astype(np.float32)
        for n in (1, 3, self.most):
            got = infer(server, "text_recognition", {"input.1": rows[:n]}, grpc=n == 3)
            yield equal(f"{n} rows", got["308"], toys.run(self.recognition, {"input.1": rows[:n]})["308"], 1e-3)


class Part4(Part2):
    """One of the three sample configurations of part 4."""

    models = ""
    most = 16
    sample = ""

    @property
    def name(self):
        return f"tutorials/{self.published}/sample_configs/{self.sample}_config.pbtxt"

    published = GUIDE + "Part_4-inference_acceleration"

    def place(self, to):
        root = self.root()
        if not root:
            return super().place(to)
        model = to / "text_recognition"
        model.mkdir(parents=True)
        shutil.copy(root / "sample_configs" / f"{self.sample}_config.pbtxt", model / "config.pbtxt")
        return None


class Part4OpenVINO(Part4):
    """Served by an ONNX Runtime with OpenVINO's provider where there is one, and refused by the name of what is missing."""

    own, sample = "part4_openvino", "ORT_openvino"
    runtimes = {"onnxruntime": "ONNXRUNTIME_OPENVINO"}
    refusal = "" if "TUTTI_TEST_ONNXRUNTIME_OPENVINO" in os.environ else "openvino"


class Part4CUDA(Part4):
    own, sample = "part4_cuda", "ORT_cuda_ep"


class Part4TensorRT(Part4):
    own, sample = "part4_tensorrt", "ORT_TRT"


class Part5(Repository):
    """One image becomes as many rows of the next step as there are signs in it."""

    published = GUIDE + "Part_5-Model_Ensembles"
    own = "part5"
    imports = ("torch", "torchvision")

    def weights(self, to):
        self.detection = toys.text_detection(to / "text_detection/1/model.onnx")
        self.recognition = toys.text_recognition(to / "text_recognition/1/model.onnx")
        (to / "ensemble_model/1").mkdir(parents=True, exist_ok=True)
        self.differs.append("toy weights")

    def texts(self, data):
        """The outputs of the ensemble for an encoded image, computed step by step."""
        image = own("part5", "detection_preprocessing").middle(np.frombuffer(data, np.uint8))
        scores = toys.run(self.recognition, {"input.1": detected(self.detection, image)})["308"]
        return [own("part5", "recognition_postprocessing").text(row) for row in scores]

    def checks(self, server):
        for format in ("PNG", "JPEG"):
            data = images.signs(format)
            sent = {"input_image": np.frombuffer(data, np.uint8)[None]}
            want = np.array(self.texts(data), np.object_)
            yield Check(f"the {format} has several signs", len(want) > 2, f"{len(want)} signs: {want}")
            for grpc in (False, True):
                got = infer(server, "ensemble_model", sent, grpc=grpc)
                yield equal(f"{format}, {'gRPC' if grpc else 'HTTP'}", got.get("recognized_text"), want)

    def scripts(self, root):
        texts = self.texts((root / "img1.jpg").read_bytes())
        yield Script(root / "client.py", printed=[f"'{t}'" for t in texts])


class Part6(Repository):
    published = GUIDE + "Part_6-building_complex_pipelines"
    own = "part6"
    imports = ("torch", "diffusers", "transformers")
    always = imports  # it has its tensors on a GPU, and its weights from elsewhere

    def weights(self, to):
        toys.text_encoder(to / "text_encoder/1/model.onnx")
        toys.vae(to / "vae/1/model.onnx")
        self.change(to / "vae/config.pbtxt", '"tensorrt_plan"', '"onnxruntime_onnx"', "TensorRT plan replaced by ONNX")
        self.differs.append("toy weights")

    def checks(self, server):
        generated = []
        for prompt in ("Pikachu with a hat", "Pikachu with a hat", "a pigeon"):
            sent = {"prompt": np.array([[prompt]], np.object_)}
            image = infer(server, "pipeline", sent, ["generated_image"])["generated_image"]
            generated.append(image)
            yield Check("the image", image.shape == (1, 512, 512, 3) and image.min() >= 0 < image.max() <= 255, f"{image.shape}")
        yield equal("the same text, the same image", generated[1], generated[0])
        yield Check("another text, another image", not np.array_equal(generated[0], generated[2]), "they are equal")

    def scripts(self, root):
        yield Script(root / "client.py", printed=["Time taken:"], cwd=self.scratch)


class Part7(Repository):
    published = GUIDE + "Part_7-iterative_scheduling"
    own = "part7"
    imports = ("torch", "transformers")
    always = ("transformers",)

    def checks(self, server):
        for model in ("simple-gpt2", "iterative-gpt2"):
            yield from self.streamed(server, model)

    def streamed(self, server, model):
        """Sends two prompts on a stream each, as the client does, and compares the tokens."""
        prompts, tokens = ["Programming in C++ is like", "Programming in Assembly is like"], 12
        step = own("part7", "simple-gpt2").next_token
        responses = [queue.Queue() for _ in prompts]
        clients = [grpc_module.InferenceServerClient(server.grpc) for _ in prompts]
        for c, q, prompt in zip(clients, responses, prompts):
            c.start_stream(lambda result, error, q=q: q.put(error or result))
            text = grpc_module.InferInput("text_input", [1, 1], "BYTES")
            text.set_data_from_numpy(np.array([[prompt]], np.object_))
            c.async_stream_infer(model, [text], enable_empty_final_response=True, parameters={"ignore_eos": True, "max_tokens": tokens})
        for c, q, prompt in zip(clients, responses, prompts):
            ids, got = list(prompt.encode()), []
            for _ in range(tokens):
                ids.append(step(ids))
            final = False
            while not final:
                result = q.get(timeout=LIMIT)
                if isinstance(result, Exception):
                    raise result
                final = result.get_response().parameters["triton_final_response"].bool_param
                text = result.as_numpy("text_output")
                got += [] if text is None else [text.item().decode()]
            yield Check(f"{model}: '{prompt}'", "".join(got) == bytes(ids[-tokens:]).decode(), f"{got}, expected {bytes(ids[-tokens:])}")
            c.stop_stream()
            c.close()

    def scripts(self, root):
        for model in ("simple-gpt2", "iterative-gpt2"):
            # It goes on for ever: it is enough that both bars come to their ends.
            yield Script(root / "client/client.py", ["--model", model, "--max-tokens", "9"], ["9/9"], until=r"(?s)9/9.*9/9|Traceback")


class DataPipelines(Repository):
    published = "Feature_Guide/Data_Pipelines"
    own = "data_pipelines"

    def place(self, to):
        super().place(to)
        if self.root():
            config = to / "ensemble_model/1/config.pbtxt"
            head = (OWN / self.own / "ensemble_model/config.pbtxt").read_text().split("ensemble_scheduling")[0]
            (to / "ensemble_model/config.pbtxt").write_text(head + config.read_text())
            config.unlink()
            self.differs.append("the ensemble's config.pbtxt moved out of folder 1, with the head that the page has")
        (to / "ensemble_model/1").mkdir(exist_ok=True)

    def checks(self, server):
        sent = {
            "string": np.array([["This is a string", "and another"]], np.object_),
            "UINT8_array": np.array([[1, 2, 3]], np.uint8),
            "INT8_array": np.array([[-1, 2, -3]], np.int8),
            "FP32_image": images.photo()[None],
            "bool": np.array([[True, False]]),
        }
        for grpc in (False, True):
            got = infer(server, "ensemble_model", {"ensemble_input_" + k: v for k, v in sent.items()}, grpc=grpc)
            for name, array in sent.items():
                yield equal(f"{name}, {'gRPC' if grpc else 'HTTP'}", got["ensemble_output_" + name], array)

    def scripts(self, root):
        yield Script(root / "client.py", printed=["[b'This is a string']", "[[1 2 3]]", "[[-1  2 -3]]", "[[ True]]"])


class VitEnsemble(Repository):
    published = "HuggingFace"
    models = "ensemble_model_repository"
    own = "vit_ensemble"
    imports = ("transformers", "torch")
    always = ("transformers",)

    @property
    def name(self):
        return f"tutorials/{self.published}/{self.models}"

    def weights(self, to):
        self.vit = toys.vit(to / "vit/1/model.onnx")
        (to / "ensemble_model/1").mkdir(exist_ok=True)
        self.differs.append("toy weights")

    def checks(self, server):
        image = images.photo()[None]
        got = infer(server, "ensemble_model", {"image": image})
        want = toys.run(self.vit, {"pixel_values": own("vit_ensemble", "preprocessing").pixels(image)})
        yield equal("last_hidden_state", got["last_hidden_state"], want["last_hidden_state"], 1e-3)
        yield equal("1519", got["1519"], want["1519"], 1e-3)

    def scripts(self, root):
        yield Script(root / "client.py", ["--model_name", "ensemble_model"], ["(1, 197, 768)"])


class VitPython(VitEnsemble):
    models = "python_model_repository"
    own = "vit_python"

    def weights(self, to):
        self.differs.append("toy weights")

    def checks(self, server):
        image = images.photo()[None]
        got = infer(server, "python_vit", {"image": image}, ["last_hidden_state"])
        yield equal("last_hidden_state", got["last_hidden_state"], own("vit_python", "python_vit").states(image), 1e-3)

    def scripts(self, root):
        yield Script(root / "client.py", ["--model_name", "python_vit"], ["(1, 196, 768)"])


class Identity(Repository):
    """The model of every type that the in-process API is shown with."""

    published = "Triton_Inference_Server_Python_API/identity-models"
    models = "."
    own = "identity"

    def checks(self, server):
        text, half, long = np.array([["a", "b"]], np.object_), np.array([[1.5, -2]], np.float16), np.array([[1 << 40]], np.int64)
        for name, array in (("string", text), ("fp16", half), ("int64", long)):
            got = infer(server, "identity", {name + "_input": array}, grpc=True)
            yield equal(name, got[name + "_output"], array)


class Kafka(Repository):
    published = "Triton_Inference_Server_Python_API/examples/kafka-io"
    models = "models"
    own = "kafka"
    imports = ("torch", "transformers")
    always = ("transformers",)

    def checks(self, server):
        texts = ["one", "two and three"]
        got = infer(server, "tokenizer", {"TEXT": np.array(texts, np.object_)})
        for name, array in own("kafka", "tokenizer").tokens([t.encode() for t in texts]).items():
            yield equal(name, got[name], array)


class Transformers(Repository):
    published = "Quick_Deploy/HuggingFaceTransformers"
    models = "."
    own = "transformers"
    imports = ("torch", "transformers")
    always = ("transformers",)
    flags = ()

    def place(self, to):
        super().place(to)
        for path in to.iterdir():
            if not path.is_dir():
                path.unlink()  # the page and the Dockerfile

    def checks(self, server):
        for model in ("falcon7b", "llama7b", "persimmon8b"):
            got = infer(server, model, {"text_input": np.array(["What is the meaning of life?"], np.object_)})
            text = got["text_output"].ravel()[0].decode()
            yield Check(model, text.startswith("What is the meaning of life?") and len(text) == 28 + 15, json.dumps(text))


LIST = (
    Part1, Part2, Part4OpenVINO, Part4CUDA, Part4TensorRT, Part5, Part6, Part7, DataPipelines, VitEnsemble, VitPython, Transformers, Identity, Kafka,
)  # fmt: skip
