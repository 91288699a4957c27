"""Hands tensors on by DLPack: of a data type that numpy lacks, and of one that it has."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        source = pb_utils.get_input_tensor_by_name(request, "IN")
        try:
            source.as_numpy()
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("expected that BF16 has no numpy array"))
        except pb_utils.TritonModelException:
            pass
        out = pb_utils.Tensor.from_dlpack("OUT", source.to_dlpack())
        numbers = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "NUMBERS"))
        doubled = pb_utils.Tensor.from_dlpack("DOUBLED", numbers * np.int16(2))
        return pb_utils.InferenceResponse([out, doubled])
