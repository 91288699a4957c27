"""The name of cuda.bindings.driver before cuda-python 13, which tritonclient 2.51 imports."""

import sys

from .bindings import driver

sys.modules[__name__] = driver
