"""The name of cuda.bindings.runtime before cuda-python 13, which tritonclient 2.51 imports."""

import sys

from .bindings import runtime

sys.modules[__name__] = runtime
