"""Turns texts around, letter by letter; what is no UTF-8, byte by byte."""

import numpy as np
import triton_python_backend_utils as pb_utils


def turned(raw):
    try:
        return raw.decode()[::-1].encode()
    except UnicodeDecodeError:
        return raw[::-1]


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            found = np.empty(texts.shape, dtype=np.object_)
            found.reshape(-1)[:] = [turned(t) for t in texts.reshape(-1)]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("REVERSED", found)]))
        return responses
