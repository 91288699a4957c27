"""The functions of the CUDA driver that tritonclient calls."""

import enum

from . import runtime


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0


def cuGetErrorString(result):
    return CUresult.CUDA_SUCCESS, result.name.encode()


def cuDeviceGet(device):
    return CUresult.CUDA_SUCCESS, device


def cuDevicePrimaryCtxGetState(device):
    return CUresult.CUDA_SUCCESS, 0, int(device in runtime._contexts)
