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
    RESOURCE_EXHAUSTED = 8  # not of Triton


class TritonError:
    """An error with a code, for an InferenceResponse. The error of a call keeps what the server says of it: its reason, the step and the
    delay. A model passes that on when it returns the error, raises an exception with the error or with its message as the argument, or
    makes another TritonError of the message."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED, RESOURCE_EXHAUSTED = ErrorCode

    def __init__(self, message, code=None):
        if not isinstance(message, str):
            raise TypeError("TritonError: expected a message of type str, found %s" % type(message).__name__)
        of = message.error if isinstance(message, Message) else None
        if code is None:
            code = of._code if of is not None else ErrorCode.INTERNAL
        self._message, self._code = str(message), ErrorCode(code)
        self._details = of._details if of is not None and of._code == self._code else {}

    def message(self):
        """Returns the message."""
        return Message(self) if self._details else self._message

    def reason(self):
        """Returns why the server refused a call, for example "QUEUE_FULL"; an empty string when it does not say. Not of Triton."""
        return self._details.get("reason", "")

    def retry_after(self):
        """Returns the seconds after which the call may succeed, None when unknown. Not of Triton."""
        ns = self._details.get("retry_after_ns")
        return None if ns is None else ns / 1e9

    def code(self):
        """Returns the code."""
        return self._code

    def __str__(self):
        return self._message

    def __repr__(self):
        return "TritonError(%r, %s)" % (self._message, self._code.name)


class Message(str):
    """The message of an error, which knows the error."""

    def __new__(cls, error):
        text = super().__new__(cls, error._message)
        text.error = error
        return text


def received(message, code, details):
    """Returns the error that the server has sent."""
    e = TritonError(message, code)
    e._details = details
    return e


def carried(e):
    """Returns the TritonError among an exception and its arguments, also of a message among them, or None."""
    for v in (e, *getattr(e, "args", ())):
        if isinstance(v, TritonError):
            return v
        if isinstance(v, Message):
            return v.error
    return None


def failure(e):
    """Returns the text of an exception, with the frames of the traceback that are in the model's own code."""
    import traceback

    own = os.path.dirname(__file__)
    lines = "".join("  %s(%d): %s\n" % (f.filename, f.lineno, f.name) for f in reversed(traceback.extract_tb(e.__traceback__))
                    if os.path.dirname(f.filename) != own and not f.filename.startswith("<frozen"))
    return "%s: %s%s" % (type(e).__name__, e, "\n\nAt:\n" + lines if lines else "")
