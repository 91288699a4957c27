"""Responds COUNT times. With WHAT "ignore" or "obey" it waits after the first response until it is cancelled, and sends the others
or no more."""

import time

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            self.respond(r)

    def respond(self, request):
        count, what = (t.as_numpy()[0] for t in request.inputs())
        sender = request.get_response_sender()
        for i in range(count):
            sender.send(pb.InferenceResponse([pb.Tensor("OUT", np.array([i], np.int32))]))
            while i == 0 and what and not sender.is_cancelled():
                time.sleep(0.001)
            if what == b"obey":
                break
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
