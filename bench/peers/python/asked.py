"""The arguments of the start script."""

import os

HOST = "127.0.0.1"
HTTP = int(os.environ["PEER_HTTP"])
GRPC = int(os.environ["PEER_GRPC"])
SCENARIO = os.environ["PEER_SCENARIO"]
INSTANCES = int(os.environ["PEER_INSTANCES"])
THREADS = int(os.environ["PEER_THREADS"])
ROOT = os.environ["PEER_MODELS"]

# The name under which the scenario is served.
MODEL = "ensemble" if SCENARIO == "text" else SCENARIO
READY = "/v2/health/ready"
INFER = f"/v2/models/{MODEL}/infer"
MAX_BATCH = 32
