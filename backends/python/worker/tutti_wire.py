"""Packets, tensors, requests and answers between a worker and its server, as doc.go of package python describes them."""

import fcntl
import itertools
import mmap
import os
import queue
import socket
import struct
import threading
import time
from sys import getrefcount

import numpy as np

from tutti_here import here

START, COMPLETE, INIT, REGION, DROP, EXECUTE, READY, FINALIZE = range(1, 9)
DONE, FAILED = 16, 17
LOG, CALL, SEND, CANCELLED, METRIC, MODEL, ABANDON, CANCEL, JOIN = range(32, 41)
REPLY = 48

IN_FILE, FINAL, YES, KEPT, ASKS, SAME = 1, 2, 4, 8, 16, 32

ANSWERED, ERROR, NONE, AGAIN = range(4)
NAMED = 65535
BYTES = 13

HEAD = struct.Struct("<HHIQ")
REQUEST = struct.Struct("<QQQIHHII")
TENSOR = struct.Struct("<HBBIQQ")
ANSWER = struct.Struct("<BBHI")
EXECUTION = struct.Struct("<IIIIQQ")
EXECUTED = struct.Struct("<IIQ")
DIMS = [struct.Struct("<%dq" % n) for n in range(256)]
SHAPED = [struct.Struct("<HBBIQQ%dq" % n) for n in range(65)]  # a TENSOR and its dimensions, as many as numpy has at most
U32 = struct.Struct("<I")
U16 = struct.Struct("<H")
REGION_HEAD = struct.Struct("<IIQ")

MAX_BODY = 61440
ALIGN = 64

# By the data type's number: the name on the wire, and numpy's type. BYTES have objects; BF16 has no type of numpy's.
NAMES = [None, "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
         "BYTES", "BF16"]
TYPES = [None] + [np.dtype(t) for t in (np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32,
                                        np.int64, np.float16, np.float32, np.float64, np.object_, np.uint16)]
NUMBERS = {name: i for i, name in enumerate(NAMES) if name}

_SEAL_SHRINK = (1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK


def new_file(size):
    """Returns a descriptor of shared memory that can grow and never shrinks."""
    fd = os.memfd_create("tutti-worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, *_SEAL_SHRINK)
    return fd


class Link:
    """One of the two sockets."""

    def __init__(self, fd):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=fd)
        self.sock.setblocking(True)
        self.buffer = bytearray(65536)
        self.view, self.into = memoryview(self.buffer), [self.buffer]
        self.lock = threading.RLock()  # a sender that is collected meanwhile sends too

    def receive(self):
        """Returns kind, flags, id, body and a descriptor or None. The body is valid until the next receive."""
        n, more, _, _ = self.sock.recvmsg_into(self.into, 64)
        if n < 16:
            raise EOFError
        kind, flags, ident, size = HEAD.unpack_from(self.buffer, 0)
        file = None
        for level, what, data in more:
            if level == socket.SOL_SOCKET and what == socket.SCM_RIGHTS:
                file = struct.unpack("i", data[:4])[0]
        if flags & IN_FILE:
            body = memoryview(mmap.mmap(file, size) if size else b"")
            os.close(file)
            return kind, flags, ident, body, None
        return kind, flags, ident, self.view[16:16 + size], file

    def post(self, kind, ident, body, flags=0):
        """Sends a packet, from the only thread that sends here."""
        size = len(body)
        if size <= MAX_BODY:
            self.sock.send(HEAD.pack(kind, flags, ident, size) + body)
        else:
            self.send(kind, ident, body, flags)

    def send(self, kind, ident, body=b"", flags=0):
        """Sends a packet, from any thread. body is bytes or a Body."""
        size = len(body)
        if size <= MAX_BODY:
            packet = HEAD.pack(kind, flags, ident, size) + bytes(body)
            with self.lock:
                self.sock.send(packet)
            return
        fd = new_file(size)
        try:
            with mmap.mmap(fd, size) as m:
                if isinstance(body, Body):
                    body.write(m)
                else:
                    m[:] = body
            self.send_file(HEAD.pack(kind, flags | IN_FILE, ident, size), fd)
        finally:
            os.close(fd)

    def send_file(self, packet, fd):
        """Sends a packet with a file."""
        with self.lock:
            self.sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))])


class Side:
    """What a worker asks and tells on its own, from any thread. Its own thread takes the replies."""

    def __init__(self, fd):
        self.link = Link(fd)
        self.ids = itertools.count(1)
        self.waiting = {}
        threading.Thread(target=self._receive, name="tutti-side", daemon=True).start()

    def _receive(self):
        while True:
            try:
                kind, flags, ident, body, _ = self.link.receive()
            except (OSError, EOFError):
                os._exit(0)  # the server is gone: nobody waits for what is computed
            if kind == READY:
                threading.Thread(target=here.ready, args=(self.link, ident), name="tutti-ready", daemon=True).start()
                continue
            take = self.waiting.get(ident)
            if kind == REPLY and take is not None:
                take(flags, bytes(body) if not flags & IN_FILE else body)

    def join(self):
        """Returns the side of this process, which was forked from the one whose side this is."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link = self.link
        link.lock = threading.RLock()  # the thread that may have held it was not forked
        link.send_file(HEAD.pack(JOIN, 0, 0, 0), theirs.fileno())
        theirs.close()
        link.sock.close()
        return Side(mine.detach())

    def tell(self, kind, body, flags=0):
        """Sends what has no reply."""
        self.link.send(kind, next(self.ids) & 0xFFFFFFFF, body, flags)

    def tell_of(self, kind, ident):
        """Says something about what was started before."""
        self.link.send(kind, ident)

    def ask(self, kind, body, flags=0):
        """Sends a question and returns the flags and body of its one reply."""
        ident, replies = self.start(kind, body, flags)
        try:
            return replies.get()
        finally:
            self.end(ident)

    def start(self, kind, body, flags=0, take=None):
        """Sends a question whose replies go to take(flags, body), called in the side's thread, or into the queue that is
        returned with the id. end forgets it."""
        replies = queue.SimpleQueue()
        if take is None:
            def take(flags, body):
                replies.put((flags, body))
        ident = next(self.ids) & 0xFFFFFFFF
        self.waiting[ident] = take
        self.link.send(kind, ident, body, flags | ASKS)
        return ident, replies

    def end(self, ident):
        """Takes no more replies to a question."""
        self.waiting.pop(ident, None)


class Region:
    """Shared memory between worker and server."""

    def __init__(self, fd, size):
        self.fd, self.size = fd, size
        self.map = mmap.mmap(fd, size)
        self.held = getrefcount(self.map)

    def kept(self):
        """Reports whether an array still views the region."""
        return getrefcount(self.map) > self.held

    def grow(self, size):
        """Makes the region at least size bytes large."""
        if size <= self.size:
            return
        size = max(size, 2 * self.size)
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.fd, size)
        self.map, self.size = mmap.mmap(self.fd, size), size
        self.held = getrefcount(self.map)

    def close(self):
        os.close(self.fd)


def encode_string(s):
    raw = s.encode("utf-8", "surrogateescape") if isinstance(s, str) else bytes(s)
    return U32.pack(len(raw)) + raw


def encode_params(params):
    """Encodes a dict of bool, int, float and str."""
    out = [U16.pack(len(params))]
    for key, v in params.items():
        out.append(encode_string(key))
        if isinstance(v, bool):
            out.append(b"\0" + struct.pack("<q", v))
        elif isinstance(v, int):
            out.append(b"\1" + struct.pack("<q", v) if v < 1 << 63 else b"\2" + struct.pack("<Q", v))
        elif isinstance(v, float):
            out.append(b"\3" + struct.pack("<d", v))
        else:
            out.append(b"\4" + encode_string(str(v)))
    return b"".join(out)


class Reader:
    """Reads an extra."""

    def __init__(self, body, at):
        self.body, self.at = body, at

    def take(self, form):
        v = struct.unpack_from(form, self.body, self.at)[0]
        self.at += struct.calcsize(form)
        return v

    def string(self):
        n = self.take("<I")
        raw = bytes(self.body[self.at:self.at + n])
        self.at += n
        return raw.decode("utf-8", "surrogateescape")

    def strings(self):
        return [self.string() for _ in range(self.take("<H"))]

    def params(self):
        out = {}
        for _ in range(self.take("<H")):
            key, kind = self.string(), self.take("<B")
            if kind == 4:
                out[key] = self.string()
            else:
                v = self.take(("<q", "<q", "<Q", "<d")[kind])
                out[key] = bool(v) if kind == 0 else v
        return out


def padded(b):
    return b + b"\0" * (-len(b) % 8)


def view(memory, number, dims, offset, size):
    """Returns an array over memory; BYTES become objects, which are copies."""
    if number == BYTES:
        return parse_bytes(memory[offset:offset + size], dims)
    dtype = TYPES[number]
    return np.frombuffer(memory, dtype, size // dtype.itemsize, offset).reshape(dims)


def parse_bytes(raw, dims):
    """Returns an array of bytes objects out of the wire's layout."""
    out, at, end = [], 0, len(raw)
    while at < end:
        n = U32.unpack_from(raw, at)[0]
        at += 4 + n
        out.append(bytes(raw[at - n:at]))
    array = np.empty(len(out), dtype=np.object_)
    array[:] = out
    return array.reshape(dims)


def format_bytes(array):
    """Returns the wire's layout of an array of bytes or strings."""
    out = []
    for v in array.reshape(-1).tolist():
        raw = v if isinstance(v, bytes) else str(v).encode("utf-8")
        out.append(U32.pack(len(raw)))
        out.append(raw)
    return b"".join(out)


def raw_of(number, array):
    """Returns an array whose elements are what travels: the numbers, or the bytes of BYTES."""
    if number == BYTES:
        return np.frombuffer(format_bytes(array), np.uint8)
    return array


def store(memory, at, array):
    """Copies an array's elements into memory, in C's order."""
    if array.flags.c_contiguous:
        memory[at:at + array.nbytes] = array
    else:
        np.copyto(np.ndarray(array.shape, array.dtype, memory, at), array)


class Body:
    """The body of a packet: bytes, and the elements of arrays behind them, each at its place. It is put together where it travels,
    so that a large array is copied once."""

    __slots__ = ("head", "arrays", "size")

    def __init__(self, head, arrays, size):
        self.head, self.arrays, self.size = head, arrays, size

    def __len__(self):
        return self.size

    def after(self, prefix):
        """Returns the body with more bytes before it."""
        n = len(prefix)
        return Body(prefix + self.head, [(at + n, array) for at, array in self.arrays], self.size + n)

    def __bytes__(self):
        parts, size = [self.head], len(self.head)
        for at, array in self.arrays:
            parts.append(b"\0" * (at - size))
            parts.append(array.tobytes())
            size = at + array.nbytes
        return b"".join(parts)

    def write(self, memory):
        """Writes the body to the beginning of memory that holds zeros."""
        memory[:len(self.head)] = self.head
        for at, array in self.arrays:
            if array.nbytes:
                store(memory, at, array)


def encode_answer(tensors, names, state=ANSWERED, code=0, text="", params=None):
    """Returns an answer with its tensors' elements behind it, for the side. tensors are (number, dims, raw), all named."""
    return _encode(ANSWER.size, lambda n: ANSWER.pack(state, code, len(tensors), n), tensors,
                   answer_extra(text, params, names))


def answer_extra(text="", params=None, names=()):
    if not text and not params and not names:
        return b""
    return padded(encode_string(text) + encode_params(params or {}) + b"".join(map(encode_string, names)))


def encode_request(model, version, tensors, names, outputs=(), ident="", correlation=0, priority=0, timeout=0, flags=0,
                   params=None, began=0):
    """Returns a CALL. tensors are (number, dims, raw), began is when the model made it, by time.perf_counter."""
    text = correlation if isinstance(correlation, str) else ""
    if text:
        correlation, flags = 0, flags | 4
    extra = padded(b"".join([
        encode_string(ident), encode_string(text), encode_params(params or {}), encode_string(model), struct.pack("<q", version),
        *map(encode_string, names), U16.pack(len(outputs)), *map(encode_string, outputs)]))
    passed = min(int((time.perf_counter() - began) * 1e6) + 1, 0xFFFFFFFF)
    return _encode(REQUEST.size, lambda n: REQUEST.pack(correlation, priority, timeout, flags, len(tensors), 0, n, passed), tensors, extra)


def _encode(head, pack, tensors, extra):
    at = head + sum(TENSOR.size + 8 * len(dims) for _, dims, _ in tensors) + len(extra)
    parts, arrays, size = [pack(len(extra))], [], at
    for number, dims, raw in tensors:
        at = -(-at // ALIGN) * ALIGN
        parts.append(TENSOR.pack(NAMED, number, len(dims), 0, at, raw.nbytes) + DIMS[len(dims)].pack(*dims))
        arrays.append((at, raw))
        at = size = at + raw.nbytes
    parts.append(extra)
    return Body(b"".join(parts), arrays, size)


def decode_answer(body, at=0):
    """Returns state, code, text, parameters and [(name or index, number, array)] of an answer in body."""
    state, code, count, extra = ANSWER.unpack_from(body, at)
    at += ANSWER.size
    found = []
    for _ in range(count):
        index, number, rank, _, offset, size = TENSOR.unpack_from(body, at)
        at += TENSOR.size
        found.append((index, number, DIMS[rank].unpack_from(body, at), offset, size))
        at += 8 * rank
    text, params, reader = "", {}, Reader(body, at)
    if extra:
        text, params = reader.string(), reader.params()
    tensors = []
    for index, number, dims, offset, size in found:
        name = reader.string() if index == NAMED else index
        tensors.append((name, number, view(body, number, dims, offset, size)))
    return state, code, text, params, tensors
