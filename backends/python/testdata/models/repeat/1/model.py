"""Answers every element of IN by a response of its own, from a thread."""

import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        if not pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"])):
            raise pb_utils.TritonModelException("expected a decoupled model")

    def execute(self, requests):
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            threading.Thread(target=respond, args=(request.get_response_sender(), values)).start()
        return None


def respond(sender, values):
    for i, value in enumerate(values):
        if value < 0:
            error = pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)
            sender.send(pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        outputs = [pb_utils.Tensor("OUT", np.array([value], np.int32)), pb_utils.Tensor("INDEX", np.array([i], np.uint32))]
        sender.send(pb_utils.InferenceResponse(outputs, parameters={"left": len(values) - i - 1}))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
