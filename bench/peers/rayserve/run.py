"""Starts Ray on this machine alone, Serve on it, and ends both on SIGTERM."""

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile

import asked

# Read when Ray is imported, by its workers too: no usage report to the net, no
# token in the user's home, and what its documentation sets for throughput, less
# the mode without a proxy, in which Ray chooses the port. Ray hides the node from
# the network where clusters are off, which is its default elsewhere than on Linux;
# its two metrics ports are then left to the system.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_SERVE_THROUGHPUT_OPTIMIZED"] = "1"
os.environ["RAY_SERVE_ENABLE_DIRECT_INGRESS"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["AUTOSCALER_METRIC_PORT"] = os.environ["DASHBOARD_METRIC_PORT"] = "0"

import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve.schema import LoggingConfig  # noqa: E402

import service  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36


def children():
    """The processes whose parent is this one."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as f:
            found += map(int, f.read().split())
    return found


def end_children():
    """Kill the processes that Ray leaves behind; children of killed processes become ours and are killed too."""
    while remaining := children():
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def start(folder):
    """Ray with its sockets and logs in the folder, and Serve with the scenario."""
    ray.init(
        address="local",
        include_dashboard=False,
        _temp_dir=folder,
        object_store_memory=256 << 20,
        log_to_driver=False,
    )
    quiet = LoggingConfig(enable_access_log=False)
    serve.start(
        http_options={"host": asked.HOST, "port": asked.HTTP, "request_timeout_s": 60}, logging_config=quiet
    )
    serve.run(service.application(), route_prefix="/", logging_config=quiet)


def main():
    """Serve until the signal, which Ray's own handler turns into an exit as this one does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        start(folder)
        while True:
            signal.pause()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ray.shutdown()
        end_children()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
