"""Cannot be initialized."""

from .reason import REASON


class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError(REASON)

    def execute(self, requests):
        return []
