"""Counts the words of texts: put your own code in its place."""

import numpy as np
import triton_python_backend_utils as pb_utils

LONGEST = 8  # words whose lengths are told


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        """Says what the model takes and gives, where config.pbtxt does not."""
        config.set_max_batch_size(32)
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "COUNT", "data_type": "TYPE_INT64", "dims": [1]})
        config.add_output({"name": "LENGTHS", "data_type": "TYPE_FP32", "dims": [LONGEST]})
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        """Runs once for each instance: load weights here. args["model_config"] is the configuration, as JSON."""
        self.name = args["model_name"]

    def execute(self, requests):
        """Returns a response for each request; every request has rows of its own."""
        return [self.respond(r) for r in requests]

    def respond(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()  # bytes, [rows, 1]
        words = [text.decode("utf-8", "replace").split() for text in texts[:, 0]]
        count = np.array([[len(w)] for w in words], np.int64)
        lengths = np.zeros((len(words), LONGEST), np.float32)
        for row, found in zip(lengths, words):
            row[:len(found)] = [len(w) for w in found[:LONGEST]]
        return pb_utils.InferenceResponse([pb_utils.Tensor("COUNT", count), pb_utils.Tensor("LENGTHS", lengths)])

    def finalize(self):
        """Runs when the model is unloaded."""
