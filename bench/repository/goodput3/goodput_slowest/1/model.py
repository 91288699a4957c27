"""Copies INPUT0 after a delay for the whole batch, as a device would that executes it."""

import json
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.delay = float(json.loads(args["model_config"])["parameters"]["delay_ms"]["string_value"]) / 1000

    def execute(self, requests):
        time.sleep(self.delay)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())])
            for r in requests
        ]
