"""The sum and the difference, of a model that has no config.pbtxt."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        known = config.as_dict()
        for kind, add in (("input", config.add_input), ("output", config.add_output)):
            names = [port["name"] for port in known[kind]]
            for name in (f"{kind.upper()}{i}" for i in range(2)):
                if name not in names:
                    add({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        responses = []
        for r in requests:
            a, b = (pb_utils.get_input_tensor_by_name(r, f"INPUT{i}").as_numpy() for i in range(2))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]))
        return responses
