"""Ray Serve: deployments composed by handles, behind its HTTP proxy.

identity3 is a front end and a deployment for each model; text is a front end
and one deployment that batches what waits.
"""

import asyncio

from fastapi import FastAPI, Request, Response
from ray import serve

import asked
import kserve

# A replica takes a share of no core, or two cores would not hold them all; and
# as many requests as may wait, or there would be no batches.
INNER = {"ray_actor_options": {"num_cpus": 0}, "max_ongoing_requests": 1024, "num_replicas": asked.INSTANCES}
FRONT = {**INNER, "num_replicas": 1}
app = FastAPI()


def reply(request, name, array):
    """A finished HTTP response, so that FastAPI does not walk through the numbers."""
    return Response(kserve.dumps(kserve.answer(request, name, array)), media_type="application/json")


@serve.deployment(**INNER)
class Step:
    """One of identity3's models, on the event loop: it takes microseconds."""

    def __init__(self, path):
        import models

        self.model = models.Step(path)

    async def __call__(self, x):
        return self.model(x)


@serve.deployment(**INNER)
class Embedder:
    """Sentences to vectors, in a thread, so that the next batch gathers meanwhile."""

    def __init__(self):
        import models

        self.embed = models.Embedder()

    @serve.batch(max_batch_size=asked.MAX_BATCH, batch_wait_timeout_s=0)
    async def __call__(self, requests):
        return await asyncio.to_thread(self.embed.many, requests)


class Front:
    """The response of both front ends."""

    @app.get(asked.READY)
    async def ready(self):
        """Serve routes to an application once all its replicas run."""
        return Response()


@serve.deployment(**FRONT)
@serve.ingress(app)
class Identity(Front):
    """The front end of identity3; each call is handed to the next, none is waited for between."""

    def __init__(self, first, second, third):
        self.first, self.second, self.third = first, second, third

    @app.post(asked.INFER)
    async def infer(self, http: Request):
        """A request of KServe v2."""
        request = kserve.loads(await http.body())
        x = self.first.remote(kserve.tensor(request))
        return reply(request, "OUTPUT0", await self.third.remote(self.second.remote(x)))


@serve.deployment(**FRONT)
@serve.ingress(app)
class Text(Front):
    """The front end of text."""

    def __init__(self, embedder):
        self.embedder = embedder

    @app.post(asked.INFER)
    async def infer(self, http: Request):
        """A request of KServe v2."""
        request = kserve.loads(await http.body())
        return reply(request, "embedding", await self.embedder.remote(kserve.texts(request)))


def application():
    """The application for serve.run."""
    import models

    if asked.SCENARIO == "text":
        return Text.bind(Embedder.bind())
    steps = zip(("first", "second", "third"), models.identity_steps())
    return Identity.bind(*(Step.options(name=name).bind(path) for name, path in steps))
