"""The two-input model, in numpy."""

import numpy as np
import triton_python_backend_utils as pb_utils


def compute(numbers, indices, table):
    """Returns both outputs; an index that the table lacks is an IndexError."""
    return numbers * np.float32(0.5) + np.float32(2), table[indices]


class TritonPythonModel:
    def initialize(self, args):
        self.table = np.random.default_rng(2026).standard_normal((100, 10)).astype(np.float32)

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        numbers = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        indices = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
        try:
            scaled, rows = compute(numbers, indices, self.table)
        except IndexError as e:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e), pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", scaled), pb_utils.Tensor("OUTPUT1", rows)])
