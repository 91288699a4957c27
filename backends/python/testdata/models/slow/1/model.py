"""Is ready once it has executed a request, and no more after the second one."""

import threading

import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.first, self.count = threading.Event(), 0

    def is_ready(self):
        self.first.wait()
        return self.count < 2

    def execute(self, requests):
        self.count += len(requests)
        self.first.set()
        return [pb.InferenceResponse([pb.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
