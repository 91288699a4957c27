"""The middle square of an encoded image, as large as a multiple of 32 allows."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


def middle(data):
    image = Image.open(io.BytesIO(data.tobytes()))
    side = min(n // 32 * 32 for n in image.size)
    left, top = (int(round((n - side) / 2)) for n in image.size)
    return np.asarray(image.crop((left, top, left + side, top + side)), np.float32)[None]


class TritonPythonModel:
    def execute(self, requests):
        images = [pb_utils.get_input_tensor_by_name(r, "detection_preprocessing_input").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("detection_preprocessing_output", middle(i))]) for i in images]
