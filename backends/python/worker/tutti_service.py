"""What a model tells and asks the server besides inferences: its log, its metrics and its models."""

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


class Logger:
    """The server's log."""

    LogLevel = LogLevel
    INFO, WARNING, ERROR, VERBOSE = LogLevel

    @staticmethod
    def log(message, level=LogLevel.INFO):
        """Writes a line of a level."""
        if not isinstance(message, str):
            raise TypeError("log: expected a message of type str, found %s" % type(message).__name__)
        here.server("the log").tell(wire.LOG, bytes([LogLevel(level)]) + message.encode("utf-8", "replace"))

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


class MetricKind(enum.Enum):
    """Kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_OPERATIONS = {
    MetricKind.COUNTER: ("increment", "value"),
    MetricKind.GAUGE: ("increment", "set", "value"),
    MetricKind.HISTOGRAM: ("observe",),
}


class MetricFamily:
    """Metrics of one name, which differ in their labels. It must live as long as its metrics."""

    COUNTER, GAUGE, HISTOGRAM = MetricKind

    def __init__(self, name, description, kind):
        if not isinstance(name, str) or not isinstance(description, str):
            raise TypeError("MetricFamily: expected a name and a description of type str")
        self._name, self._kind, self._metrics = name, MetricKind(kind), {}
        ask(wire.METRIC, {"do": "family", "family": name, "kind": self._kind.value, "help": description},
            "Error when creating MetricFamily")

    def Metric(self, labels=None, buckets=None):
        """Returns the metric with these labels, a dict of strings. A histogram needs its buckets, rising."""
        return Metric(self, dict(labels or {}), buckets)


class Metric:
    """One value, or one histogram."""

    def __init__(self, family, labels, buckets=None):
        self._made = False
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in labels.items()):
            raise TypeError("metric '%s': expected labels of type str" % family._name)
        self._family, self._labels = family, labels
        if (family._kind is MetricKind.HISTOGRAM) != (buckets is not None):
            need = "needs" if buckets is None else "takes no"
            raise TritonModelException("Error when creating Metric: a %s %s buckets" % (family._kind.value, need))
        question = self._question("metric")
        if buckets is not None:
            question["buckets"] = [float(b) for b in buckets]
        ask(wire.METRIC, question, "Error when creating Metric")
        self._key = tuple(sorted(labels.items()))
        family._metrics[self._key] = family._metrics.get(self._key, 0) + 1
        self._made = True

    def __del__(self):
        if not self._made:
            return
        self._family._metrics[self._key] -= 1  # the server has one metric of these labels for all that say so here
        if not self._family._metrics[self._key] and here.side is not None:
            try:
                here.side.tell(wire.METRIC, json.dumps(self._question("drop")).encode())
            except OSError:
                pass  # the server is gone, and the metric with it

    def _question(self, do):
        return {"do": do, "family": self._family._name, "labels": self._labels}

    def _do(self, do, doing, value=None):
        if do not in _OPERATIONS[self._family._kind]:
            raise TritonModelException("%s: a %s has no operation '%s'" % (doing, self._family._kind.value, do))
        question = self._question(do)
        if value is not None:
            question["value"] = float(value)
        return ask(wire.METRIC, question, doing)[1]

    def increment(self, value):
        """Adds to a counter or gauge."""
        if self._family._kind is MetricKind.COUNTER and value < 0:
            raise TritonModelException("Failed to increment metric value: a counter never falls, found %s" % value)
        self._do("increment", "Failed to increment metric value", value)

    def set(self, value):
        """Sets a gauge."""
        self._do("set", "Failed to set metric value", value)

    def observe(self, value):
        """Counts a value into a histogram."""
        self._do("observe", "Failed to observe metric value", value)

    def value(self):
        """Returns the value of a counter or gauge."""
        return json.loads(bytes(self._do("value", "Failed to get metric value")))["value"]


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
