"""The examples of Triton's DALI backend that run on a CPU, and why the others are not served."""

import shutil

import numpy as np

from repository import Repository, equal, infer
from serving import ROOT


class Identity(Repository):
    """A pipeline that returns its input, defined in dali.py."""

    source = "dali_backend"
    published = "docs/examples/identity"
    own = "dali_identity"

    def checks(self, server):
        rows = np.arange(60, dtype=np.uint8).reshape(4, 15)
        for grpc in (False, True):
            got = infer(server, "dali_identity", {"DALI_INPUT_0": rows}, grpc=grpc)
            yield equal(f"identity, {'gRPC' if grpc else 'HTTP'}", got["DALI_OUTPUT_0"], rows)


class MultiInput(Repository):
    """A serialized pipeline with three inputs, one of another type."""

    source = "dali_backend"
    published = "docs/examples/multi_input"
    own = "dali_multi_input"

    def weights(self, to):
        version = to / "dali_multi_input/1"
        version.mkdir(exist_ok=True)
        shutil.copy(ROOT / "backends/dali/testdata/multi_input.dali", version / "model.dali")
        self.differs.append("a pipeline of our own, as the example's script makes it")

    def checks(self, server):
        x = np.arange(6, dtype=np.uint8).reshape(2, 3)
        scale = np.array([[1000], [2000]], np.int32)
        for grpc in (False, True):
            got = infer(server, "dali_multi_input", {"DALI_X_INPUT": x, "DALI_Y_INPUT": x, "DALI_SCALAR": scale}, grpc=grpc)
            what = f"multi_input, {'gRPC' if grpc else 'HTTP'}"
            yield equal(what, got["DALI_unchanged"], x)
            yield equal(what, got["DALI_changed"], x * scale)


def without(name, why):
    """A class of an example that is not served."""
    return type(name, (Repository,), {"source": "dali_backend", "published": f"docs/examples/{name}", "page": why})


LIST = (
    Identity, MultiInput,
    without("resnet50_trt", "its pipeline decodes on a GPU, for a plan of TensorRT"),
    without("segmentation", "its pipeline decodes on a GPU"),
    without("perf_analyzer", "its pipeline decodes on a GPU"),
    without("dali_plugin", "it compiles an operator for a GPU"),
    without("video_decode_remap", "it decodes videos on a GPU, in many responses"),
)  # fmt: skip
