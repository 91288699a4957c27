"""OUTPUT0 = INPUT0 + 1, a request at a time."""

import numpy as np
import triton_python_backend_utils as pb_utils

OTHER = np.float32(1)


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x + OTHER)])
