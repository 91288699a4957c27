"""An encoded image as 224 by 224 pixels, normalized, the channels first."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image

MEAN, STD = (np.array(v, np.float32).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def pixels(data):
    image = Image.open(io.BytesIO(data.tobytes())).resize((224, 224), Image.BILINEAR)
    return (((np.asarray(image, np.float32) / np.float32(255)).transpose(2, 0, 1) - MEAN) / STD)[None]


class TritonPythonModel:
    def execute(self, requests):
        images = [pb_utils.get_input_tensor_by_name(r, "INPUT_0").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT_0", pixels(i))]) for i in images]
