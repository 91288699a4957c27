"""MLServer: custom runtimes, one a scenario.

MLServer does not chain models, so identity3 is one model that calls three
sessions; text has adaptive batching on (model-settings.json). A request's rows
arrive as one batch in either.
"""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse


class Identity(MLModel):
    """identity3."""

    async def load(self):
        """Open the sessions."""
        from models import Step, identity_steps

        self.first, self.second, self.third = (Step(path) for path in identity_steps())
        return True

    async def predict(self, payload):
        """A request of KServe v2."""
        x = NumpyCodec.decode_input(payload.inputs[0])
        y = self.third(self.second(self.first(np.asarray(x, np.float32))))
        return respond(self, "OUTPUT0", y)


class Text(MLModel):
    """text."""

    async def load(self):
        """Open the tokenizer and the session."""
        from models import Embedder

        self.embed = Embedder()
        return True

    async def predict(self, payload):
        """A batch of requests of KServe v2, which MLServer made one."""
        return respond(self, "embedding", self.embed(StringCodec.decode_input(payload.inputs[0])))


def respond(model, name, array):
    """The response of a model with one output."""
    output = NumpyCodec.encode_output(name, array)
    return InferenceResponse(model_name=model.name, model_version=model.version, outputs=[output])
