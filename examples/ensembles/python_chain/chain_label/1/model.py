"""Turns scores into probabilities and the name of the likeliest."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.labels = np.array(config["parameters"]["labels"]["string_value"].split(","), dtype=np.object_)

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        labels = self.labels[scores.argmax(axis=1)].reshape(-1, 1)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("LABEL", labels), pb_utils.Tensor("PROBABILITIES", odds / odds.sum(axis=1, keepdims=True))])
