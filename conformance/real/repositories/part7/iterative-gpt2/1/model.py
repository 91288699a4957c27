"""A language model of one rule, which has each request scheduled again for every further token."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def next_token(ids):
    return 97 + (sum(ids) * 31 + len(ids)) % 26


def scalar(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(8)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        self.texts = {}

    def execute(self, requests):
        for r in requests:
            name = scalar(r, "correlation_id")
            if scalar(r, "start"):
                self.texts[name] = (list(scalar(r, "text_input")), json.loads(r.parameters())["max_tokens"])
            ids, more = self.texts.pop(name)
            ids, last = ids + [next_token(ids)], more == 1
            if not last:
                self.texts[name] = (ids, more - 1)
            r.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL if last else pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            response = pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([chr(ids[-1])], np.object_))])
            r.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)
