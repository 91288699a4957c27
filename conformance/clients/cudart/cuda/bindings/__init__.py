"""The package of cuda-python 12 and later."""
