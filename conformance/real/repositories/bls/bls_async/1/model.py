"""Sends a request on to two models at once, and takes one output of each."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.passed(r) for r in requests]

    async def passed(self, r):
        inputs = [pb_utils.get_input_tensor_by_name(r, f"INPUT{i}") for i in range(2)]
        calls = [
            pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUTPUT0", "OUTPUT1"], inputs=inputs).async_exec()
            for name in ("pytorch", "add_sub")
        ]  # fmt: skip
        found = await asyncio.gather(*calls)
        for response in found:
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
        outputs = [pb_utils.get_output_tensor_by_name(x, f"OUTPUT{i}") for i, x in enumerate(found)]
        return pb_utils.InferenceResponse(output_tensors=outputs)
