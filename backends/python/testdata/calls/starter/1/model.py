"""Loads models while it is itself being loaded. Then does what CASE says with its response, and always raises or returns another."""

import numpy as np
import triton_python_backend_utils as pb


def response(text):
    return pb.InferenceResponse([pb.Tensor("OUT", np.array([text], np.object_))])


class TritonPythonModel:
    def initialize(self, args):
        pb.load_model("plain")
        pb.load_model("two")
        pb.unload_model("two")
        if not pb.is_model_ready("plain") or pb.is_model_ready("two"):
            raise pb.TritonModelException("what was loaded and unloaded is not")

    def execute(self, requests):
        (request,) = requests
        what = request.inputs()[0].as_numpy()[0].decode()
        if what == "context":
            return [response(str(request.trace().get_context()))]
        sender = request.get_response_sender()
        sender.send(response("sent"), pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        if what == "raise":
            raise ValueError("raised after a response was sent")
        return [response("returned")]
