"""Encodes and decodes the packets between a worker and the server. Package python (doc.go) specifies the format."""

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

from tutti_process import process

START, COMPLETE, INIT, REGION, DROP, EXECUTE, READY, FINALIZE, GPU_REGION, GPU_DROP = range(1, 11)
DONE, FAILED = 16, 17
LOG, CALL, SEND, CANCELLED, METRIC, MODEL, ABANDON, CANCEL, JOIN, GPU_BORROW, GPU_GIVE, GPU_DROPPED = range(32, 44)
REPLY = 48

IN_FILE, FINAL, TRUE, RETAINED, NEEDS_REPLY, IN_PLACE, GPU = 1, 2, 4, 8, 16, 32, 64

OK, ERROR, NONE, RESCHEDULE, RAISED, UNEXECUTED = range(6)
NAMED = 65535
BYTES = 13

HEAD = struct.Struct("<HHIQ")
REQUEST = struct.Struct("<QQQIHHII")
TENSOR = struct.Struct("<HBBIQQ")
RESPONSE = struct.Struct("<BBHI")
EXECUTION = struct.Struct("<IIIIQQ")
EXECUTED = struct.Struct("<IIQ")
DIMS = [struct.Struct("<%dq" % n) for n in range(256)]
SHAPED = [struct.Struct("<HBBIQQ%dq" % n) for n in range(65)]  # a TENSOR with its dimensions; numpy has at most 64
U32 = struct.Struct("<I")
U16 = struct.Struct("<H")
REGION_HEAD = struct.Struct("<IIQ")

MAX_BODY = 61440
ALIGN = 64

# Names and numpy types of the data types, by number. BYTES use objects; BF16 uses uint16, because numpy has no such type.
NAMES = [None, "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
         "BYTES", "BF16"]
TYPES = [None] + [np.dtype(t) for t in (np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32,
                                        np.int64, np.float16, np.float32, np.float64, np.object_, np.uint16)]
NUMBERS = {name: i for i, name in enumerate(NAMES) if name}

_SEAL_SHRINK = (1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK


def new_file(size):
    """Creates shared memory that can grow and is sealed against shrinking. Returns its descriptor."""
    fd = os.memfd_create("tutti-worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, *_SEAL_SHRINK)
    return fd


class Link:
    """A socket to the server. One thread receives; any thread may send."""

    def __init__(self, fd):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=fd)
        self.sock.setblocking(True)
        self.buffer = bytearray(65536)
        self.view, self.into = memoryview(self.buffer), [self.buffer]
        self.lock = threading.RLock()  # reentrant: the destructor of a response sender may send while this thread sends

    def receive(self):
        """Returns kind, flags, id, body, and a descriptor or None. The body is valid until the next receive."""
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
        """Sends a packet without locking. Only for a socket on which a single thread sends."""
        size = len(body)
        if size <= MAX_BODY:
            self.sock.send(HEAD.pack(kind, flags, ident, size) + body)
        else:
            self.send(kind, ident, body, flags)

    def send(self, kind, ident, body=b"", flags=0):
        """Sends a packet. body is bytes or a Body. Safe for concurrent use."""
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
        """Sends a packet with a file descriptor."""
        with self.lock:
            self.sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))])


class Side:
    """The side channel: packets that the worker sends on its own initiative, from any thread. A thread receives the replies."""

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
                os._exit(0)  # the server has exited, so results have no receiver
            if kind == READY:
                threading.Thread(target=process.ready, args=(self.link, ident), name="tutti-ready", daemon=True).start()
                continue
            if kind in (GPU_REGION, GPU_DROP):
                self._gpu(kind, ident, body)
                continue
            if kind != REPLY:
                continue
            if not flags & IN_FILE:
                body = bytes(body)
            if flags & GPU:
                body = _cuda().Leased(body)
            take = self.waiting.get(ident)
            if take is not None:
                take(flags, body)
            take = body = None  # a reply that nobody waits for gives its regions back now

    @staticmethod
    def _gpu(kind, ident, body):
        if kind == GPU_REGION:
            _cuda().tell(body)
        else:
            _cuda().drop(ident)

    def join(self):
        """Opens and returns a side channel for this process, which was forked from the owner of this one."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link = self.link
        link.lock = threading.RLock()  # the thread that may hold the old lock does not exist in this process
        link.send_file(HEAD.pack(JOIN, 0, 0, 0), theirs.fileno())
        theirs.close()
        link.sock.close()
        return Side(mine.detach())

    def send(self, kind, body, flags=0):
        """Sends a packet that has no reply."""
        self.link.send(kind, next(self.ids) & 0xFFFFFFFF, body, flags)

    def send_for(self, kind, ident):
        """Sends a packet without a body about an earlier call, for example CANCEL."""
        self.link.send(kind, ident)

    def call(self, kind, body, flags=0):
        """Sends a packet and returns the flags and the body of its only reply."""
        ident, replies = self.start(kind, body, flags)
        try:
            return replies.get()
        finally:
            self.end(ident)

    def start(self, kind, body, flags=0, take=None):
        """Sends a packet with replies and returns its id and a queue. Replies go to take(flags, body), which runs in the thread
        of the side channel, or without take into the queue. The caller must call end."""
        replies = queue.SimpleQueue()
        if take is None:
            def take(flags, body):
                replies.put((flags, body))
        ident = next(self.ids) & 0xFFFFFFFF
        self.waiting[ident] = take
        self.link.send(kind, ident, body, flags | NEEDS_REPLY)
        return ident, replies

    def end(self, ident):
        """Drops further replies of a call."""
        self.waiting.pop(ident, None)


class Region:
    """Memory shared by the worker and the server."""

    def __init__(self, fd, size):
        self.fd = fd
        self._map(size)

    def _map(self, size):
        self.map, self.size = mmap.mmap(self.fd, size), size
        self.address = address(np.frombuffer(self.map, np.uint8))
        self.references = getrefcount(self.map)

    def viewed(self):
        """Reports whether an array still views the region."""
        return getrefcount(self.map) > self.references

    def offset(self, array):
        """Returns the offset of an array in the region. Returns None if the array is elsewhere, or not where a tensor may be."""
        at = address(array) - self.address
        if at < 0 or at + array.nbytes > self.size or at % ALIGN or not array.flags.c_contiguous:
            return None
        return at

    def copy(self, at, source, offset, size):
        """Copies bytes of another region."""
        with memoryview(source.map) as view:
            self.map[at:at + size] = view[offset:offset + size]

    def grow(self, size):
        """Grows the region to at least size bytes."""
        if size <= self.size:
            return
        size = max(size, 2 * self.size)
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.fd, size)
        self._map(size)

    def close(self):
        os.close(self.fd)


def address(array):
    """Returns the address of an array's first element."""
    return array.__array_interface__["data"][0]


def _cuda():
    import tutti_cuda  # on demand: few models use GPUs

    return tutti_cuda


def encode_string(s):
    raw = s.encode("utf-8", "surrogateescape") if isinstance(s, str) else bytes(s)
    return U32.pack(len(raw)) + raw


def encode_params(params):
    """Encodes a dict with values of bool, int, float and str."""
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
    """Decodes the extra part of a request or response."""

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


def aligned(n):
    """Returns the next offset at which a tensor may begin."""
    return -(-n // ALIGN) * ALIGN


def padded(b):
    return b + b"\0" * (-len(b) % 8)


def view(memory, number, dims, offset, size):
    """Returns an array that views memory. For BYTES it is an array of copies."""
    if number == BYTES:
        return parse_bytes(memory[offset:offset + size], dims)
    dtype = TYPES[number]
    return np.frombuffer(memory, dtype, size // dtype.itemsize, offset).reshape(dims)


def parse_bytes(raw, dims):
    """Decodes BYTES to an array of bytes objects."""
    out, at, end = [], 0, len(raw)
    while at < end:
        n = U32.unpack_from(raw, at)[0]
        at += 4 + n
        out.append(bytes(raw[at - n:at]))
    array = np.empty(len(out), dtype=np.object_)
    array[:] = out
    return array.reshape(dims)


def format_bytes(array):
    """Encodes an array of bytes or str as BYTES: 4 bytes of length before each element."""
    out = []
    for v in array.reshape(-1).tolist():
        raw = v if isinstance(v, bytes) else str(v).encode("utf-8")
        out.append(U32.pack(len(raw)))
        out.append(raw)
    return b"".join(out)


def raw_of(number, array):
    """Returns an array with the encoded data: the array itself, or the encoded bytes of BYTES."""
    if number == BYTES:
        return np.frombuffer(format_bytes(array), np.uint8)
    return array


def store(memory, at, array):
    """Copies the elements of an array into memory, in C order."""
    if array.flags.c_contiguous:
        memory[at:at + array.nbytes] = array
    else:
        np.copyto(np.ndarray(array.shape, array.dtype, memory, at), array)


class Body:
    """The body of a packet: bytes, followed by arrays at given offsets. It is assembled in the memory of the packet, so that a
    large array is copied once."""

    __slots__ = ("head", "arrays", "size")

    def __init__(self, head, arrays, size):
        self.head, self.arrays, self.size = head, arrays, size

    def __len__(self):
        return self.size

    def after(self, prefix):
        """Returns the body with a prefix."""
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
        """Writes the body to the start of zeroed memory."""
        memory[:len(self.head)] = self.head
        for at, array in self.arrays:
            if array.nbytes:
                store(memory, at, array)


def raw_tensors(tensors):
    """Returns (number, dims, data) of each tensor of the model, as the functions below take them. Tensors at GPUs are copied to
    regions of the server; their data is a tutti_cuda.Placed."""
    found = [(t._number, t._array.shape, t._array) for t in tensors]
    device = [i for i, (_, _, array) in enumerate(found) if type(array) is not np.ndarray and not isinstance(array, np.ndarray)]
    placed = {}
    if device:
        full = [i for i in device if found[i][2].nbytes]
        placed = dict(zip(full, _cuda().place([found[i][2] for i in full])))
        placed.update((i, np.empty(0, np.uint8)) for i in device if i not in placed)
    return [(number, dims, placed[i] if i in placed else raw_of(number, array)) for i, (number, dims, array) in enumerate(found)]


def encode_response(tensors, names, state=OK, code=0, text="", params=None):
    """Encodes a response followed by the data of its tensors. tensors are (number, dims, data); names has one name for each."""
    return _encode(RESPONSE.size, lambda n: RESPONSE.pack(state, code, len(tensors), n), tensors,
                   response_extra(text, params, names))


def response_extra(text="", params=None, names=()):
    if not text and not params and not names:
        return b""
    return padded(encode_string(text) + encode_params(params or {}) + b"".join(map(encode_string, names)))


def encode_request(model, version, tensors, names, outputs=(), ident="", correlation=0, priority=0, timeout=0, flags=0,
                   params=None, began=0, memory=0):
    """Encodes a CALL. tensors are (number, dims, data); began is the time.perf_counter() at which the model made the call; memory is
    where it wants the outputs: 0 anywhere, 1 on the host, 2 + N on GPU N."""
    text = correlation if isinstance(correlation, str) else ""
    if text:
        correlation, flags = 0, flags | 4
    extra = padded(b"".join([
        encode_string(ident), encode_string(text), encode_params(params or {}), encode_string(model), struct.pack("<q", version),
        *map(encode_string, names), U16.pack(len(outputs)), *map(encode_string, outputs)]))
    passed = min(int((time.perf_counter() - began) * 1e6) + 1, 0xFFFFFFFF)
    return _encode(REQUEST.size, lambda n: REQUEST.pack(correlation, priority, timeout, flags, len(tensors), memory, n, passed), tensors, extra)


def _encode(head, pack, tensors, extra):
    at = head + sum(TENSOR.size + 8 * len(dims) for _, dims, _ in tensors) + len(extra)
    parts, arrays, size = [pack(len(extra))], [], at
    for number, dims, raw in tensors:
        if not isinstance(raw, np.ndarray):
            parts.append(TENSOR.pack(NAMED, number, len(dims), raw.region, raw.offset, raw.nbytes) + DIMS[len(dims)].pack(*dims))
            continue
        at = aligned(at)
        parts.append(TENSOR.pack(NAMED, number, len(dims), 0, at, raw.nbytes) + DIMS[len(dims)].pack(*dims))
        arrays.append((at, raw))
        at = size = at + raw.nbytes
    parts.append(extra)
    return Body(b"".join(parts), arrays, size)


def decode_response(body, at=0):
    """Decodes a response. Returns state, code, text, parameters and [(name or index, number, array)]."""
    leases = None
    if not isinstance(body, (bytes, memoryview)):
        body, leases = body.body, body.leases
    state, code, count, extra = RESPONSE.unpack_from(body, at)
    at += RESPONSE.size
    found = []
    for _ in range(count):
        index, number, rank, region, offset, size = TENSOR.unpack_from(body, at)
        at += TENSOR.size
        found.append((index, number, DIMS[rank].unpack_from(body, at), region, offset, size))
        at += 8 * rank
    text, params, reader = "", {}, Reader(body, at)
    if extra:
        text, params = reader.string(), reader.params()
    tensors = []
    for index, number, dims, region, offset, size in found:
        name = reader.string() if index == NAMED else index
        if region:
            array = _cuda().DeviceArray(dims, size, offset, leases[region])
        else:
            array = view(body, number, dims, offset, size)
        tensors.append((name, number, array))
    return state, code, text, params, tensors
