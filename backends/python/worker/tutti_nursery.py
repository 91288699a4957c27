"""A nursery: a process that has imported what every worker needs, and forks the workers of its interpreter."""

import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys

import numpy as np

import tutti_wire as wire

FORK = 64
BORN, FORKED, ENDED = 80, 81, 82

# After how many milliseconds a nursery takes it that the server has what workers it needs for now.
_IDLE = 1000

_MADV_DONTNEED = 4

_STATUS = struct.Struct("<i")

# calls, side, standard output and standard error, as a worker has them
_PLACES = (3, 4, 1, 2)


def serve(descriptor):
    """Forks workers until there is no server, and ends this process then. In a worker it returns."""
    nursery = _Nursery(descriptor)
    fault = _unfit()
    nursery.tell(BORN, 0, json.dumps({"python": version(), "numpy": np.__version__, "fault": fault}).encode())
    if not fault:
        gc.collect()
        gc.freeze()  # a worker's collections leave these objects alone, and their memory shared
        nursery.run()


def version():
    """Returns the version of this Python."""
    return "%d.%d.%d" % sys.version_info[:3]


class _Nursery:
    def __init__(self, descriptor):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptor)
        self.sock.set_inheritable(False)
        self.poll = select.poll()
        self.poll.register(self.sock, select.POLLIN)
        self.live = {}  # by the descriptor of a process: the id of its FORK, and its own
        self.numpy = _file(np.__file__)

    def tell(self, kind, ident, body):
        self.sock.send(wire.HEAD.pack(kind, 0, ident, len(body)) + body)

    def run(self):
        """Forks and reaps. Returns in a worker only."""
        idle = _IDLE
        while True:
            found = self.poll.poll(idle)
            if not found:
                idle = None
                try:
                    forget_files()
                except (AttributeError, OSError, ValueError):
                    pass  # this system does not tell, or does not do it
            for descriptor, _ in found:
                if descriptor in self.live:
                    self.reap(descriptor)
                elif self.take():
                    return

    def reap(self, descriptor):
        ident, process = self.live.pop(descriptor)
        self.poll.unregister(descriptor)
        try:
            os.killpg(process, signal.SIGKILL)  # what it has started and left; nobody else has its number yet
        except OSError:
            pass
        _, state = os.waitpid(process, 0)
        os.close(descriptor)
        self.send(ENDED, ident, _STATUS.pack(state))

    def send(self, kind, ident, body):
        try:
            self.tell(kind, ident, body)
        except OSError:
            os._exit(0)  # the server is gone

    def take(self):
        """Takes a packet. Returns True in a worker."""
        try:
            packet, files, _, _ = socket.recv_fds(self.sock, 65536, len(_PLACES), socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            packet = b""
        if len(packet) < wire.HEAD.size:
            os._exit(0)  # as nobody wants workers any more
        _, _, ident, _ = wire.HEAD.unpack_from(packet)
        try:
            process = self.fork(files, packet[wire.HEAD.size:])
        except Exception as e:
            process = None
            self.send(wire.FAILED, ident, bytes([4]) + str(e).encode("utf-8", "replace"))
        if process == 0:
            return True
        for f in files:
            os.close(f)
        if process is None:
            return False
        descriptor = os.pidfd_open(process)
        self.live[descriptor] = ident, process
        self.send(FORKED, ident, _STATUS.pack(process))
        self.poll.register(descriptor, select.POLLIN)
        return False

    def fork(self, files, name):
        """Returns the id of a new process, 0 in it."""
        if len(files) != len(_PLACES):
            raise RuntimeError("expected %d files, found %d" % (len(_PLACES), len(files)))
        if _file(np.__file__) != self.numpy:
            raise RuntimeError("'%s' has changed" % np.__file__)
        if _threads() != 1:
            raise RuntimeError("the nursery has threads")
        process = os.fork()
        if process == 0:
            try:
                self.settle(files, name)
            except BaseException:
                os._exit(1)
            return 0
        try:
            os.setpgid(process, process)  # both do it: either may be asked to end it first
        except OSError:
            pass  # it has gone by now
        return process

    def settle(self, files, name):
        """Makes a new process a worker's."""
        os.setpgid(0, 0)
        high = [fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 16) for f in files]  # clear of their places
        for f in (*files, *self.live, self.sock.detach()):
            os.close(f)
        for f, place in zip(high, _PLACES):
            os.dup2(f, place, inheritable=place < 3)
            os.close(f)
        rename(name)
        if "numpy.random" in sys.modules:
            np.random.seed()  # else all workers draw the same numbers


def rename(name):
    """Names this process, for those who look at a list of them."""
    try:
        with open("/proc/self/comm", "wb", 0) as f:
            f.write(name[:15])
    except OSError:
        pass


def forget_files():
    """Unmaps what this process has touched of programs and libraries while it imported them: a third of its memory, which its
    workers never had. What is needed again comes back out of the system's cache."""
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for at, size in _unchanged():
        madvise(at, size, _MADV_DONTNEED)


def _unchanged():
    """Returns the ranges of addresses of private mappings of files that cannot be written and hold nothing else."""
    found, at, size = [], 0, 0
    with open("/proc/self/smaps") as lines:
        for line in lines:
            field = line.split()
            if field[0][-1] != ":":
                size = 0
                if len(field) > 5 and field[5][0] == "/" and field[1] in ("r--p", "r-xp"):
                    at, end = (int(x, 16) for x in field[0].split("-"))
                    size = end - at
            elif size and field[0] == "Anonymous:" and field[1] == "0":
                found.append((at, size))
    return found


def _file(path):
    st = os.stat(path)
    return st.st_ino, st.st_size, st.st_mtime_ns


def _threads():
    return len(os.listdir("/proc/self/task"))


def _unfit():
    """Returns why this process cannot be a nursery, or nothing. Libraries that can be forked end their threads before."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        process = os.fork()
        if process == 0:
            os._exit(0)
        os.waitpid(process, 0)
        if _threads() != 1:
            return "importing numpy starts threads that a fork does not end"
    except (AttributeError, OSError) as e:
        return "%s: %s" % (type(e).__name__, e)
    return ""
