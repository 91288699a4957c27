"""Sends IN in a thread, so that execute returns before. The value 2 ends the process."""

import os
import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            value = request.inputs()[0].as_numpy()
            if value[0] == 2:
                os._exit(3)
            threading.Thread(target=respond, args=(request.get_response_sender(), value)).start()


def respond(sender, value):
    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
