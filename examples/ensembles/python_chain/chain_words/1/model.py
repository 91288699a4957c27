"""Turns texts into the ids of their words."""

import os
import re

import numpy as np
import triton_python_backend_utils as pb_utils

LENGTH = 16  # words of a text that count


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "IDS", "data_type": "TYPE_INT64", "dims": [LENGTH]})
        config.add_output({"name": "MASK", "data_type": "TYPE_FP32", "dims": [LENGTH]})
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "words.txt"), encoding="utf-8") as lines:
            self.ids = {word.strip(): i for i, word in enumerate(lines)}

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[:, 0]
        ids, mask = np.zeros((len(texts), LENGTH), np.int64), np.zeros((len(texts), LENGTH), np.float32)
        for row, raw in enumerate(texts):
            words = re.findall(r"\w+", raw.decode("utf-8", "replace").lower())[:LENGTH]
            ids[row, :len(words)] = [self.ids.get(w, 0) for w in words]
            mask[row, :len(words)] = 1
        return pb_utils.InferenceResponse([pb_utils.Tensor("IDS", ids), pb_utils.Tensor("MASK", mask)])
