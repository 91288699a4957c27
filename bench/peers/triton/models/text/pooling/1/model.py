"""Mean over the tokens that the mask keeps, then length 1."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        hidden = pb_utils.get_input_tensor_by_name(request, "last_hidden_state").as_numpy()
        mask = pb_utils.get_input_tensor_by_name(request, "attention_mask").as_numpy().astype(np.float32)
        vectors = (mask[:, None, :] @ hidden)[:, 0] / mask.sum(axis=1, keepdims=True)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return pb_utils.InferenceResponse([pb_utils.Tensor("embedding", vectors)])
