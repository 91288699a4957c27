"""The sum of everything in the responses of a decoupled model to two requests at once."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.summed(pb_utils.get_input_tensor_by_name(r, "IN")) for r in requests]

    async def summed(self, number):
        calls = [
            pb_utils.InferenceRequest(model_name="square_int32", inputs=[number], requested_output_names=["OUT"]).async_exec(decoupled=True)
            for _ in range(2)
        ]  # fmt: skip
        total = np.array([0])
        for responses in await asyncio.gather(*calls):
            for response in responses:
                if response.has_error():
                    raise pb_utils.TritonModelException(response.error().message())
                if response.output_tensors():
                    total += pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)])
