"""numpy under another name."""

from numpy import add, subtract  # noqa: F401
