"""Runs model.onnx, which lies beside this file, in ONNX Runtime.

The requests that Triton hands over together are one run: their rows are put
together and the answers taken apart again. Where the configuration allows ragged
batches, shorter rows are filled up with zeros and the answers cut back.
"""

import json
import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


def fill(array, length):
    """Rows of the given length; zeros are put behind."""
    short = length - array.shape[1]
    return np.pad(array, ((0, 0), (0, short))) if short else array


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = int(config["parameters"]["intra_op_thread_count"]["string_value"])
        settings.inter_op_num_threads = 1
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        settings.log_severity_level = 3
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        self.inputs = [i["name"] for i in config["input"]]
        self.outputs = [o["name"] for o in config["output"]]
        self.ragged = any(i.get("allow_ragged_batch") for i in config["input"])

    def execute(self, requests):
        feeds = [[pb_utils.get_input_tensor_by_name(r, n).as_numpy() for n in self.inputs] for r in requests]
        if len(feeds) == 1:
            return [self.response(self.run(feeds[0]))]
        rows, lengths = [len(f[0]) for f in feeds], [f[0].shape[1] for f in feeds]
        if self.ragged:
            longest = max(lengths)
            feeds = [[fill(a, longest) for a in f] for f in feeds]
        answers = self.run([np.concatenate(arrays) for arrays in zip(*feeds)])
        responses, first = [], 0
        for count, length in zip(rows, lengths):
            own = [a[first:first + count] for a in answers]
            if self.ragged:
                own = [np.ascontiguousarray(a[:, :length]) for a in own]
            responses.append(self.response(own))
            first += count
        return responses

    def run(self, arrays):
        return self.session.run(self.outputs, dict(zip(self.inputs, arrays)))

    def response(self, arrays):
        return pb_utils.InferenceResponse([pb_utils.Tensor(n, a) for n, a in zip(self.outputs, arrays)])
