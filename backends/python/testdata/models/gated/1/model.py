"""A model that is initialized when another process opens the pipe "gate" of the folder that its parameter "folder" names."""

import json
import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        with open(os.path.join(folder, "starts", str(os.getpid())), "w"):
            pass  # the test waits for it
        with open(os.path.join(folder, "gate")) as gate:
            gate.read()

    def execute(self, requests):
        if requests[0].inputs()[0].as_numpy()[0]:
            os._exit(3)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
