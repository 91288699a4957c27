"""Metrics of a model's own, exported with the server's."""

import enum
import itertools
import json

import tutti_wire as wire
from tutti_errors import TritonModelException
from tutti_here import here
from tutti_service import ask


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
    """What a family and its metrics share. The metrics do not keep the family alive."""

    def __init__(self, name, kind, description):
        self.name, self.kind, self.description = name, kind, description
        self.ident, self.forks, self.deleted = next(_ids), None, False

    def question(self, do, **more):
        return {"do": do, "id": self.ident, "family": self.name, **more}

    def declare(self):
        """Has the server know the family, whose processes each declare it."""
        ask(wire.METRIC, self.question("family", kind=self.kind.value, help=self.description), "Error when creating MetricFamily")
        self.forks = here.forks


class MetricFamily:
    """Metrics of one name, which differ in their labels. They are exported until it is deleted."""

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
        """Returns the metric with these labels, a dict of strings. A histogram needs its buckets, rising."""
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
        if here.side is None or family.forks != here.forks:
            return  # the family of the process that this one was forked from
        try:
            here.side.tell(wire.METRIC, json.dumps(family.question("forget")).encode())
        except OSError:
            pass  # the server is gone, and the metrics with it


class Metric:
    """One value, or one histogram."""

    def __init__(self, family, labels, buckets):
        self._family, self._labels, self._buckets, self._forks = family, labels, buckets, None
        self._declare()

    def _declare(self):
        if self._family.forks != here.forks:
            self._family.declare()
        more = {} if self._buckets is None else {"buckets": self._buckets}
        ask(wire.METRIC, self._family.question("metric", labels=self._labels, **more), "Error when creating Metric")
        self._forks = here.forks

    def _do(self, do, doing, **more):
        family = self._family
        if family.deleted:
            raise TritonModelException(
                "%s: Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object "
                "should be deleted AFTER its corresponding 'Metric' objects have been deleted." % doing)
        if do not in _OPERATIONS[family.kind]:
            raise TritonModelException("%s: a %s has no operation '%s'" % (doing, family.kind.value, do))
        if self._forks != here.forks:
            self._declare()
        return ask(wire.METRIC, family.question(do, labels=self._labels, **more), doing)[1]

    def increment(self, value):
        """Adds to a counter or gauge."""
        if self._family.kind is MetricKind.COUNTER and value < 0:
            raise TritonModelException("Failed to increment metric value: a counter never falls, found %s" % value)
        self._do("increment", "Failed to increment metric value", value=float(value))

    def set(self, value):
        """Sets a gauge."""
        self._do("set", "Failed to set metric value", value=float(value))

    def observe(self, value):
        """Counts a value into a histogram."""
        self._do("observe", "Failed to observe metric value", value=float(value))

    def value(self):
        """Returns the value of a counter or gauge."""
        return json.loads(bytes(self._do("value", "Failed to get metric value")))["value"]
