"""Failures, as a model makes and meets them."""

import enum
import os


class TritonModelException(Exception):
    """A failure of the server's, or of how something was used."""


class ErrorCode(enum.IntEnum):
    """Kinds of failures; their numbers are those of the wire."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """A failure with a code, to be put into a response."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = ErrorCode

    def __init__(self, message, code=ErrorCode.INTERNAL):
        if not isinstance(message, str):
            raise TypeError("TritonError: expected a message of type str, found %s" % type(message).__name__)
        self._message, self._code = message, ErrorCode(code)

    def message(self):
        """Returns the text."""
        return self._message

    def code(self):
        """Returns the code."""
        return self._code

    def __str__(self):
        return self._message

    def __repr__(self):
        return "TritonError(%r, %s)" % (self._message, self._code.name)


def failure(e):
    """Says what was raised, and where in the model's own code."""
    import traceback

    own = os.path.dirname(__file__)
    lines = "".join("  %s(%d): %s\n" % (f.filename, f.lineno, f.name) for f in reversed(traceback.extract_tb(e.__traceback__))
                    if os.path.dirname(f.filename) != own and not f.filename.startswith("<frozen"))
    return "%s: %s%s" % (type(e).__name__, e, "\n\nAt:\n" + lines if lines else "")
