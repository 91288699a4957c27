"""Server functions for models, other than inference: the log, and loading and unloading models."""

import base64
import enum
import json

import tutti_wire as wire
from tutti_errors import TritonModelException
from tutti_process import process


def call(kind, message, operation):
    """Sends message as JSON and returns the flags and the body of the reply. Raises when the reply is an error; operation
    begins the text of that error."""
    flags, body = process.server("this call").call(kind, json.dumps(message).encode())
    text = _error(body)
    if text is not None:
        raise TritonModelException("%s: %s" % (operation, text))
    return flags, body


def _error(body):
    """Returns the error text of a reply, or None. A reply may be a JSON value instead of a response."""
    if len(body) < wire.RESPONSE.size or body[:1] in (b"{", b"["):
        return None
    state, _, text, _, _ = wire.decode_response(body)
    return text if state == wire.ERROR else None


class LogLevel(enum.IntEnum):
    """Log levels."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_FAILURE = 4  # a further level of LOG packets: a failure of the model


class Logger:
    """Writes to the server's log."""

    LogLevel = LogLevel
    INFO, WARNING, ERROR, VERBOSE = LogLevel

    @staticmethod
    def log(message, level=LogLevel.INFO):
        """Writes a message at a level."""
        if not isinstance(message, str):
            raise TypeError("log: expected a message of type str, found %s" % type(message).__name__)
        if not isinstance(level, LogLevel):
            raise TypeError("log: expected a level of type LogLevel, found %s" % type(level).__name__)
        process.server("the log").send(wire.LOG, bytes([level]) + message.encode("utf-8", "replace"))

    @staticmethod
    def log_info(message):
        """Writes an informational message."""
        Logger.log(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message):
        """Writes a warning."""
        Logger.log(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message):
        """Writes an error."""
        Logger.log(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message):
        """Writes a debug message."""
        Logger.log(message, LogLevel.VERBOSE)


def log_failure(text):
    """Logs an exception of the model that no request can return."""
    if process.side is not None:
        process.side.send(wire.LOG, bytes([_FAILURE]) + text.encode("utf-8", "replace"))


def load_model(model_name, config="", files=None):
    """Loads a model. config (JSON) and files, for example {"file:1/model.py": bytes}, replace those of the repository."""
    operation = "Failed to load model"
    if not isinstance(files or {}, dict):
        raise TritonModelException("%s: failed to load model '%s', files should be a dictionary of file paths and file contents"
                                   % (operation, model_name))
    # Triton's prefix "file:" is removed: the server expects paths relative to the model's folder.
    coded = {path.removeprefix("file:"): base64.b64encode(data.encode() if isinstance(data, str) else data).decode("ascii")
             for path, data in (files or {}).items()}
    call(wire.MODEL, {"do": "load", "model": model_name, "config": config, "files": coded}, operation)


def unload_model(model_name, unload_dependents=False):
    """Unloads a model; with unload_dependents, also the models of an ensemble."""
    call(wire.MODEL, {"do": "unload", "model": model_name, "dependents": bool(unload_dependents)}, "Failed to unload model")


def is_model_ready(model_name, model_version=""):
    """Reports whether a version of a model is ready; without a version, whether any is."""
    message = {"do": "ready", "model": model_name, "version": str(model_version)}
    flags, _ = call(wire.MODEL, message, "Failed to check model readiness")
    return bool(flags & wire.TRUE)
