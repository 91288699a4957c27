"""Sends an error between two responses."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(response(1))
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("stumbled", pb_utils.TritonError.NOT_FOUND)))
            sender.send(response(2), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def response(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.float32))])
