"""A model that hangs where its parameter "where" says, with the interpreter's lock if "lock" is set."""

import ctypes
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def hang(lock):
    if lock:
        ctypes.PyDLL(None).sleep(3600)  # a function of C that is called with the lock
    time.sleep(3600)


class TritonPythonModel:
    def initialize(self, args):
        params = {k: v["string_value"] for k, v in json.loads(args["model_config"])["parameters"].items()}
        self.lock = params.get("lock") == "yes"
        self.where = params.get("where")
        if self.where == "initialize":
            hang(self.lock)

    def execute(self, requests):
        if self.where == "value":
            return [self.respond(pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()) for r in requests]
        with open(os.path.join(os.environ["STUCK_FOLDER"], str(os.getpid())), "w"):
            pass  # the test waits for it
        hang(self.lock)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))])]

    def respond(self, values):
        if values[0] != 0:
            print("hangs now", flush=True)  # the test waits for it
            hang(self.lock)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])
