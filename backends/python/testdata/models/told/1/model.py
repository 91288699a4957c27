"""Tells what it knows of a request and of itself, as JSON."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = dict(args)
        self.config = json.loads(self.args.pop("model_config"))

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        told = {
            "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
            "timeout": request.timeout(), "parameters": json.loads(request.parameters()),
            "outputs": sorted(request.requested_output_names()), "cancelled": request.is_cancelled(),
            "trace": request.trace().get_context(), "folder": pb_utils.get_model_dir(), "args": self.args,
            "inputs": {t.name(): [t.triton_dtype(), t.shape(), t.is_cpu()] for t in request.inputs()},
            "greeting": self.config["parameters"]["greeting"]["string_value"],
            "input": pb_utils.get_input_config_by_name(self.config, "MORE"),
            "output": pb_utils.get_output_config_by_name(self.config, "OUT"),
        }
        out = pb_utils.Tensor("OUT", np.array([json.dumps(told)], dtype=np.object_))
        return pb_utils.InferenceResponse([out], parameters={"text": "t", "number": 7, "yes": True})
