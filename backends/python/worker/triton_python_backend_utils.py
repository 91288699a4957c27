"""The module that model.py imports: the public names of Triton's triton_python_backend_utils."""

from tutti_call import ResponseIterator
from tutti_config import (ModelConfig, get_input_config_by_name, get_output_config_by_name,
                          using_decoupled_model_transaction_policy)
from tutti_errors import TritonError, TritonModelException
from tutti_process import process
from tutti_metrics import Metric, MetricFamily, MetricKind
from tutti_request import (TRITONSERVER_REQUEST_FLAG_SEQUENCE_END, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
                           TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest,
                           InferenceTrace, MemoryType, PreferredMemory, get_input_tensor_by_name)
from tutti_response import InferenceResponse, get_output_tensor_by_name
from tutti_sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceResponseSender
from tutti_service import Logger, LogLevel, is_model_ready, load_model, unload_model
from tutti_tensor import (TRITON_STRING_TO_NUMPY, Tensor, deserialize_bytes_tensor, numpy_to_triton_type,
                          serialize_byte_tensor, triton_string_to_numpy, triton_to_numpy_type)

TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU = MemoryType

# Aliases that models use.
triton_to_np_type = triton_to_numpy_type
np_to_triton_type = numpy_to_triton_type
ResponseSender = InferenceResponseSender


def get_model_dir():
    """Returns the version folder of the model, which contains model.py."""
    return process.folder


__all__ = [name for name in dir() if not name.startswith("_") and name != "process"]
