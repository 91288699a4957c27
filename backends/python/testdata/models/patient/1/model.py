"""With a negative IN waits until its request is cancelled; otherwise returns the number of cancelled requests."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.cancelled = 0

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        if request.inputs()[0].as_numpy()[0] < 0:
            while not request.is_cancelled():
                time.sleep(0.001)
            self.cancelled += 1
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.cancelled], np.int32))])
