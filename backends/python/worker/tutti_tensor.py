"""Tensors, data types, and the encoding of BYTES tensors."""

import numpy as np

import tutti_dlpack as dlpack
import tutti_wire as wire
from tutti_errors import TritonModelException

BF16 = 14

_numbers = {t: i for i, t in enumerate(wire.TYPES) if t is not None and i != BF16}

TRITON_STRING_TO_NUMPY = {"TYPE_" + wire.NAMES[i]: t.type for t, i in _numbers.items() if i != wire.BYTES}
TRITON_STRING_TO_NUMPY["TYPE_STRING"] = np.object_
TRITON_STRING_TO_NUMPY["TYPE_BOOL"] = bool

_types = {i: t.type for t, i in _numbers.items()}


def triton_to_numpy_type(data_type):
    """Returns the numpy type for the number of a data type, or None."""
    return _types.get(data_type)


def numpy_to_triton_type(data_type):
    """Returns the number of the data type for a numpy type, or None."""
    if data_type is np.bytes_:
        return wire.BYTES
    try:
        return number_of(np.dtype(data_type)) or None
    except TypeError:
        return None


def triton_string_to_numpy(triton_type_string):
    """Returns the numpy type for a data type of config.pbtxt, for example TYPE_FP32."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def number_of(dtype):
    """Returns the number of the data type for a numpy dtype, or 0."""
    number = _numbers.get(dtype)
    if number is None:
        if dtype.kind in "SUOT":
            return wire.BYTES
        return BF16 if dtype.name == "bfloat16" else 0
    return number


class Tensor:
    """A named array with a data type."""

    __slots__ = ("_name", "_array", "_number", "__weakref__")

    def __init__(self, name, array):
        if not isinstance(name, str):
            raise TypeError("Tensor: expected a name of type str, found %s" % type(name).__name__)
        if not isinstance(array, np.ndarray):
            raise TypeError("tensor '%s': expected a numpy.ndarray, found %s" % (name, type(array).__name__))
        if name == "":
            raise TritonModelException("Tensor name cannot be an empty string.")
        number = _numbers.get(array.dtype) or number_of(array.dtype.newbyteorder("="))
        if number == 0:
            raise TritonModelException("tensor '%s': numpy type %s has no data type here" % (name, array.dtype))
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        self._name, self._number = name, number
        self._array = array if number != BF16 else np.ascontiguousarray(array).view(np.uint16)

    def name(self):
        """Returns the name."""
        return self._name

    def as_numpy(self):
        """Returns the array. An input's array is a view of the received memory; the elements of BYTES are of type bytes."""
        if not isinstance(self._array, np.ndarray):
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._number == BF16:
            raise TritonModelException("Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and "
                                       "from_dlpack() instead.")
        return self._array

    def shape(self):
        """Returns the dimensions."""
        return list(self._array.shape)

    def triton_dtype(self):
        """Returns the number of the data type."""
        return self._number

    def is_cpu(self):
        """Reports whether the tensor is in host memory, not on a GPU."""
        return isinstance(self._array, np.ndarray)

    def to_dlpack(self):
        """Returns a DLPack capsule over the same memory. On a GPU the memory is ready for any stream, and valid as long as the capsule, or
        what a framework has made of it, exists."""
        if not isinstance(self._array, np.ndarray):
            return dlpack.export_device(self._number, self._array)
        return dlpack.export(self._number, self._array, self)

    def __dlpack__(self, stream=None, **_):
        return self.to_dlpack()

    def __dlpack_device__(self):
        if not isinstance(self._array, np.ndarray):
            return dlpack.CUDA, self._array.ordinal()
        return dlpack.CPU, 0

    @staticmethod
    def from_dlpack(name, tensor):
        """Returns a tensor over the memory of a DLPack capsule, or of an object with __dlpack__. One on a GPU stays there. The pending work
        of an object with __dlpack__ is waited for; that of a capsule is when the tensor is sent."""
        if name == "":
            raise TritonModelException("Tensor name cannot be an empty string.")
        return new_tensor(name, *reversed(dlpack.take(tensor)))

    def __repr__(self):
        return "Tensor(%r, %s, %s)" % (self._name, wire.NAMES[self._number], self.shape())


def new_tensor(name, array, number):
    """Returns a tensor without checking its arguments."""
    t = Tensor.__new__(Tensor)
    t._name, t._array, t._number = name, array, number
    return t


def serialize_byte_tensor(input_tensor):
    """Encodes an array of bytes or str: 4 bytes of length before each element. Returns () for an empty array, and None for an
    array of another type."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "SO":
        return None
    return wire.format_bytes(input_tensor)


def deserialize_bytes_tensor(encoded_tensor):
    """Decodes the output of serialize_byte_tensor to an array of one dimension."""
    raw, at, found = memoryview(encoded_tensor).cast("B"), 0, []
    while at < len(raw):
        if at + 4 > len(raw):
            raise TritonModelException("Invalid bytes tensor data: incomplete length field")
        size = wire.U32.unpack_from(raw, at)[0]
        at += 4
        if at + size > len(raw):
            raise TritonModelException("Invalid bytes tensor data: string extends beyond buffer")
        found.append(bytes(raw[at:at + size]))
        at += size
    array = np.empty(len(found), dtype=np.object_)
    array[:] = found
    return array
