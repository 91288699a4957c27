"""The functions of the CUDA runtime that tritonclient calls. As in NVIDIA's module, each returns a tuple: its status, then results."""

import ctypes
import enum
import os

_driver = ctypes.CDLL(os.environ.get("TUTTI_CUDA_DRIVER", "libcuda.so.1"))
_contexts = {}
_current = 0


class cudaError_t(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInvalidDevice = 101
    cudaErrorUnknown = 999

    @classmethod
    def _missing_(cls, value):
        return cls.cudaErrorUnknown


class cudaDeviceAttr(enum.IntEnum):
    cudaDevAttrUnifiedAddressing = 41


class cudaMemcpyKind(enum.IntEnum):
    cudaMemcpyDefault = 4


CUDA_IPC_HANDLE_SIZE = 64


class cudaIpcMemHandle_t:
    def __init__(self):
        self._bytes = (ctypes.c_char * CUDA_IPC_HANDLE_SIZE)()

    @property
    def reserved(self):
        return self._bytes.raw

    def getPtr(self):
        return ctypes.addressof(self._bytes)


class cudaStream_t:
    def __init__(self):
        self._handle, self._device = ctypes.c_void_p(), _current

    def getPtr(self):
        return ctypes.addressof(self._handle)

    def __int__(self):
        return self._handle.value or 0


def _status(result):
    return cudaError_t(result)


def _use(stream=None):
    """Makes the context of the stream's device, or of the current one, the thread's."""
    device = _current if stream is None else stream._device
    result = _driver.cuInit(0)
    if result == 0 and device not in _contexts:
        context = ctypes.c_void_p()
        result = _driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if result == 0:
            _contexts[device] = context
    return result or _driver.cuCtxSetCurrent(_contexts[device])


def _address(p):
    """The address that NVIDIA's module would take: a number, bytes or a ctypes buffer."""
    if isinstance(p, int):
        return p
    if isinstance(p, bytes):
        return ctypes.cast(p, ctypes.c_void_p).value
    return ctypes.addressof(p)


def cudaGetErrorString(error):
    return cudaError_t.cudaSuccess, error.name.encode()


def cudaGetDevice():
    return cudaError_t.cudaSuccess, _current


def cudaSetDevice(device):
    global _current
    count = ctypes.c_int()
    result = _driver.cuInit(0) or _driver.cuDeviceGetCount(ctypes.byref(count))
    if result == 0 and not 0 <= device < count.value:
        return (cudaError_t.cudaErrorInvalidDevice,)
    _current = device
    return (_status(result or _use()),)


def cudaDeviceGetAttribute(attribute, device):
    return cudaError_t.cudaSuccess, int(attribute == cudaDeviceAttr.cudaDevAttrUnifiedAddressing)


def cudaMalloc(size):
    p = ctypes.c_uint64()
    if size < 0:
        raise OverflowError("can't convert negative value to size_t")
    result = _use() or _driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size))
    return _status(result), p.value


def cudaFree(p):
    return (_status(_use() or _driver.cuMemFree_v2(ctypes.c_uint64(p))),)


def cudaIpcGetMemHandle(p):
    handle = cudaIpcMemHandle_t()
    result = _use() or _driver.cuIpcGetMemHandle(ctypes.c_void_p(handle.getPtr()), ctypes.c_uint64(p))
    return _status(result), handle


def cudaStreamCreate():
    stream = cudaStream_t()
    result = _use() or _driver.cuStreamCreateWithPriority(ctypes.c_void_p(stream.getPtr()), 1, 0)
    return _status(result), stream


def cudaStreamSynchronize(stream):
    return (_status(_use(stream) or _driver.cuStreamSynchronize(stream._handle)),)


def cudaStreamDestroy(stream):
    return (_status(_use(stream) or _driver.cuStreamDestroy_v2(stream._handle)),)


def cudaMemcpyAsync(dst, src, size, kind, stream):
    result = _use(stream) or _driver.cuMemcpyAsync(ctypes.c_uint64(_address(dst)), ctypes.c_uint64(_address(src)), ctypes.c_size_t(size), stream._handle)
    return (_status(result),)
