import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
            for i, word in enumerate(text.split()):
                word = word if i == 0 else " " + word
                out = pb_utils.Tensor("OUT", np.array([word.encode()], dtype=np.object_))
                sender.send(pb_utils.InferenceResponse([out, pb_utils.Tensor("COUNT", np.array([1], dtype=np.int64))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
