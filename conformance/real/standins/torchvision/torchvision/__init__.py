"""What the published models and clients use of torchvision: a stand-in where it is not installed."""

from . import models, transforms  # noqa: F401
