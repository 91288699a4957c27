"""The channels in the order blue, green, red, and centred."""

import numpy as np


def preprocess_input(x):
    return np.ascontiguousarray(x[..., ::-1] - np.array([103.939, 116.779, 123.68], np.float32))
