"""Arrays on GPUs for test models, as a framework such as CuPy has them: memory of cuMemAlloc, work on streams of its own that is never
waited for unless DLPack asks, and DLPack capsules in both directions. It shares no code with the worker."""

import ctypes
import os
import time

import numpy as np

lib = ctypes.CDLL(os.environ["TUTTI_TEST_CUDA_DRIVER"])
u64, void = ctypes.c_uint64, ctypes.c_void_p
FP32, FP64 = 11, 12
lib.cuMemAlloc_v2.argtypes = (void, ctypes.c_size_t)
lib.cuMemFree_v2.argtypes = (u64,)
lib.cuMemcpyAsync.argtypes = (u64, u64, ctypes.c_size_t, void)
lib.cuMemsetD32Async.argtypes = (u64, ctypes.c_uint, ctypes.c_size_t, void)
lib.cuStreamSynchronize.argtypes = lib.cuCtxSetCurrent.argtypes = (void,)
lib.cuLaunchKernel.argtypes = (void,) + (ctypes.c_uint,) * 7 + (void, void, void)
lib.cuEventRecord.argtypes = (void, void)
lib.cuStreamWaitEvent.argtypes = (void, void, ctypes.c_uint)


def check(result):
    if result != 0:
        raise RuntimeError("CUDA error %d" % result)


class Device:
    """A device with its primary context, one stream and the kernels."""

    def __init__(self, ordinal):
        check(lib.cuInit(0))
        device, self.context, self.stream, self.event = ctypes.c_int(), void(), void(), void()
        check(lib.cuDeviceGet(ctypes.byref(device), ordinal))
        check(lib.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.ordinal = ordinal
        self.enter()
        check(lib.cuStreamCreateWithPriority(ctypes.byref(self.stream), 1, 0))
        check(lib.cuEventCreate(ctypes.byref(self.event), 2))
        module = void()
        check(lib.cuModuleLoadDataEx(ctypes.byref(module), b"", 0, None, None))
        self.cast = void()
        check(lib.cuModuleGetFunction(ctypes.byref(self.cast), module, b"cast"))

    def enter(self):
        check(lib.cuCtxSetCurrent(self.context))

    def convert(self, source, to, n, source_type, to_type):
        """Launches the kernel that converts n elements between data types of Triton."""
        words = [u64(v) for v in (source, to, n, source_type, to_type, 0)]
        params = (void * len(words))(*[ctypes.addressof(w) for w in words])
        self.enter()
        check(lib.cuLaunchKernel(self.cast, (n + 255) // 256, 1, 1, 256, 1, 1, 0, self.stream, params, None))

    def synchronize(self):
        self.enter()
        check(lib.cuStreamSynchronize(self.stream))


_devices = {}


def device(ordinal=0):
    if ordinal not in _devices:
        _devices[ordinal] = Device(ordinal)
    return _devices[ordinal]


class _View(ctypes.Structure):
    _fields_ = [("data", void), ("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", u64)]


class _Managed(ctypes.Structure):
    _fields_ = [("view", _View), ("context", void), ("deleter", void)]


_deleter_type = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (void, ctypes.c_char_p, void)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = void, (ctypes.py_object, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)

exported = {}


@_deleter_type
def _delete(managed):
    exported.pop(ctypes.addressof(managed.contents))


class Array:
    """FP32 elements on a device, without their own waiting."""

    def __init__(self, shape, ordinal=0, address=None, managed=None):
        self.device, self.shape, self.managed = device(ordinal), tuple(shape), managed
        self.n = 1
        for d in self.shape:
            self.n *= d
        self.own = address is None
        self.address = address
        if self.own:
            found = u64()
            self.device.enter()
            if self.n:
                check(lib.cuMemAlloc_v2(ctypes.byref(found), 4 * self.n))
            self.address = found.value

    def __del__(self):
        if self.own and self.address:
            self.device.enter()
            lib.cuMemFree_v2(self.address)
        elif self.managed is not None:
            ctypes.cast(self.managed.deleter, _deleter_type)(ctypes.pointer(self.managed))

    @staticmethod
    def from_numpy(a, ordinal=0):
        a = np.ascontiguousarray(a, np.float32)
        b = Array(a.shape, ordinal)
        b.device.enter()
        check(lib.cuMemcpyAsync(b.address, a.ctypes.data, a.nbytes, b.device.stream))
        b.device.synchronize()
        return b

    @staticmethod
    def full(shape, value, ordinal=0):
        b = Array(shape, ordinal)
        b.device.enter()
        if b.n:
            check(lib.cuMemsetD32Async(b.address, int(np.float32(value).view(np.uint32)), b.n, b.device.stream))
        return b

    @staticmethod
    def from_dlpack(capsule):
        managed = _Managed.from_address(_pointer(capsule, b"dltensor"))
        v = managed.view
        assert v.kind == 2 and (v.code, v.bits, v.lanes) == (2, 32, 1) and not v.strides, "expected FP32 on a GPU"
        _rename(capsule, b"used_dltensor")
        return Array([v.shape[i] for i in range(v.rank)], v.ordinal, (v.data or 0) + v.offset, managed)

    def numpy(self):
        a = np.empty(self.shape, np.float32)
        self.device.enter()
        if self.n:
            check(lib.cuMemcpyAsync(a.ctypes.data, self.address, a.nbytes, self.device.stream))
        self.device.synchronize()
        return a

    def copy(self):
        """Copies through FP64 with two kernels, which changes no value."""
        wide, b = Array(self.shape + (2,), self.device.ordinal), Array(self.shape, self.device.ordinal)
        if self.n:
            self.device.convert(self.address, wide.address, self.n, FP32, FP64)
            self.device.convert(wide.address, b.address, self.n, FP64, FP32)
        b.wide = wide  # until b goes
        return b

    def concatenate(self, other):
        """Returns the elements of both, one after the other."""
        b = Array((self.n + other.n,), self.device.ordinal)
        self.device.enter()
        check(lib.cuMemcpyAsync(b.address, self.address, 4 * self.n, self.device.stream))
        check(lib.cuMemcpyAsync(b.address + 4 * self.n, other.address, 4 * other.n, self.device.stream))
        b.sources = self, other
        return b

    def capsule(self):
        shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        m = _Managed(_View(self.address, 2, self.device.ordinal, len(self.shape), 2, 32, 1, shape, None, 0), None, ctypes.cast(_delete, void))
        exported[ctypes.addressof(m)] = m, shape, self
        return _new(ctypes.addressof(m), b"dltensor", None)

    def __dlpack__(self, stream=None):
        assert stream not in (None, 0), "a consumer on a GPU names its stream"
        self.device.enter()
        check(lib.cuEventRecord(self.device.event, self.device.stream))
        check(lib.cuStreamWaitEvent(stream, self.device.event, 0))
        return self.capsule()

    def __dlpack_device__(self):
        return 2, self.device.ordinal


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.001)
