"""Returns whatever inputs it is sent; it declares one of each type, and none is needed."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for kind in pb_utils.TRITON_STRING_TO_NUMPY:
            name = kind.split("_")[1].lower()
            config.add_input({"name": name + "_input", "data_type": kind, "dims": [-1, -1], "optional": True})
            config.add_output({"name": name + "_output", "data_type": kind, "dims": [-1, -1]})
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": False})
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(t.name().replace("input", "output"), t.as_numpy()) for t in r.inputs()])
            for r in requests
        ]  # fmt: skip
