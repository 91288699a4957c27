"""A model that tells what an attacker would find in its process."""

import ctypes
import json
import os
import resource
import socket

import numpy as np
import triton_python_backend_utils as pb_utils


def attempt(function):
    try:
        return function()
    except OSError as e:
        return "%s: %s" % (type(e).__name__, e.strerror)


def connect():
    s = socket.create_connection(("127.0.0.1", int(os.environ["EXPOSED_PORT"])), 5)
    s.close()
    return "connected"


def server():
    with open("/proc/%s/environ" % os.environ["EXPOSED_SERVER"], "rb") as f:
        f.read(1)
    return "read"


def signal(process):
    os.kill(process, 0)
    return "sent"


def limits():
    resource.prlimit(int(os.environ["EXPOSED_SERVER"]), resource.RLIMIT_CORE)
    return "read"


def host():
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
    return "a socket"


class TritonPythonModel:
    def execute(self, requests):
        found = {
            "environment": sorted(os.environ), "connect": attempt(connect), "server": attempt(server),
            "signal": attempt(lambda: signal(int(os.environ["EXPOSED_SERVER"]))), "own_signal": attempt(lambda: signal(os.getpid())),
            "parent_signal": attempt(lambda: signal(os.getppid())), "limits": attempt(limits),
            "host": attempt(host), "no_new_privs": ctypes.CDLL(None).prctl(39, 0, 0, 0, 0),
        }
        text = np.array([json.dumps(found).encode()], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("FOUND", text)]) for _ in requests]
