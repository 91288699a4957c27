"""Calls the model gate and awaits its responses. A negative IN raises after the last response."""

import triton_python_backend_utils as pb


class TritonPythonModel:
    async def execute(self, requests):
        for r in requests:
            await self.respond(r)

    async def respond(self, request):
        sender = request.get_response_sender()
        value = request.inputs()[0]
        if value.as_numpy()[0] < 0:
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            raise ValueError("raised after the last response")
        call = pb.InferenceRequest(model_name="gate", inputs=[pb.Tensor("IN", value.as_numpy())], requested_output_names=["OUT"])
        for response in await call.async_exec(decoupled=True):
            sender.send(response)
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
