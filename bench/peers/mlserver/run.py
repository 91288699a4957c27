"""Hands over to MLServer's own command; what differs from run to run is in the environment."""

import os
import sys

import asked

os.environ |= {
    "MLSERVER_HOST": asked.HOST,
    "MLSERVER_HTTP_PORT": str(asked.HTTP),
    "MLSERVER_GRPC_PORT": str(asked.GRPC),
    "MLSERVER_PARALLEL_WORKERS": str(asked.INSTANCES),
    "MLSERVER_DEBUG": "false",  # its access log, too
    "MLSERVER_METRICS_ENDPOINT": "",
    "MLSERVER_GZIP_ENABLED": "false",
}
os.execv(sys.executable, [sys.executable, "-c", "from mlserver.cli import main; main()", "start", asked.SCENARIO])
