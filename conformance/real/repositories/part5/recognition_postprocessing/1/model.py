"""The text of every row of scores. The response has a rank of one: a text for each row, and no second dimension."""

import numpy as np
import triton_python_backend_utils as pb_utils

LETTERS = "-0123456789abcdefghijklmnopqrstuvwxyz"


def text(scores):
    """The best letters, without repetitions and without the blank."""
    best = "".join(LETTERS[i] for i in np.argmax(scores, axis=1))
    return "".join(c for i, c in enumerate(best) if c != "-" and (i == 0 or c != best[i - 1]))


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            rows = pb_utils.get_input_tensor_by_name(r, "recognition_postprocessing_input").as_numpy()
            texts = np.array([text(row) for row in rows]).astype(np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("recognition_postprocessing_output", texts)]))
        return responses
