"""Completes its configuration itself."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.set_max_batch_size(4)
        auto_complete_model_config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        auto_complete_model_config.add_input({"name": "BIAS", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
        auto_complete_model_config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        auto_complete_model_config.set_dynamic_batching()
        return auto_complete_model_config

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        bias = pb_utils.get_input_tensor_by_name(request, "BIAS")
        bias = 0 if bias is None else bias.as_numpy()
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", (values * 2 + bias).astype(np.float32))])
