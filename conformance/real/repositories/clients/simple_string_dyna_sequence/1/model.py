"""Adds up each sequence, and at its end the number that its id is, as a test backend of Triton's does."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.added({t.name(): t.as_numpy().flat[0] for t in r.inputs()}) for r in requests]

    def added(self, values):
        name = values["CORRID"].decode()
        total = int(values["INPUT"]) + (0 if values["START"] else self.sums.get(name, 0))
        self.sums[name] = total
        if values["END"]:
            total += int(name)
            del self.sums[name]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[total]], np.int32))])
