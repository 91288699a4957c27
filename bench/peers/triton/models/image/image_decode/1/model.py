"""Image files become 3 x 224 x 224: Pillow's decoder and bilinear filter, then ImageNet's mean and deviation."""

import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image

SIZE = 224
DEVIATION = np.array([0.229, 0.224, 0.225])
SCALE = (1 / 255 / DEVIATION).astype(np.float32)
SHIFT = (-np.array([0.485, 0.456, 0.406]) / DEVIATION).astype(np.float32)


def pixels(data, out):
    picture = Image.open(io.BytesIO(data)).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    samples = np.asarray(picture)
    for channel in range(3):
        np.multiply(samples[:, :, channel], SCALE[channel], out=out[channel])
        out[channel] += SHIFT[channel]


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()[:, 0]
        out = np.empty((len(files), 3, SIZE, SIZE), np.float32)
        for row, data in enumerate(files):
            pixels(data, out[row])
        return pb_utils.InferenceResponse([pb_utils.Tensor("image", out)])
