"""Softmax over the scores and the five best with their names."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils

BEST = 5


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "labels.txt")
        with open(path, encoding="utf-8") as lines:
            self.labels = np.array([line.strip().encode() for line in lines], np.object_)

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        scores = pb_utils.get_input_tensor_by_name(request, "scores").as_numpy()
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        some = np.argpartition(-scores, BEST, axis=1)[:, :BEST]
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1)
        best = np.take_along_axis(some, order, axis=1)
        values = np.take_along_axis(odds, best, axis=1) / odds.sum(axis=1, keepdims=True)
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("values", values), pb_utils.Tensor("indices", best.astype(np.int32)),
            pb_utils.Tensor("labels", self.labels[best])])
