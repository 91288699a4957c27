"""Stands in for NVIDIA's package cuda-python in tests without a GPU.

tritonclient.utils.cuda_shared_memory calls the CUDA runtime through it. NVIDIA's runtime asks the driver for tables that are not
documented, so it does not start on the driver of the tests. These modules have the functions that tritonclient calls, made of calls
of the driver. TUTTI_CUDA_DRIVER names the driver's library.
"""
