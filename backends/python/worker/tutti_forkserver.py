"""The fork server: a process that has imported the modules of every worker, and forks the workers of its interpreter."""

import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time

import numpy as np

import tutti_wire as wire

FORK = 64
HELLO, FORKED, EXITED = 80, 81, 82

# Milliseconds without a request after which the fork server is idle and releases memory.
_IDLE = 1000

# Seconds that workers have to exit by themselves after the server has exited.
_GRACE = 2

_MADV_DONTNEED = 4

_I32 = struct.Struct("<i")

# Descriptors of a worker: commands, side channel, standard output and standard error.
_DESCRIPTORS = (3, 4, 1, 2)


def serve(descriptor):
    """Forks workers until the server closes the socket, then exits the process. Returns in each forked worker."""
    server = _ForkServer(descriptor)
    fault = _unsupported()
    server.send(HELLO, 0, json.dumps({"python": version(), "numpy": np.__version__, "fault": fault}).encode())
    if not fault:
        gc.collect()
        gc.freeze()  # a worker's collector does not touch these objects, so their pages stay shared
        server.run()


def version():
    """Returns the version of the interpreter, for example 3.11.4."""
    return "%d.%d.%d" % sys.version_info[:3]


class _ForkServer:
    def __init__(self, descriptor):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptor)
        self.sock.set_inheritable(False)
        self.server = os.getppid()
        self.poll = select.poll()
        self.poll.register(self.sock, select.POLLIN)
        self.workers = {}  # by pidfd: the id of the FORK packet, and the process id
        self.numpy = _file(np.__file__)

    def send(self, kind, ident, body):
        self.sock.send(wire.HEAD.pack(kind, 0, ident, len(body)) + body)

    def run(self):
        """Forks workers and waits for their exits. Returns in a worker only."""
        idle = _IDLE
        while True:
            found = self.poll.poll(idle)
            if not found:
                idle = None
                try:
                    unmap_clean_pages()
                except (AttributeError, OSError, ValueError):
                    pass  # the system lacks smaps or madvise
            for descriptor, _ in found:
                if descriptor in self.workers:
                    self.reap(descriptor)
                elif self.receive():
                    return

    def reap(self, descriptor):
        ident, state = self.bury(descriptor)
        self.send_or_exit(EXITED, ident, _I32.pack(state))

    def bury(self, descriptor):
        """Waits for a worker and kills the children it left behind. Returns the id of its FORK packet and its exit status."""
        ident, pid = self.workers.pop(descriptor)
        self.poll.unregister(descriptor)
        kill(pid)  # its id is not reused before waitpid
        _, state = os.waitpid(pid, 0)
        os.close(descriptor)
        return ident, state

    def send_or_exit(self, kind, ident, body):
        try:
            self.send(kind, ident, body)
        except OSError:
            self.end()

    def end(self):
        """Exits when the server has closed the socket. If it has exited, so do its workers, unless a model holds the interpreter's
        lock: then they are killed, with all that they have started."""
        until = time.monotonic() + _GRACE
        for descriptor in list(self.workers):
            self.poll.register(descriptor, select.POLLIN)
        try:
            self.poll.unregister(self.sock)
        except KeyError:
            pass
        while self.workers:
            left = until - time.monotonic()
            if left <= 0:
                break
            for descriptor, _ in self.poll.poll(left * 1000):
                self.bury(descriptor)
        if os.getppid() != self.server:
            for descriptor in list(self.workers):
                kill(self.workers[descriptor][1])
                self.bury(descriptor)
        os._exit(0)

    def receive(self):
        """Receives a packet and forks a worker. Returns True in the worker."""
        try:
            packet, files, _, _ = socket.recv_fds(self.sock, 65536, len(_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            packet = b""
        if len(packet) < wire.HEAD.size:
            self.end()
        _, _, ident, _ = wire.HEAD.unpack_from(packet)
        try:
            pid = self.fork(files, packet[wire.HEAD.size:])
        except Exception as e:
            pid = None
            self.send_or_exit(wire.FAILED, ident, bytes([4]) + str(e).encode("utf-8", "replace"))
        if pid == 0:
            return True
        for f in files:
            os.close(f)
        if pid is None:
            return False
        descriptor = os.pidfd_open(pid)
        self.workers[descriptor] = ident, pid
        self.send_or_exit(FORKED, ident, _I32.pack(pid))
        self.poll.register(descriptor, select.POLLIN)
        return False

    def fork(self, files, name):
        """Forks. Returns the new process id, and 0 in the new process."""
        if len(files) != len(_DESCRIPTORS):
            raise RuntimeError("expected %d files, found %d" % (len(_DESCRIPTORS), len(files)))
        if _file(np.__file__) != self.numpy:
            raise RuntimeError("'%s' has changed" % np.__file__)
        if _threads() != 1:
            raise RuntimeError("the fork server has threads")
        pid = os.fork()
        if pid == 0:
            try:
                self.become_worker(files, name)
            except BaseException:
                os._exit(1)
            return 0
        try:
            os.setpgid(pid, pid)  # parent and child both set it: either may be the first to need it
        except OSError:
            pass  # it has exited already
        return pid

    def become_worker(self, files, name):
        """Turns the new process into a worker: own process group, its descriptors, its name and random seed."""
        os.setpgid(0, 0)
        high = [fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 16) for f in files]  # above the numbers of _DESCRIPTORS
        for f in (*files, *self.workers, self.sock.detach()):
            os.close(f)
        for f, number in zip(high, _DESCRIPTORS):
            os.dup2(f, number, inheritable=number < 3)
            os.close(f)
        set_process_name(name)
        if "numpy.random" in sys.modules:
            np.random.seed()  # otherwise all workers draw the same numbers


def kill(group):
    """Kills a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass  # it has exited


def set_process_name(name):
    """Sets the name of this process in the output of ps and top."""
    try:
        with open("/proc/self/comm", "wb", 0) as f:
            f.write(name[:15])
    except OSError:
        pass


def unmap_clean_pages():
    """Drops the resident pages of programs and libraries that imports touched: about a third of the memory. The kernel reads a
    page again from its page cache when it is needed."""
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for at, size in _clean_mappings():
        madvise(at, size, _MADV_DONTNEED)


def _clean_mappings():
    """Returns (address, size) of each read-only private file mapping without modified pages."""
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


def _unsupported():
    """Returns why this process cannot be a fork server, or "". A library that supports fork stops its threads before one."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        if _threads() != 1:
            return "importing numpy starts threads that a fork does not end"
    except (AttributeError, OSError) as e:
        return "%s: %s" % (type(e).__name__, e)
    return ""
