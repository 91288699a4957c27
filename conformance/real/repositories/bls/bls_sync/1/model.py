"""Sends a request on to the model that it names."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.passed(r) for r in requests]

    def passed(self, r):
        inputs = {t.name(): t for t in r.inputs()}
        request = pb_utils.InferenceRequest(
            model_name=inputs["MODEL_NAME"].as_numpy()[0], requested_output_names=["OUTPUT0", "OUTPUT1"], inputs=[inputs["INPUT0"], inputs["INPUT1"]]
        )
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
