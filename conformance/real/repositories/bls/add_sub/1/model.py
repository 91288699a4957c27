"""The sum and the difference."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            a, b = (pb_utils.get_input_tensor_by_name(r, f"INPUT{i}").as_numpy() for i in range(2))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]))
        return responses
