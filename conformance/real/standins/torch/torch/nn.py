"""Modules that are called."""


class Module:
    def __init__(self):
        pass

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def to(self, *_args, **_kwargs):
        return self

    def eval(self):
        return self
