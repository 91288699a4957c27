"""Exchanges tensor memory with other frameworks through DLPack capsules.

numpy's own capsules support neither BF16 nor read-only memory; these do. The structures are those of DLPack version 0
(DLManagedTensor), which every framework accepts.
"""

import ctypes
import weakref

import numpy as np

import tutti_cuda
import tutti_wire as wire
from tutti_errors import TritonModelException

CPU, CUDA, CUDA_HOST = 1, 2, 3
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6

# DLPack type code and bits, by the number of the data type.
_KINDS = {1: (_BOOL, 8), 2: (_UINT, 8), 3: (_UINT, 16), 4: (_UINT, 32), 5: (_UINT, 64), 6: (_INT, 8), 7: (_INT, 16),
          8: (_INT, 32), 9: (_INT, 64), 10: (_FLOAT, 16), 11: (_FLOAT, 32), 12: (_FLOAT, 64), 14: (_BFLOAT, 16)}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("rank", ctypes.c_int32), ("dtype", _Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("view", _View), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi))
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
# For a capsule in its destructor: no new reference to it may be created, so the address is passed as an integer.
_dying_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_dying_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))

FRESH, USED = b"dltensor", b"used_dltensor"

_exported = {}  # by the address of a _Managed: the _Managed, its shape and the owner of its memory


def _release_exported(managed):
    _exported.pop(ctypes.addressof(managed.contents), None)


def _destroy_capsule(capsule):
    if _dying_valid(capsule, FRESH):  # no framework has consumed it
        _exported.pop(_dying_pointer(capsule, FRESH), None)


_on_return, _on_drop = _Deleter(_release_exported), _Destructor(_destroy_capsule)


def export(number, array, owner):
    """Returns a capsule over the memory of array, whose data type has that number. The capsule keeps owner alive."""
    if number == wire.BYTES:
        raise TritonModelException("DLPack does not have support for string tensors.")
    array = np.ascontiguousarray(array).reshape(array.shape)
    return _export(number, array.ctypes.data, _Device(CPU, 0), array.shape, (array, owner))


def export_device(number, array):
    """Returns a capsule over the memory of a tutti_cuda.DeviceArray, whose owner it keeps alive."""
    return _export(number, array.address(), _Device(CUDA, array.ordinal()), array.shape, array)


def _export(number, address, device, dims, owner):
    shape = (ctypes.c_int64 * max(len(dims), 1))(*dims)
    managed = _Managed()
    v = managed.view
    v.data, v.device, v.rank = address, device, len(dims)
    v.dtype = _Type(*_KINDS[number], 1)
    v.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _on_return
    at = ctypes.addressof(managed)
    _exported[at] = managed, shape, owner
    return _new(at, FRESH, _on_drop)


class _Owner:
    """Keeps memory of another framework alive. Its deleter runs when nothing refers to this object any more."""


def _release_imported(managed):
    if managed.deleter:
        managed.deleter(ctypes.pointer(managed))


def take(source):
    """Consumes a capsule, or an object with __dlpack__. Returns the number of the data type and an array over its memory, a
    tutti_cuda.DeviceArray if that is on a GPU."""
    if type(source).__name__ != "PyCapsule":
        source = _capsule(source)
    if not _valid(source, FRESH):
        raise TritonModelException("expected a DLPack capsule named 'dltensor' that nobody has taken yet")
    managed = _Managed.from_address(_pointer(source, FRESH))
    v = managed.view
    number, shape = _check(v)
    _rename(source, USED)
    owner = _Owner()
    weakref.finalize(owner, _release_imported, managed)
    if v.device.kind == CUDA:
        return number, _device_array(owner, v, number, shape)
    return number, _array(owner, v, number, shape)


def _capsule(source):
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TritonModelException("Provided tensor is not supported. Tensor must be a DLPack capsule or have "
                                   "`__dlpack__` and `__dlpack_device__` attributes")
    kind, ordinal = map(int, source.__dlpack_device__())
    if not _supported(kind):
        raise _no_device(kind)
    if kind != CUDA:
        return source.__dlpack__()
    gpu = tutti_cuda.gpu_at(ordinal)
    capsule = source.__dlpack__(stream=gpu.stream.value)
    gpu.finish()  # the source has made the stream wait for its own work
    return capsule


def _supported(kind):
    return kind in (CPU, CUDA_HOST) or kind == CUDA and tutti_cuda.available()


def _no_device(kind):
    if kind == CUDA:
        return TritonModelException("DLPack capsule passed pointer to memory allocated on GPU device, when GPU is not available")
    return TritonModelException("DLDevice type %d is not support by Python backend." % kind)


def _check(v):
    if not _supported(v.device.kind):
        raise _no_device(v.device.kind)
    number = _NUMBERS.get((v.dtype.code, v.dtype.bits))
    if number is None or v.dtype.lanes != 1:
        raise TritonModelException("DLPack type with code %d, %d bits and %d lanes is not supported"
                                   % (v.dtype.code, v.dtype.bits, v.dtype.lanes))
    shape = tuple(v.shape[i] for i in range(v.rank))
    if v.strides and 0 not in shape:
        want = 1
        for i in reversed(range(v.rank)):
            if shape[i] != 1 and v.strides[i] != want:
                raise TritonModelException("DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in "
                                           "C-Order are supported.")
            want *= shape[i]
    return number, shape


def _device_array(owner, v, number, shape):
    size = wire.TYPES[number].itemsize
    for dim in shape:
        size *= dim
    return tutti_cuda.DeviceArray(shape, size, (v.data or 0) + v.offset, owner, tutti_cuda.gpu_at(v.device.number))


def _array(owner, v, number, shape):
    dtype = wire.TYPES[number]
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    if size == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(v.data + v.offset)
    memory.owner = owner
    return np.frombuffer(memory, dtype).reshape(shape)
