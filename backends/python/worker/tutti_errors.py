"""Errors that a model raises, returns and receives."""

import enum
import os


class TritonModelException(Exception):
    """An error of the server, or a wrong use of this module."""


class ErrorCode(enum.IntEnum):
    """Error codes, with their numbers in packets."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    """An error with a code, for an InferenceResponse."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = ErrorCode

    def __init__(self, message, code=ErrorCode.INTERNAL):
        if not isinstance(message, str):
            raise TypeError("TritonError: expected a message of type str, found %s" % type(message).__name__)
        self._message, self._code = message, ErrorCode(code)

    def message(self):
        """Returns the message."""
        return self._message

    def code(self):
        """Returns the code."""
        return self._code

    def __str__(self):
        return self._message

    def __repr__(self):
        return "TritonError(%r, %s)" % (self._message, self._code.name)


def failure(e):
    """Returns the text of an exception, with the frames of the traceback that are in the model's own code."""
    import traceback

    own = os.path.dirname(__file__)
    lines = "".join("  %s(%d): %s\n" % (f.filename, f.lineno, f.name) for f in reversed(traceback.extract_tb(e.__traceback__))
                    if os.path.dirname(f.filename) != own and not f.filename.startswith("<frozen"))
    return "%s: %s%s" % (type(e).__name__, e, "\n\nAt:\n" + lines if lines else "")
