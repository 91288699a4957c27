"""Serves a graph that oneflow.save wrote, from the folder model/ beside this file, as OneFlow's own serving does: from its job (model.mlir) and its
variables. It works for any such graph, with OneFlow 0.9.0, whose Python package has no function for it.

Inputs are named INPUT_0, INPUT_1 and so on in the order of the graph, outputs OUTPUT_0 and so on. A graph has fixed shapes: it is compiled once for
each number of rows.
"""

import os

import numpy as np
import oneflow as flow
import oneflow._oneflow_internal as internal
import triton_python_backend_utils as pb_utils
from oneflow.core.job import job_pb2
from oneflow.framework import graph_build_util, session_context
from oneflow.framework.tensor_tuple_util import convert_to_tensor_tuple

# OneFlow's data types by number.
DTYPES = {2: flow.float32, 3: flow.float64, 4: flow.int8, 5: flow.int32, 6: flow.int64, 7: flow.uint8}
NUMPY = {2: np.float32, 3: np.float64, 4: np.int8, 5: np.int32, 6: np.int64, 7: np.uint8}

# The most numbers of rows that a graph is compiled for.
MOST = 64


class Saved:
    """A saved graph: its job, and its variables."""

    def __init__(self, folder):
        self.graphs = internal.nn.graph
        self.session = session_context.GetDefaultSession()
        self.session.TryInit()
        self.job = job_pb2.Job()
        self.job.ParseFromString(self.graphs.LoadSerializedJobFromIR(os.path.join(folder, "model.mlir")))
        self.job.job_conf.predict_conf.SetInParent()
        self.variables = {op.name: variable(folder, op) for op in self.job.net.op if op.HasField("variable_conf")}
        self.inputs = [op for op in self.job.net.op if op.HasField("input_conf")]
        self.outputs = [op for op in self.job.net.op if op.HasField("output_conf")]
        self.compiled = {}

    def compile(self, rows):
        """Returns the compiled graph and its output tensors for a number of rows."""
        job = job_pb2.Job()
        job.CopyFrom(self.job)
        job.job_conf.job_name = "%s_%d" % (self.job.job_conf.job_name, rows)
        saved_rows = self.inputs[0].input_conf.blob_conf.shape.dim[0]
        conf = type(job.job_conf)()
        conf.CopyFrom(job.job_conf)
        with graph_build_util.graph_build_context(conf, self.session):
            ident, scope = internal.JobBuildAndInferCtx_GetCurrentJobId(), internal.GetCurrentScope().symbol_id
        inputs, outputs = {}, {}
        for op in job.net.op:
            op.scope_symbol_id = scope  # that of the file is one of the process that wrote it
            for kind, tensors in ("input_conf", inputs), ("output_conf", outputs):
                if op.HasField(kind):
                    blob = getattr(op, kind).blob_conf
                    if blob.shape.dim[0] == saved_rows:
                        blob.shape.dim[0] = rows
                    tensors[op.name] = flow.zeros(*blob.shape.dim, dtype=DTYPES[blob.data_type])
        graph = self.graphs.CNNGraph(job.job_conf.job_name, job.SerializeToString(), ident, self.session._session_ctx)
        found = convert_to_tensor_tuple(list(outputs.values()))
        state = convert_to_tensor_tuple(list(self.variables.values()))
        graph.register_input_op_names_and_tensors(list(inputs), convert_to_tensor_tuple(list(inputs.values())))
        graph.register_output_op_names_and_tensors(list(outputs), found)
        graph.register_variable_op_names_and_tensors(list(self.variables), state)
        graph.complie_and_init_runtime()
        return graph, found, state

    def run(self, arrays):
        """Returns the outputs for arrays that have the same number of rows."""
        rows = len(arrays[0])
        if rows not in self.compiled:
            if len(self.compiled) == MOST:
                self.compiled.clear()
            self.compiled[rows] = self.compile(rows)
        graph, outputs, state = self.compiled[rows]
        self.graphs.RunLazyNNGraph(convert_to_tensor_tuple([flow.tensor(a) for a in arrays]), outputs, state, graph)
        self.graphs.SoftSyncNNGraphBuffers(outputs, graph)
        return [t.numpy() for t in outputs]


def variable(folder, op):
    """Returns the tensor of a variable, which is in a file of its name."""
    conf = op.variable_conf
    shape, path = list(conf.shape.dim), os.path.join(folder, op.name, "out")
    array = np.fromfile(path, NUMPY[conf.data_type])
    if array.size != np.prod(shape, dtype=int):
        raise ValueError("'%s' has %d elements, expected %s of shape %s" % (path, array.size, NUMPY[conf.data_type].__name__, shape))
    return flow.tensor(array.reshape(shape))


class TritonPythonModel:
    def initialize(self, args):
        self.saved = Saved(os.path.join(pb_utils.get_model_dir(), "model"))
        self.check([op.input_conf.blob_conf for op in self.saved.inputs])

    def check(self, blobs):
        """Records the types and shapes of inputs without their rows."""
        self.expected = [(NUMPY[b.data_type], tuple(b.shape.dim[1:])) for b in blobs]

    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, request):
        arrays = []
        for i, (dtype, shape) in enumerate(self.expected):
            array = pb_utils.get_input_tensor_by_name(request, "INPUT_%d" % i).as_numpy()
            if array.dtype != dtype or array.shape[1:] != shape:
                return failed("INPUT_%d: expected %s of shape [rows, %s], found %s of shape %s"
                              % (i, dtype.__name__, ", ".join(map(str, shape)), array.dtype, list(array.shape)))
            arrays.append(array)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT_%d" % i, a) for i, a in enumerate(self.saved.run(arrays))])


def failed(text):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))
