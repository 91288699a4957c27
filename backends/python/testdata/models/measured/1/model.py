"""Keeps metrics of what it gets, and writes to the log."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily
        self.families = [
            family("measured_total", "Sum of the inputs.", family.COUNTER),
            family(name="measured_last", description="The last input.", kind=family.GAUGE),
            family("measured_inputs", "The inputs.", family.HISTOGRAM),
        ]
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.total, self.last = (f.Metric(labels=labels) for f in self.families[:2])
        self.inputs = self.families[2].Metric(labels=labels, buckets=[1, 10])
        pb_utils.Logger.log_info("measured starts")

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        value = float(request.inputs()[0].as_numpy()[0])
        logger = pb_utils.Logger
        logger.log("measured %g" % value, logger.VERBOSE)
        logger.log_warn("measured warns\nof %g" % value)
        self.last.set(value)
        self.inputs.observe(value)
        self.total.increment(value)
        out = np.array([self.total.value(), self.last.value()])
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])
