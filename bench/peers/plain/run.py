"""Plain Python: Starlette under uvicorn, and ONNX Runtime called from the handler.

identity3 takes microseconds, so its three sessions run on the event loop, and
every instance is a process. text takes milliseconds outside the interpreter's
lock, so it runs in one process with a thread per instance, and there is no batching:
a request is a call.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

import asked
import kserve


def identity():
    """The handler of identity3."""
    from models import Step, identity_steps

    first, second, third = (Step(path) for path in identity_steps())

    async def infer(http):
        request = kserve.loads(await http.body())
        return reply(kserve.answer(request, "OUTPUT0", third(second(first(kserve.tensor(request))))))

    return infer


def text():
    """The handler of text."""
    from models import Embedder

    embed, pool = Embedder(), ThreadPoolExecutor(asked.INSTANCES)

    async def infer(http):
        request = kserve.loads(await http.body())
        vectors = await asyncio.get_running_loop().run_in_executor(pool, embed, kserve.texts(request))
        return reply(kserve.answer(request, "embedding", vectors))

    return infer


def reply(response):
    """A dictionary as an HTTP response."""
    return Response(kserve.dumps(response), media_type="application/json")


async def ready(_):
    """The process listens only once its sessions exist."""
    return Response()


def app():
    """The application; uvicorn calls this in every process."""
    infer = text() if asked.SCENARIO == "text" else identity()
    return Starlette(routes=[Route(asked.READY, ready), Route(asked.INFER, infer, methods=["POST"])])


if __name__ == "__main__":
    workers = 1 if asked.SCENARIO == "text" else asked.INSTANCES
    uvicorn.run(
        "run:app", factory=True, host=asked.HOST, port=asked.HTTP, workers=workers, access_log=False, log_level="warning"
    )
