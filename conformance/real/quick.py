"""The repositories of Triton's tutorials: quick deployments, a model of each framework."""

import dataclasses
import shutil

import numpy as np

import formats
import images
import toys
from repository import OWN, Repository, Script, equal, infer


def pixels(channels_first=True):
    """A batch of one normalized image."""
    image = images.photo()[8:232, 48:272] / np.float32(127.5) - 1
    return np.ascontiguousarray(image.transpose(2, 0, 1) if channels_first else image)[None]


class Quick(Repository):
    """One classifier, and a client that wants an image called img1.jpg beside it."""

    imports = ("torch", "torchvision")
    models = ""
    model = "resnet50"
    ports = ()  # of input and output

    def place(self, to):
        root, folder = self.root(), to / self.model
        folder.mkdir(parents=True)
        if root and (root / "config.pbtxt").exists():
            shutil.copy(root / "config.pbtxt", folder)
        elif (OWN / self.own / self.model).exists():
            shutil.copy(OWN / self.own / self.model / "config.pbtxt", folder)
            self.differs.append("config.pbtxt of our own, with the values of the page")

    def scripts(self, root):
        (self.scratch / "img1.jpg").write_bytes(images.signs("JPEG"))
        yield Script(root / "client.py", printed=[":"], cwd=self.scratch)


class QuickONNX(Quick):
    published = "Quick_Deploy/ONNX"
    model = "densenet_onnx"

    def weights(self, to):
        self.toy = toys.classifier(to / self.model / "1/model.onnx", "data_0", [1, 3, 224, 224], "fc6_1", [1, 1000, 1, 1])
        self.differs.append("toy weights")

    def checks(self, server):
        got = infer(server, self.model, {"data_0": pixels()})
        yield equal("the scores", got["fc6_1"], toys.run(self.toy, {"data_0": pixels()})["fc6_1"], 1e-6)


class QuickOpenVINO(QuickONNX):
    published = "Quick_Deploy/OpenVINO"
    own = "quick_openvino_onnx"

    @property
    def name(self):
        return f"tutorials/{self.published} ({self.own.removeprefix('quick_openvino_')})"

    def scripts(self, root):
        for script in super().scripts(root):
            yield dataclasses.replace(script, path=root.parent / "ONNX" / script.path.name)


class QuickOpenVINOPyTorch(QuickOpenVINO):
    own, model = "quick_openvino_pytorch", "resnet50"

    def weights(self, to):
        formats.openvino(to / self.model / "1/model.xml", "x", "x.45")
        self.differs.append("toy weights")

    def checks(self, server):
        got = infer(server, self.model, {"x": pixels()[0]}, ["x.45"])
        yield equal("the scores", got["x.45"], formats.scores(pixels().mean(axis=(2, 3))).reshape(1, 1000, 1, 1), 1e-4)

    def scripts(self, root):
        return ()  # the page has the client edited


class QuickOpenVINOTensorFlow(QuickOpenVINOPyTorch):
    own = "quick_openvino_tensorflow"

    def weights(self, to):
        formats.openvino(to / self.model / "1/model.xml", "input_1", "predictions", channels_first=False)
        self.differs.append("toy weights")

    def checks(self, server):
        image = pixels(False)
        got = infer(server, self.model, {"input_1": image}, ["predictions"])
        yield equal("the scores", got["predictions"], formats.scores(image.mean(axis=(1, 2))), 1e-4)


class QuickPyTorch(Quick):
    published = "Quick_Deploy/PyTorch"
    own = "quick_pytorch"

    def weights(self, to):
        formats.torchscript(to / self.model / "1/model.pt")
        self.differs.append("toy weights")

    def checks(self, server):
        got = infer(server, self.model, {"input__0": pixels()[0]}, ["output__0"])
        yield equal("the scores", got["output__0"], formats.scores(pixels().mean(axis=(2, 3))).reshape(1, 1000, 1, 1), 1e-4)


class QuickTensorFlow(Quick):
    published = "Quick_Deploy/TensorFlow"
    own = "quick_tensorflow"
    imports = ("tensorflow",)

    def weights(self, to):
        formats.savedmodel(to / self.model / "1/model.savedmodel", "input_1", "predictions")
        self.differs.append("toy weights")

    def checks(self, server):
        image = np.concatenate([pixels(False), -pixels(False)])
        got = infer(server, self.model, {"input_1": image}, ["predictions"])
        yield equal("the scores", got["predictions"], formats.scores(image.mean(axis=(1, 2))), 1e-4)


LIST = (QuickONNX, QuickPyTorch, QuickTensorFlow, QuickOpenVINO, QuickOpenVINOPyTorch, QuickOpenVINOTensorFlow)
