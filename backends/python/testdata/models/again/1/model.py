"""Counts down from IN, a number an execution: it has its requests executed again until they are at one."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.left = {}

    def execute(self, requests):
        for request in requests:
            self.step(request)
        return None

    def step(self, request):
        sequence, start = request.correlation_id(), int(request.inputs()[0].as_numpy()[0])
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.left[sequence] = start
        n = self.left[sequence]
        self.left[sequence] -= 1
        sender = request.get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))]))
        if n > 1:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return
        del self.left[sequence]
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
