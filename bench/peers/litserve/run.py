"""LitServe: one API a scenario, whose workers call the models in turn.

A LitAPI is one unit of work; several models are several attributes of it, as
its documentation has it, so identity3 is one worker with three sessions.
"""

import os
import signal

import litserve
from fastapi import Response

import asked
import kserve


class Identity(litserve.LitAPI):
    """identity3."""

    def setup(self, device):
        from models import Step, identity_steps

        self.first, self.second, self.third = (Step(path) for path in identity_steps())

    def decode_request(self, request):
        return {"request": request, "x": kserve.tensor(request)}

    def predict(self, inputs):
        return inputs["request"], self.third(self.second(self.first(inputs["x"])))

    def encode_response(self, output):
        return respond(*output, "OUTPUT0")


class Text(litserve.LitAPI):
    """text, in batches of the waiting requests."""

    def setup(self, device):
        from models import Embedder

        self.embed = Embedder()

    def batch(self, inputs):
        return inputs

    def predict(self, inputs):
        return list(zip(inputs, self.embed.many([kserve.texts(r) for r in inputs])))

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return respond(*output, "embedding")


def respond(request, array, name):
    """A finished HTTP response, so that FastAPI does not walk through the numbers."""
    return Response(kserve.dumps(kserve.answer(request, name, array)), media_type="application/json")


def end_on_sigterm():
    """LitServe ends its processes on an interrupt alone; a stray one inherits this and just ends."""
    main_process = os.getpid()

    def end(*_):
        if os.getpid() != main_process:
            os._exit(0)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


def main():
    """Serve until the signal; workers and HTTP servers are processes of this one."""
    # A timeout of 0 would have the workers ask the queue without a pause.
    batching = {"max_batch_size": asked.MAX_BATCH, "batch_timeout": 0.002}
    api = Text(api_path=asked.INFER, **batching) if asked.SCENARIO == "text" else Identity(api_path=asked.INFER)
    server = litserve.LitServer(
        api, accelerator="cpu", workers_per_device=asked.INSTANCES, healthcheck_path=asked.READY
    )
    end_on_sigterm()
    server.run(host=asked.HOST, port=asked.HTTP, generate_client_file=False, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
