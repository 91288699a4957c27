"""Sums the responses of a decoupled model."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        take = json.loads(request.parameters()).get("take", 1 << 30)
        total = count = 0
        stream = other(request).exec(decoupled=True)
        for response in stream:
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
            if not response.output_tensors():
                continue
            total += int(pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()[0])
            count += 1
            if count == take:
                stream.cancel()
                break
        if json.loads(request.parameters()).get("plain"):
            return other(request).exec()
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("SUM", np.array([total], np.int32)), pb_utils.Tensor("COUNT", np.array([count], np.int32))])


def other(request):
    host = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)  # NumPy reads the outputs
    return pb_utils.InferenceRequest(model_name="repeat", requested_output_names=["OUT"], inputs=request.inputs(), preferred_memory=host)
