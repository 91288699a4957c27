"""Asks another model twice at once, and gives the first output of one and the second of the other."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return list(await asyncio.gather(*[self.respond(r) for r in requests]))

    async def respond(self, request):
        names = ["OUTPUT0", "OUTPUT1"]
        others = [pb_utils.InferenceRequest(model_name="add_sub", requested_output_names=[n], inputs=request.inputs()) for n in names]
        responses = await asyncio.gather(*[o.async_exec() for o in others])
        for r in responses:
            if r.has_error():
                raise pb_utils.TritonModelException(r.error().message())
        return pb_utils.InferenceResponse(
            [pb_utils.get_output_tensor_by_name(r, n) for r, n in zip(responses, names)])
