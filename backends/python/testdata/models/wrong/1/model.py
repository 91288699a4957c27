"""Does wrong what it is asked to do wrong."""

import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


def response(name="OUT", values=(1, 2), dtype=np.float32):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.array(values, dtype))])


def failing():
    raise ValueError("the model gave up")


def exiting():
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


def printing():
    print("a line on stdout", flush=True)
    sys.stdout.buffer.write(b"\xff\x00 no text\n" * 3)
    sys.stdout.flush()
    return [response()]


def twice(request):
    request.get_response_sender().send(response(), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return [response()]


def sent(request):
    sender = request.get_response_sender()
    sender.send(response())
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return [None]


def error(what):
    code = getattr(pb_utils.TritonError, what)
    return [pb_utils.InferenceResponse(error=pb_utils.TritonError("an error of kind " + what, code))]


class TritonPythonModel:
    def execute(self, requests):
        request = requests[0]
        what = request.inputs()[0].as_numpy()[0].decode()
        deeds = {
            "raise": failing, "exit": exiting, "sysexit": lambda: sys.exit("leaving"), "print": printing,
            "fine": lambda: [response()], "number": lambda: [response(), response()], "empty": lambda: [],
            "tuple": lambda: (response(),), "none": lambda: None, "object": lambda: ["a response"],
            "name": lambda: [response("OTHER")], "type": lambda: [response(dtype=np.float64)],
            "shape": lambda: [response(values=(1, 2, 3))], "rank": lambda: [response(values=[[1, 2]])],
            "missing": lambda: [pb_utils.InferenceResponse([])], "more": lambda: [more()],
            "complex": lambda: [response(dtype=np.complex64)], "twice": lambda: twice(request), "sent": lambda: sent(request),
            "dropped": lambda: [None],
        }
        return deeds[what]() if what in deeds else error(what)


def more():
    tensors = [pb_utils.Tensor(n, np.zeros(2, np.float32)) for n in ("OUT", "ANOTHER")]
    return pb_utils.InferenceResponse(tensors)
