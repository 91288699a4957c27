"""Answers in the way that the parameter "case" of a request names. Every configuration of the GPU tests uses this file."""

import json
import os
import signal
import sys
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, os.environ["TUTTI_TEST_MINIGPU"])


def gpu():
    import minigpu  # on demand: no context before a case needs one

    return minigpu


class TritonPythonModel:
    def initialize(self, args):
        self.args, self.kept = args, []
        self.case = json.loads(args["model_config"]).get("parameters", {}).get("CASE", {}).get("string_value")

    def execute(self, requests):
        if self.case == "stream":
            return [self.stream(r) for r in requests][:0] or None
        return [self.respond(r) for r in requests]

    def stream(self, request):
        """Sends the input three times from a thread, each time from other memory on the GPU."""

        def send(sender, array):
            for i in range(3):
                out = pb_utils.Tensor.from_dlpack("OUT", array.copy() if i else array)
                sender.send(pb_utils.InferenceResponse([out]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if i == 2 else 0)

        array = self.array(pb_utils.get_input_tensor_by_name(request, "IN"))
        threading.Thread(target=send, args=(request.get_response_sender(), array)).start()

    def respond(self, request):
        case = self.case or json.loads(request.parameters())["case"]
        out = getattr(self, case)(request, pb_utils.get_input_tensor_by_name(request, "IN"))
        return out if isinstance(out, pb_utils.InferenceResponse) else pb_utils.InferenceResponse([out])

    def array(self, t):
        return gpu().Array.from_dlpack(t.to_dlpack()) if not t.is_cpu() else gpu().Array.from_numpy(t.as_numpy())

    def up(self, request, t):
        return pb_utils.Tensor.from_dlpack("OUT", gpu().Array.from_numpy(t.as_numpy(), int(self.args.get("model_instance_device_id", 0))).capsule())

    def second(self, request, t):
        return pb_utils.Tensor.from_dlpack("OUT", gpu().Array.from_numpy(t.as_numpy(), 1))

    def compute(self, request, t):
        """Two kernels that nobody waits for, handed over as an object with __dlpack__."""
        return pb_utils.Tensor.from_dlpack("OUT", self.array(t).copy())

    def capsule(self, request, t):
        """The same as a bare capsule."""
        return pb_utils.Tensor.from_dlpack("OUT", self.array(t).copy().capsule())

    def through(self, request, t):
        """The memory of the input."""
        return pb_utils.Tensor.from_dlpack("OUT", t)

    def renamed(self, request, t):
        return pb_utils.Tensor.from_dlpack("OUT", t.to_dlpack())

    def down(self, request, t):
        return pb_utils.Tensor("OUT", self.array(t).numpy())

    def where(self, request, t):
        kind, device = t.__dlpack_device__()
        return pb_utils.Tensor("OUT", np.array([[t.is_cpu(), kind, device, t.shape()[-1]]], np.float32))

    def numpy(self, request, t):
        t.as_numpy()

    def ignore(self, request, t):
        """Reports whether the process has opened the driver."""
        with open("/proc/self/maps") as maps:
            return pb_utils.Tensor("OUT", np.array([["libcuda" in maps.read()]], np.float32))

    def args_of(self, request, t):
        kind = {"CPU": 0, "GPU": 1}[self.args["model_instance_kind"]]
        return pb_utils.Tensor("OUT", np.array([[kind, int(self.args["model_instance_device_id"])]], np.float32))

    def keep(self, request, t):
        """Returns what it was given before, which it reads only now, and keeps the input."""
        before = np.concatenate([a.numpy() for a in self.kept], -1) if self.kept else np.zeros((1, 0), np.float32)
        self.kept.append(gpu().Array.from_dlpack(t.to_dlpack()))
        return pb_utils.Tensor("OUT", before)

    def forget(self, request, t):
        self.kept = []
        return pb_utils.Tensor("OUT", np.array([[len(gpu().exported)]], np.float32))

    def empty(self, request, t):
        return pb_utils.Tensor.from_dlpack("OUT", gpu().Array.full((1, 0), 0))

    def raises(self, request, t):
        a = gpu().Array.from_dlpack(t.to_dlpack())
        raise ValueError("no such luck with %d elements" % a.n)

    def mixed(self, request, t):
        """An undeclared output on the GPU beside the declared one on the host."""
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OTHER", self.array(t)), pb_utils.Tensor("OUT", np.array([[5]], np.float32))])

    def die(self, request, t):
        self.array(t)
        os.kill(os.getpid(), signal.SIGKILL)

    def lose(self, request, t):
        """As a kernel with an illegal access: every later call fails."""
        a = self.array(t)
        gpu().lib.tutti_check_set(b"lose", gpu().ctypes.c_longlong(0))
        return pb_utils.Tensor.from_dlpack("OUT", a.capsule())

    def foreign(self, request, t):
        """Sends an array of which the server has no GPU."""
        return pb_utils.Tensor.from_dlpack("OUT", gpu().Array.full((1, 2), 3, 2))

    def fork(self, request, t):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                t.to_dlpack()
                text = "no error"
            except Exception as e:
                text = str(e)
            os.write(write, text.encode())
            os._exit(0)
        text = os.read(read, 1000).decode()
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(text))

    # Calls of other models

    def call(self, request, t, memory=None, case="compute", inputs=None):
        r = pb_utils.InferenceRequest(model_name="callee", inputs=[pb_utils.Tensor.from_dlpack("IN", inputs or self.array(t).copy())],
                                      requested_output_names=["OUT"], preferred_memory=memory, parameters={"case": case}).exec()
        if r.has_error():
            raise pb_utils.TritonModelException(r.error().message())
        out = r.output_tensors()[0]
        return out

    def call_any(self, request, t):
        out = self.call(request, t)
        assert not out.is_cpu(), "the output is on the host"
        return pb_utils.Tensor("OUT", gpu().Array.from_dlpack(out.to_dlpack()).numpy())

    def call_host(self, request, t):
        out = self.call(request, t, pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU))
        assert out.is_cpu(), "the output is on a GPU"
        return pb_utils.Tensor("OUT", out.as_numpy().copy())

    def call_second(self, request, t):
        out = self.call(request, t, pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 1), case="down")
        assert out.__dlpack_device__() == (2, 1), out.__dlpack_device__()
        return pb_utils.Tensor("OUT", gpu().Array.from_dlpack(out.to_dlpack()).numpy())

    def call_wrong(self, request, t):
        return self.call(request, t, pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 9))

    def call_many(self, request, t):
        for i in range(30):
            out = self.call(request, t)
            assert gpu().Array.from_dlpack(out.to_dlpack()).numpy().tolist() == self.array(t).numpy().tolist()
        return pb_utils.Tensor("OUT", np.array([[30]], np.float32))
