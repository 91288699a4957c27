"""What a model tells and asks the server besides inferences: its log and its models."""

import base64
import enum
import json

import tutti_wire as wire
from tutti_errors import TritonModelException
from tutti_here import here


def answer(kind, body):
    """Asks the server and returns the flags and body of its answer, which is a failure or not."""
    flags, body = here.server("this call").ask(kind, body)
    return flags, body


def failed(body):
    """Returns the error of an answer, None where it has none."""
    if len(body) < wire.ANSWER.size or body[:1] in (b"{", b"["):
        return None
    state, _, text, _, _ = wire.decode_answer(body)
    return text if state == wire.ERROR else None


def ask(kind, question, doing):
    """Asks with JSON and returns the flags and body of the answer. A failure raises and says what was being done."""
    flags, body = answer(kind, json.dumps(question).encode())
    text = failed(body)
    if text is not None:
        raise TritonModelException("%s: %s" % (doing, text))
    return flags, body


class LogLevel(enum.IntEnum):
    """Levels of the log."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_FAILURE = 4  # a level of the wire's


class Logger:
    """The server's log."""

    LogLevel = LogLevel
    INFO, WARNING, ERROR, VERBOSE = LogLevel

    @staticmethod
    def log(message, level=LogLevel.INFO):
        """Writes a line of a level."""
        if not isinstance(message, str):
            raise TypeError("log: expected a message of type str, found %s" % type(message).__name__)
        if not isinstance(level, LogLevel):
            raise TypeError("log: expected a level of type LogLevel, found %s" % type(level).__name__)
        here.server("the log").tell(wire.LOG, bytes([level]) + message.encode("utf-8", "replace"))

    @staticmethod
    def log_info(message):
        """Writes what is worth knowing."""
        Logger.log(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message):
        """Writes what may need attention."""
        Logger.log(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message):
        """Writes what went wrong."""
        Logger.log(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message):
        """Writes what matters to whoever looks for a fault."""
        Logger.log(message, LogLevel.VERBOSE)


def log_failure(text):
    """Logs what a model raised where no request is there any more to be told."""
    if here.side is not None:
        here.side.tell(wire.LOG, bytes([_FAILURE]) + text.encode("utf-8", "replace"))


def load_model(model_name, config="", files=None):
    """Loads a model, with a configuration in JSON and files, {"file:1/model.py": bytes}, in place of the repository's."""
    doing = "Failed to load model"
    if not isinstance(files or {}, dict):
        raise TritonModelException("%s: failed to load model '%s', files should be a dictionary of file paths and file contents"
                                   % (doing, model_name))
    # The files of other interfaces are named by parameters that begin so; here the whole is a path in the model's folder.
    coded = {path.removeprefix("file:"): base64.b64encode(data.encode() if isinstance(data, str) else data).decode("ascii")
             for path, data in (files or {}).items()}
    ask(wire.MODEL, {"do": "load", "model": model_name, "config": config, "files": coded}, doing)


def unload_model(model_name, unload_dependents=False):
    """Unloads a model, and on demand the models of an ensemble."""
    ask(wire.MODEL, {"do": "unload", "model": model_name, "dependents": bool(unload_dependents)}, "Failed to unload model")


def is_model_ready(model_name, model_version=""):
    """Reports whether a version of a model, or any of it, takes requests."""
    question = {"do": "ready", "model": model_name, "version": str(model_version)}
    flags, _ = ask(wire.MODEL, question, "Failed to check model readiness")
    return bool(flags & wire.YES)
