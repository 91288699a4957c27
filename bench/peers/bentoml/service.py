"""BentoML: services composed by bentoml.depends, each in separate processes.

identity3 is a front end and a service for each model; text is a front end and
one service that batches what waits.
"""

from typing import Any, Optional

import bentoml
import numpy as np
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

import asked
import kserve

QUIET = {"logging": {"access": {"enabled": False}}, "metrics": {"enabled": False}}
# Every so many requests BentoML closes the connections to an inner service, with
# what is under way on them, which then fails; here that does not come about.
LASTING = {"runner_connection": {"max_requests": 10**9, "max_age": 1e9}}
INNER = {"workers": asked.INSTANCES, **LASTING, **QUIET}


async def ready(_):
    """The front end is ready when the services that it calls are; BentoML's own /readyz has a fixed path."""
    service = bentoml.get_current_service()
    for name in type(service).needs:
        if not await getattr(service, name).is_ready(5):
            return Response(status_code=503)
    return Response()


health = Starlette(routes=[Route(asked.READY, ready)])


class Step:
    """One of identity3's models, on the event loop: it takes microseconds."""

    number: int

    def __init__(self):
        import models

        self.model = models.Step(models.identity_steps()[self.number])

    @bentoml.api
    async def run(self, x: np.ndarray) -> np.ndarray:
        """FP32 [n, 16] to the same."""
        return self.model(x)


@bentoml.service(**INNER)
class First(Step):
    """The first model."""

    number = 0


@bentoml.service(**INNER)
class Second(Step):
    """The second model."""

    number = 1


@bentoml.service(**INNER)
class Third(Step):
    """The third model."""

    number = 2


@bentoml.service(**QUIET)
@bentoml.asgi_app(health)
class Identity:
    """The front end of identity3."""

    needs = ("first", "second", "third")
    first = bentoml.depends(First)
    second = bentoml.depends(Second)
    third = bentoml.depends(Third)

    @bentoml.api(route=asked.INFER)
    async def infer(self, inputs: list[dict[str, Any]], id: Optional[str] = None) -> dict[str, Any]:
        """A request of KServe v2."""
        x = kserve.tensor({"inputs": inputs})
        y = await self.first.to_async.run(x)
        y = await self.second.to_async.run(y)
        return answer(id, "OUTPUT0", await self.third.to_async.run(y))


@bentoml.service(**INNER)
class Embedder:
    """Sentences to vectors, in a thread, so that the next batch gathers meanwhile."""

    def __init__(self):
        import models

        self.embed = models.Embedder()

    @bentoml.api(batchable=True, max_batch_size=asked.MAX_BATCH, max_latency_ms=60000)
    def encode(self, texts: list[str]) -> np.ndarray:
        """A batch of sentences to FP32 [n, 384]."""
        return self.embed(texts)


@bentoml.service(**QUIET)
@bentoml.asgi_app(health)
class Text:
    """The front end of text."""

    needs = ("embedder",)
    embedder = bentoml.depends(Embedder)

    @bentoml.api(route=asked.INFER)
    async def infer(self, inputs: list[dict[str, Any]], id: Optional[str] = None) -> dict[str, Any]:
        """A request of KServe v2."""
        vectors = await self.embedder.to_async.encode(kserve.texts({"inputs": inputs}))
        return answer(id, "embedding", vectors)


def answer(request_id, name, array):
    """A response that BentoML can write: its arrays as lists."""
    response = kserve.answer({"id": request_id} if request_id else {}, name, array)
    for output in response["outputs"]:
        output["data"] = output["data"].tolist()
    return response
