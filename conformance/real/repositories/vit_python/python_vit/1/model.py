"""A state for each patch of 16 by 16 of an image: the means of its channels, repeated."""

import numpy as np
import triton_python_backend_utils as pb_utils


def states(image):
    rows, columns = (np.arange(224) * n // 224 for n in image.shape[1:3])
    small = image[:, rows][:, :, columns] / np.float32(127.5) - 1
    patches = small.reshape(len(small), 14, 16, 14, 16, 3).mean(axis=(2, 4)).reshape(len(small), 196, 3)
    return np.tile(patches, (1, 1, 256)).astype(np.float32)


class TritonPythonModel:
    def execute(self, requests):
        images = [pb_utils.get_input_tensor_by_name(r, "image").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("last_hidden_state", states(i))]) for i in images]
