"""Continues each text by as many letters as the parameter max_output_length says."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.length = int(parameters["max_output_length"]["string_value"])

    def continued(self, text):
        ids = list(text)
        for _ in range(self.length):
            ids.append(97 + (sum(ids) * 31 + len(ids)) % 26)
        return bytes(ids).decode()

    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(r, "text_input").as_numpy()[0] for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([self.continued(t)], np.object_))]) for t in texts]
