"""What TestServer runs: tutti.Server as an installed package, with tritonclient. Arguments: a repository, and what to do with it."""

import os
import signal
import socket
import sys

import numpy as np
from tritonclient.http import InferInput
from tutti import Server


def scores():
    given = InferInput("SCORES", [1, 4], "FP32")
    given.set_data_from_numpy(np.array([[3, 0, 4, 0]], dtype=np.float32))
    return [given]


def block(models):
    """A block with requests over both protocols."""
    with Server(models, log_verbose=1, load_model=["rank"], model_control_mode="explicit") as server:
        print(server.http, server.infer("rank", scores()).as_numpy("INDICES").tolist())
        with server.grpc_client() as client:
            print(client.is_model_ready("rank"), "Started HTTPService" in server.log())
        with server.client(concurrency=2) as client:
            print(client.get_server_metadata()["name"])
    server.stop()
    print(server._process.returncode)


def disabled(models):
    """A server without gRPC."""
    with Server([models], allow_grpc=False) as server:
        print(server.http, server.grpc, server.is_server_ready())


def left(models):
    """The interpreter ends, and nothing has ended the server."""
    print(Server(models).http)


def raised(models):
    """An error ends the block, and the interpreter."""
    with Server(models) as server:
        print(server.http)
        server.infer("nothing", scores())


def killed(models):
    """The interpreter is killed."""
    server = Server(models)
    print(server.http, flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)


def refused(models):
    """Servers that do not start, the last one because its bucket never responds."""
    os.environ.update(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret")
    silent = socket.create_server(("127.0.0.1", 0))
    bucket = f"s3://http://127.0.0.1:{silent.getsockname()[1]}/bucket/models"
    for repository, options in (("/nowhere", {}), (models, {"no_such_option": 1}), (bucket, {"timeout": 0})):
        try:
            Server(repository, **options)
        except (RuntimeError, TimeoutError) as e:
            print(type(e).__name__, str(e).replace("\n", " "))


globals()[sys.argv[2]](sys.argv[1])
