"""Lies beside the model, which imports it."""

REASON = "the weights are missing"
