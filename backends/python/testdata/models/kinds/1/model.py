"""A model whose input says what it does."""

import os
import sys
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = None
        self.calls = 0

    def execute(self, requests):
        self.calls += 1
        answers = [self.one(r) for r in requests]
        if any(a == "short" for a in answers):
            return []
        return answers

    def one(self, request):
        a = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        kind, answer = int(a.reshape(-1)[0]), np.array([[self.calls]], np.float32)
        name = "OUT"
        if kind == 1:
            raise ValueError("no such luck")
        if kind == 2:
            print("last words", file=sys.stderr)
            os._exit(3)
        if kind == 3:
            name = "OTHER"
        if kind == 4:
            answer = answer.astype(np.int64)
        if kind == 5:
            answer = answer.reshape(-1)
        if kind == 6:
            return "short"
        if kind == 7:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("refused", pb_utils.TritonError.INVALID_ARG))
        if kind == 8:
            answer = a.reshape(1, -1)
        if kind == 9:
            before, self.kept = self.kept, a
            answer = before.reshape(1, -1) if before is not None else answer
        if kind == 10:
            time.sleep(60)
        if kind == 11:
            answer = np.ones((1, 500000), np.float32)
        if kind == 12:
            print("hello\nfrom the model")
        if kind == 14:
            sender = request.get_response_sender()
            response = pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(name, answer)])
            threading.Timer(0, sender.send, (response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)).start()
            return None
        if kind == 13:
            print("the text of another client", file=sys.stderr)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(name, answer)])
