"""Sends a number as many times as it says, from a thread, when execute has returned."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for r in requests:
            number = int(pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()[0])
            thread = threading.Thread(target=self.respond, args=(r.get_response_sender(), number), daemon=True)
            self.threads.append(thread)
            thread.start()

    def respond(self, sender, number):
        for _ in range(number):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
