"""Runs MLServer's own command, with this run's settings in the environment."""

import multiprocessing
import os
import sys
import threading

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


def end():
    """Processes that are left after the stop."""
    for process in multiprocessing.active_children():
        process.kill()
    os._exit(0)


async def stop(self, sig=None):
    """MLServer's stop, with an end: while a model loads, it ends the servers and not the process."""
    timer = threading.Timer(5, end)
    timer.daemon = True
    timer.start()
    await stop_servers(self, sig)


if __name__ == "__main__":
    from mlserver.cli import main
    from mlserver.server import MLServer

    stop_servers, MLServer.stop = MLServer.stop, stop
    sys.argv[1:] = ["start", asked.SCENARIO]
    main()
