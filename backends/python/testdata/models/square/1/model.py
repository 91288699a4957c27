"""Answers n by n responses, of which every other waits a turn of the loop; its sender is dropped, which ends the request."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*[respond(r.get_response_sender(), r.inputs()[0].as_numpy()[0]) for r in requests])


async def respond(sender, n):
    if n < 0:
        raise ValueError("n is %d, expected none or more" % n)
    for _ in range(n):
        await asyncio.sleep(0)
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))]))
