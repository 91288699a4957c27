"""Texts become ids, masks and types: Hugging Face's tokenizers on the same tokenizer.json as ours."""

import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "tokenizer.json")
        self.lengths = int(json.loads(args["model_config"])["parameters"]["lengths"]["string_value"])
        self.tokenizer = Tokenizer.from_file(path)

    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(r, "TEXT").as_numpy()[:, 0] for r in requests]
        every = self.tokenizer.encode_batch_fast([t.decode("utf-8", "replace") for rows in texts for t in rows])
        responses, first = [], 0
        for rows in texts:
            responses.append(self.response(every[first:first + len(rows)]))
            first += len(rows)
        return responses

    def response(self, encoded):
        """One request's rows, as long as its longest or a little longer."""
        longest = -(-max(len(e.ids) for e in encoded) // self.lengths) * self.lengths
        ids, mask, types = (np.zeros((len(encoded), longest), np.int64) for _ in range(3))
        for row, e in enumerate(encoded):
            n = len(e.ids)
            ids[row, :n], mask[row, :n], types[row, :n] = e.ids, e.attention_mask, e.type_ids
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("attention_mask", mask), pb_utils.Tensor("token_type_ids", types)])
