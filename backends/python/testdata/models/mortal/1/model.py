"""Raises when IN is 1, and ends its process when it is 2."""

import os
import sys

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r.inputs()[0].as_numpy()) for r in requests]

    def respond(self, value):
        if value[0] == 1:
            raise ValueError("no such luck")
        if value[0] == 2:
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        return pb.InferenceResponse([pb.Tensor("OUT", value)])
