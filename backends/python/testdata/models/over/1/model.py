"""Retains or returns its inputs in the way that IN[0] selects, so a test can check that they are not overwritten."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        for array, copy in self.kept:
            found = array if isinstance(array, np.ndarray) else array().as_numpy()
            if not np.array_equal(found, copy):
                raise ValueError("what the model kept has changed")
        del self.kept[:-3]
        return [self.respond(requests, r) for r in requests]

    def respond(self, requests, request):
        array = request.inputs()[0].as_numpy()
        way = int(array[0])
        if way == 1:
            return answer(array)
        if way == 2:
            self.kept.append((array[1:], array[1:].copy()))
        elif way == 3:
            self.kept.append((lambda: request.inputs()[0], array.copy()))
        elif way == 4:
            self.kept.append((lambda: requests[0].inputs()[0], array.copy()))
        elif way == 5:
            tensor = request.inputs()[0]
            self.kept.append((lambda: tensor, array.copy()))
        elif way == 6:
            return answer(array[::-1])
        elif way == 7:
            array += 1
            return answer(array)
        elif way == 9:
            self.kept.append((array, array.copy()))
            return answer(array)
        elif way == 8:
            return answer(np.concatenate([array + 1, array]))
        elif way == 10:
            return answer(array[-(1 << 14):])
        return answer(array + 1)


def answer(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
