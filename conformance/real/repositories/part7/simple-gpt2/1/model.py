"""A language model of one rule, which sends every token of a batch of requests before it takes the next batch."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def next_token(ids):
    return 97 + (sum(ids) * 31 + len(ids)) % 26


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_dynamic_batching()
        config.set_max_batch_size(8)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        left = []
        for r in requests:
            text = pb_utils.get_input_tensor_by_name(r, "text_input").as_numpy().item()
            left.append((r.get_response_sender(), list(text), json.loads(r.parameters())["max_tokens"]))
        while left:
            left = [x for x in (self.step(*x) for x in left) if x]

    def step(self, sender, ids, more):
        """Sends one token; returns what is left to do, or nothing."""
        ids = ids + [next_token(ids)]
        response = pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([chr(ids[-1])], np.object_))])
        sender.send(response, flags=0 if more > 1 else pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return (sender, ids, more - 1) if more > 1 else None
