"""Answers each element of an input by itself, after its delay, from a thread."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.threads = []

    def execute(self, requests):
        for r in requests:
            values, delays, wait = (pb_utils.get_input_tensor_by_name(r, n).as_numpy() for n in ("IN", "DELAY", "WAIT"))
            thread = threading.Thread(target=self.respond, args=(r.get_response_sender(), values, delays), daemon=True)
            self.threads.append(thread)
            thread.start()
            time.sleep(wait[0] / 1000)

    def respond(self, sender, values, delays):
        for i, (number, delay) in enumerate(zip(values, delays)):
            time.sleep(delay / 1000)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("IDX", np.array([i], np.uint32)), pb_utils.Tensor("OUT", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        for thread in self.threads:
            thread.join()
