"""Asks another model for its outputs."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.calls = json.loads(args["model_config"])["parameters"]["CALLS"]["string_value"]

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        name = json.loads(request.parameters()).get("model", self.calls)
        other = pb_utils.InferenceRequest(
            model_name=name, requested_output_names=["OUTPUT0", "OUTPUT1"], inputs=request.inputs(),
            request_id="of " + request.request_id(), correlation_id=request.correlation_id(), flags=request.flags(),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0), trace=request.trace())
        response = other.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError("asked in vain: " + response.error().message(), response.error().code()))
        return pb_utils.InferenceResponse(response.output_tensors())
