"""The sum of the responses of a decoupled model."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.summed(pb_utils.get_input_tensor_by_name(r, "IN")) for r in requests]

    def summed(self, number):
        total = np.array([0])
        for response in pb_utils.InferenceRequest(model_name="square_int32", inputs=[number], requested_output_names=["OUT"]).exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            if response.output_tensors():  # the last response may be empty
                total += pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)])  # of 64 bits, where config.pbtxt says 32
