"""Custom metrics of a model, which the server exports with its own."""

import enum
import itertools
import json

import tutti_wire as wire
from tutti_errors import TritonModelException
from tutti_process import process
from tutti_service import call


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

_ids = itertools.count(1)


class _Family:
    """The state that a family shares with its metrics. A metric does not keep the MetricFamily alive."""

    def __init__(self, name, kind, description):
        self.name, self.kind, self.description = name, kind, description
        self.ident, self.forks, self.deleted = next(_ids), None, False

    def message(self, do, **more):
        return {"do": do, "id": self.ident, "family": self.name, **more}

    def declare(self):
        """Declares the family to the server. Each process of the model must declare it."""
        call(wire.METRIC, self.message("family", kind=self.kind.value, help=self.description), "Error when creating MetricFamily")
        self.forks = process.forks


class MetricFamily:
    """Metrics of one name with different labels. They are exported until the family is deleted."""

    COUNTER, GAUGE, HISTOGRAM = MetricKind

    def __init__(self, name, description, kind):
        if not isinstance(name, str) or not isinstance(description, str):
            raise TypeError("MetricFamily: expected a name and a description of type str")
        if not isinstance(kind, MetricKind):
            raise TypeError("MetricFamily: expected a kind of type MetricKind, found %s" % type(kind).__name__)
        family = _Family(name, kind, description)
        family.declare()
        self._family = family

    def Metric(self, labels=None, buckets=None):
        """Returns the metric with these labels, a dict of str. A histogram must have buckets, in ascending order."""
        family, doing = self._family, "Failed to create metric. "
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException(doing + "Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException(doing + "Buckets must be a list.")
        if (family.kind is MetricKind.HISTOGRAM) != (buckets is not None):
            raise TritonModelException(doing + ("Missing required buckets." if buckets is None else "Unexpected buckets found."))
        labels = dict(labels or {})
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in labels.items()):
            raise TypeError("metric '%s': expected labels of type str" % family.name)
        return Metric(family, labels, None if buckets is None else [float(b) for b in buckets])

    def __del__(self):
        family = getattr(self, "_family", None)
        if family is None:
            return
        family.deleted = True
        if process.side is None or family.forks != process.forks:
            return  # the parent process declared the family
        try:
            process.side.send(wire.METRIC, json.dumps(family.message("forget")).encode())
        except OSError:
            pass  # the server has exited


class Metric:
    """One counter, gauge or histogram."""

    def __init__(self, family, labels, buckets):
        self._family, self._labels, self._buckets, self._forks = family, labels, buckets, None
        self._declare()

    def _declare(self):
        if self._family.forks != process.forks:
            self._family.declare()
        more = {} if self._buckets is None else {"buckets": self._buckets}
        call(wire.METRIC, self._family.message("metric", labels=self._labels, **more), "Error when creating Metric")
        self._forks = process.forks

    def _do(self, do, doing, **more):
        family = self._family
        if family.deleted:
            raise TritonModelException(
                "%s: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object "
                "should be deleted AFTER its corresponding 'Metric' objects have been deleted." % doing)
        if do not in _OPERATIONS[family.kind]:
            raise TritonModelException("%s: a %s has no operation '%s'" % (doing, family.kind.value, do))
        if self._forks != process.forks:
            self._declare()
        return call(wire.METRIC, family.message(do, labels=self._labels, **more), doing)[1]

    def increment(self, value):
        """Adds to a counter or gauge. A counter never decreases."""
        if self._family.kind is MetricKind.COUNTER and value < 0:
            raise TritonModelException("Failed to increment metric value: a counter never falls, found %s" % value)
        self._do("increment", "Failed to increment metric value", value=float(value))

    def set(self, value):
        """Sets a gauge."""
        self._do("set", "Failed to set metric value", value=float(value))

    def observe(self, value):
        """Adds an observation to a histogram."""
        self._do("observe", "Failed to observe metric value", value=float(value))

    def value(self):
        """Returns the value of a counter or gauge."""
        return json.loads(bytes(self._do("value", "Failed to get metric value")))["value"]
