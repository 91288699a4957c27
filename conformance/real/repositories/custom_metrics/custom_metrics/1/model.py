"""The sum and the difference, and a counter of the time that they took."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="requests_process_latency_ns", description="Cumulative time spent processing requests", kind=pb_utils.MetricFamily.COUNTER
        )
        self.metric = self.family.Metric(labels={"model": "custom_metrics", "version": "1"})

    def execute(self, requests):
        began, responses = time.time_ns(), []
        for r in requests:
            a, b = (pb_utils.get_input_tensor_by_name(r, f"INPUT{i}").as_numpy() for i in range(2))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]))
        self.metric.increment(time.time_ns() - began)
        pb_utils.Logger.log_info(f"Cumulative requests processing latency: {self.metric.value()}")
        return responses
