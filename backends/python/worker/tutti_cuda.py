"""GPU memory in a worker: tensors at GPUs, and the memory that the server shares. The CUDA driver is opened, and a context made, when
the memory of such a tensor is first needed. The contexts are the primary ones, which the frameworks of the process use too."""

import ctypes
import os
import struct
import threading
import weakref

import tutti_wire as wire
from tutti_errors import TritonModelException
from tutti_process import process

ALIGN = 256

# Errors after which a context can do nothing more: only a new process has a working one.
_LASTING = frozenset((46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999))

_NON_BLOCKING = 1
_LAZY_PEER_ACCESS = 1
_BORROW = struct.Struct("<IQ")
_REGION = struct.Struct("<IIQ64s")


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class _Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]


class CudaError(TritonModelException):
    """A failed call of the CUDA driver."""


class Driver:
    """The functions of the CUDA driver that a worker calls."""

    def __init__(self, path):
        try:
            lib = ctypes.CDLL(path)
        except OSError as e:
            raise CudaError("CUDA driver: %s" % e) from None
        size, pointer, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        address = ctypes.c_uint64
        self._lib = lib
        for name, args in (
                ("cuInit", (ctypes.c_uint,)), ("cuDeviceGetCount", (pointer,)), ("cuDeviceGet", (pointer, number)),
                ("cuDeviceGetUuid_v2", (pointer, number)), ("cuDevicePrimaryCtxRetain", (pointer, number)),
                ("cuCtxPushCurrent_v2", (pointer,)), ("cuCtxPopCurrent_v2", (pointer,)), ("cuCtxSynchronize", ()),
                ("cuStreamCreateWithPriority", (pointer, ctypes.c_uint, number)), ("cuStreamSynchronize", (pointer,)),
                ("cuMemcpyAsync", (address, address, size, pointer)),
                ("cuIpcOpenMemHandle_v2", (pointer, _Handle, ctypes.c_uint)), ("cuIpcCloseMemHandle", (address,)),
                ("cuGetErrorName", (number, pointer)), ("cuGetErrorString", (number, pointer))):
            function = getattr(lib, name, None)
            if function is None:
                raise CudaError("CUDA driver %s has no function %s" % (path, name))
            function.argtypes, function.restype = args, number
            setattr(self, name, function)
        self.lost = None  # the text of the error that made a context unusable
        self.call("cuInit", 0)

    def call(self, name, *args, at=""):
        """Calls a function and raises its error."""
        result = getattr(self, name)(*args)
        if result == 0:
            return
        text = "%s%s: %s (%s)" % (name, at, self._text("cuGetErrorString", result), self._text("cuGetErrorName", result))
        if result in _LASTING and self.lost is None:
            self.lost = text
        raise CudaError(text)

    def _text(self, name, result):
        text = ctypes.c_char_p()
        if getattr(self, name)(result, ctypes.byref(text)) != 0 or not text.value:
            return "CUDA error %d" % result
        return text.value.decode("utf-8", "replace")

    def identities(self):
        """Returns the UUIDs of the GPUs that this process sees, in its own order."""
        count, found = ctypes.c_int(), []
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for i in range(count.value):
            device, uuid = ctypes.c_int(), _Uuid()
            self.call("cuDeviceGet", ctypes.byref(device), i)
            self.call("cuDeviceGetUuid_v2", ctypes.byref(uuid), device)
            h = bytes(uuid.bytes).hex()
            found.append("GPU-%s-%s-%s-%s-%s" % (h[:8], h[8:12], h[12:16], h[16:20], h[20:]))
        return found


class Gpu:
    """One GPU: its primary context, and a stream of the worker. ordinal is its number in this process, number in the server; the
    latter is None for a GPU that the server does not use."""

    def __init__(self, driver, ordinal, number):
        self.driver, self.ordinal, self.number = driver, ordinal, number
        self._at = " at device:%d" % (ordinal if number is None else number)
        device, self.context, self.stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(device), ordinal, at=self._at)
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device, at=self._at)
        self.call("cuStreamCreateWithPriority", ctypes.byref(self.stream), _NON_BLOCKING, 0)

    def call(self, name, *args):
        """Calls a function with the context of the GPU, which is the thread's context during the call only."""
        self.driver.call("cuCtxPushCurrent_v2", self.context, at=self._at)
        try:
            self.driver.call(name, *args, at=self._at)
        finally:
            self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def wait(self):
        """Waits for all work of this process on the GPU, in any stream."""
        self.call("cuCtxSynchronize")

    def copy(self, to, source, size):
        """Starts a copy on the worker's stream."""
        self.call("cuMemcpyAsync", to, source, size, self.stream)

    def finish(self):
        """Waits for the worker's stream."""
        self.call("cuStreamSynchronize", self.stream)


class _Gpus:
    """The GPUs of this process."""

    def __init__(self):
        self.lock = threading.RLock()
        self.path, self.identities = "", {}  # of the server: the driver's library, and UUIDs by number
        self.driver, self.numbers = None, {}  # numbers in the server, by ordinal
        self.used = {}  # Gpu, by ordinal
        self.regions = {}  # memory of the server, by id


_gpus = _Gpus()


def configure(path, identities):
    """Sets the driver's library and the server's GPUs, (number, UUID). It opens nothing."""
    _gpus.path, _gpus.identities = path, dict(identities)


def available():
    """Reports whether the server shares GPU memory with this process."""
    return bool(_gpus.identities)


def _driver():
    if process.forks:
        raise TritonModelException("GPU memory cannot be used in a process that the model has forked: CUDA does not support it")
    with _gpus.lock:
        if _gpus.driver is None:
            driver = Driver(_gpus.path)
            number_of = {uuid: number for number, uuid in _gpus.identities.items()}
            _gpus.numbers = {i: number_of.get(uuid) for i, uuid in enumerate(driver.identities())}
            _gpus.driver = driver
        return _gpus.driver


def ordinal_of(number):
    """Returns the ordinal in this process of a GPU of the server. They differ where the model has set CUDA_VISIBLE_DEVICES."""
    _driver()
    for ordinal, known in _gpus.numbers.items():
        if known == number:
            return ordinal
    raise TritonModelException("GPU %d of the server is not visible to this process: CUDA_VISIBLE_DEVICES is '%s'"
                               % (number, os.environ.get("CUDA_VISIBLE_DEVICES", "")))


def gpu_at(ordinal):
    """Returns the GPU with an ordinal, and makes its context in this process if there is none."""
    with _gpus.lock:
        driver = _driver()
        gpu = _gpus.used.get(ordinal)
        if gpu is None:
            gpu = _gpus.used[ordinal] = Gpu(driver, ordinal, _gpus.numbers.get(ordinal))
        return gpu


def lost():
    """Returns the error that made a context of this process unusable, or None."""
    return _gpus.driver.lost if _gpus.driver is not None else None


def probe():
    """Returns lost() after it has asked every context, for errors that other libraries have seen."""
    for gpu in list(_gpus.used.values()):
        try:
            gpu.wait()
        except CudaError:
            pass
    return lost()


class Region:
    """GPU memory of the server. It is mapped when its address is first needed."""

    def __init__(self, ident, number, size, handle):
        self.ident, self.number, self.size, self.handle = ident, number, size, handle
        self.base, self.gpu = None, None
        self.lock = threading.Lock()

    def address(self):
        """Returns the address of the region in this process."""
        with self.lock:
            if self.base is None:
                gpu, base = gpu_at(ordinal_of(self.number)), ctypes.c_uint64()
                gpu.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), _Handle.from_buffer_copy(self.handle), _LAZY_PEER_ACCESS)
                self.base, self.gpu = base.value, gpu
            return self.base

    def wait(self):
        """Waits until this process has no more work on the region."""
        if self.gpu is not None:
            self.gpu.wait()

    def close(self):
        """Unmaps the region. The server frees its memory afterwards."""
        with self.lock:
            if self.base is not None:
                base, self.base = self.base, None
                self.gpu.call("cuIpcCloseMemHandle", base)


def tell(body):
    """Handles GPUREGION."""
    ident, number, size, handle = _REGION.unpack(body)
    _gpus.regions[ident] = Region(ident, number, size, handle)


def drop(ident):
    """Handles GPUDROP."""
    region = _gpus.regions.pop(ident, None)
    try:
        if region is not None:
            region.close()
    except CudaError:
        pass  # the context is unusable, and its mappings end with this process
    process.side.link.send(wire.GPU_DROPPED, ident)


def give(ident):
    """Gives a region back to the server."""
    if process.side is not None and not process.forks:
        process.side.link.send(wire.GPU_GIVE, ident)


class Lease:
    """The use of a region. With notify set, the region goes back to the server when nothing refers to the lease any more."""

    __slots__ = ("region", "notify", "__weakref__")

    def __init__(self, ident, notify):
        self.region, self.notify = _gpus.regions[ident], notify

    def __del__(self):
        if not self.notify:
            return
        try:
            self.region.wait()
        except CudaError:
            pass
        try:
            give(self.region.ident)
        except OSError:
            pass  # the server has exited


class DeviceArray:
    """The memory of a tensor at a GPU: in a region of the server (lease), or that of a framework (gpu)."""

    __slots__ = ("shape", "nbytes", "gpu", "owner", "_at")

    def __init__(self, shape, nbytes, at, owner, gpu=None):
        self.shape, self.nbytes, self._at, self.owner, self.gpu = tuple(shape), nbytes, at, owner, gpu

    def ordinal(self):
        """Returns the ordinal of the GPU in this process."""
        return self.gpu.ordinal if self.gpu is not None else ordinal_of(self.owner.region.number)

    def number(self):
        """Returns the number of the GPU in the server."""
        number = self.owner.region.number if self.gpu is None else self.gpu.number
        if number is None:
            raise TritonModelException("a tensor is on GPU %d of this process, which is none of the server's" % self.gpu.ordinal)
        return number

    def address(self):
        """Returns the address in this process."""
        return self._at if self.gpu is not None else self.owner.region.address() + self._at


class Placed:
    """Where the server finds a tensor: in a region."""

    __slots__ = ("region", "offset", "nbytes")

    def __init__(self, region, offset, nbytes):
        self.region, self.offset, self.nbytes = region, offset, nbytes


def place(arrays):
    """Copies arrays into regions that the server lends, one for each GPU. Returns a Placed for each. The copies are complete, and so is
    all work of this process on those GPUs."""
    by_gpu, placed = {}, {}
    for array in arrays:
        by_gpu.setdefault(array.number(), []).append(array)
    try:
        for number, group in by_gpu.items():
            _place_at(number, group, placed)
    except BaseException:
        for ident in {p.region for p in placed.values()}:
            give(ident)
        raise
    return [placed[id(array)] for array in arrays]


def _place_at(number, group, placed):
    size = sum(-(-array.nbytes // ALIGN) * ALIGN for array in group)
    region = _borrow(number, size)
    placed[id(region)] = Placed(region.ident, 0, 0)
    gpu, to, at = gpu_at(ordinal_of(number)), region.address(), 0
    gpu.wait()
    for array in group:
        gpu.copy(to + at, array.address(), array.nbytes)
        placed[id(array)] = Placed(region.ident, at, array.nbytes)
        at += -(-array.nbytes // ALIGN) * ALIGN
    gpu.finish()


def _borrow(number, size):
    _, body = process.server("GPU memory").call(wire.GPU_BORROW, _BORROW.pack(number, size))
    state, _, text, _, _ = wire.decode_response(body)
    if state == wire.ERROR:
        raise TritonModelException(text)
    return _gpus.regions[wire.U32.unpack_from(body, wire.RESPONSE.size)[0]]


class Inputs:
    """The regions with the inputs of one execution."""

    def __init__(self):
        self.leases = {}

    def array(self, ident, dims, offset, size):
        """Returns an array in a region."""
        lease = self.leases.get(ident)
        if lease is None:
            lease = self.leases[ident] = Lease(ident, False)
        return DeviceArray(dims, size, offset, lease)

    def wait(self):
        """Waits until this process has no more work on the inputs."""
        for lease in self.leases.values():
            lease.region.wait()

    def retained(self):
        """Reports whether the model still refers to an input. If so, every region is given back when that ends."""
        weak = [(ident, weakref.ref(lease)) for ident, lease in self.leases.items()]
        self.leases = {}
        alive = [(ident, ref()) for ident, ref in weak]
        if all(lease is None for _, lease in alive):
            return False
        for ident, lease in alive:
            if lease is None:
                give(ident)
            else:
                lease.notify = True
        return True


class Leased:
    """The body of a REPLY with tensors in regions, and their leases, which end with it when nobody decodes it."""

    __slots__ = ("body", "leases")

    def __init__(self, body):
        self.body = body
        self.leases = {ident: Lease(ident, True) for ident in _regions_of(body)}


def _regions_of(body):
    """Returns the ids of the GPU regions that a response names."""
    _, _, count, _ = wire.RESPONSE.unpack_from(body, 0)
    at, found = wire.RESPONSE.size, set()
    for _ in range(count):
        _, _, rank, region, _, _ = wire.TENSOR.unpack_from(body, at)
        at += wire.TENSOR.size + 8 * rank
        found.add(region)
    return found - {0}
