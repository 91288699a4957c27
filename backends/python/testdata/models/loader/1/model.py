"""Loads and unloads another model."""

import numpy as np
import triton_python_backend_utils as pb_utils

CONFIG = """{"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
             "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}]}"""


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        do = request.inputs()[0].as_numpy()[0].decode()
        if do == "load":
            pb_utils.load_model(model_name="loaded", config=CONFIG, files={"file:1/keep": b"x"})
        elif do == "unload":
            pb_utils.unload_model(model_name="loaded", unload_dependents=True)
        elif do == "absent":
            pb_utils.load_model(model_name="no such model")
        ready = pb_utils.is_model_ready(model_name="loaded")
        return pb_utils.InferenceResponse([pb_utils.Tensor("READY", np.array([ready]))])
