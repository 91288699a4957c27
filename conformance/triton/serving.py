"""The server under test, on the ports that Triton's tests have fixed."""

import ctypes
import fcntl
import http.client
import os
import pathlib
import shlex
import socket
import struct
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORTS = (8000, 8001, 8002)
ADDRESSES = ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1")
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP_LOOPBACK_RUNNING = 0x49


def own_network():
    """Moves this process into a new network namespace, where all ports are free. It needs root."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        sys.exit(f"--own-net: unshare: {os.strerror(ctypes.get_errno())}")
    with socket.socket() as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_LOOPBACK_RUNNING))


def get(path):
    """The body that the HTTP port responds with."""
    with urllib.request.urlopen(f"http://127.0.0.1:8000/{path}", timeout=10) as response:
        return response.read()


def wait_for_ports(limit=30):
    """Waits until the ports are free, and ends the program when one stays taken."""
    end = time.monotonic() + limit
    for port in PORTS:
        while not port_is_free(port):
            if time.monotonic() > end:
                sys.exit(f"port {port} is taken: end what listens there, or give --own-net")
            time.sleep(0.1)


def port_is_free(port):
    """Whether a server can listen on a port."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Server:
    """One start of the server, which writes its output into a file."""

    def __init__(self, command, repositories, flags, env, log, cwd):
        wait_for_ports()
        flags = [str(f) for f in flags]
        given = {f.split("=")[0] for f in flags}
        argv = [*command, *(f"--model-repository={r}" for r in repositories), *(a for a in ADDRESSES if a.split("=")[0] not in given), *flags]
        self.log = log
        with open(log, "w") as out:
            out.write(f"# {shlex.join(argv)} {env or ''}\n")
            out.flush()
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, cwd=cwd)

    def wait(self, path="ready", limit=60):
        """Returns True once /v2/health/PATH is 200, and False when the process ended or the limit passed.

        With the path "port" any status will do.
        """
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            if healthy(path):
                return True
            time.sleep(0.05)
        return False

    def stop(self):
        """Stops the server, and returns errors of its exit."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(25)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return "had to be killed"
        return ""


def healthy(path):
    """Whether a health endpoint responds with 200. The path "port" checks only that the port is open."""
    try:
        if path == "port":
            with socket.create_connection(("127.0.0.1", 8000), timeout=2):
                return True
        with urllib.request.urlopen(f"http://127.0.0.1:8000/v2/health/{path}", timeout=2) as response:
            return response.status == 200
    except (OSError, http.client.HTTPException):
        return False
