"""A classifier of images in the formats of frameworks that are larger than all the rest of this folder's needs.

TorchScript, OpenVINO's IR and TensorFlow's SavedModel are written byte by byte. The output of each is scores() of its image.
"""

import io
import pathlib
import zipfile

import numpy as np

SCORES = np.array([[np.cos(k), np.sin(k), np.cos(2 * k)] for k in range(1000)], np.float32).T.copy()  # of three channels' means


def scores(means):
    """The output of the classifiers below, given the means of their image's channels."""
    return means.astype(np.float32) @ SCORES


TORCHSCRIPT = """class Toy(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  def forward(self: __torch__.Toy,
    input__0: Tensor) -> Tensor:
    m = torch.mean(input__0, [2, 3])
    k = torch.arange(1000, dtype=6, layout=None, device=torch.device("cpu"), pin_memory=False)
    w = torch.stack([torch.cos(k), torch.sin(k), torch.cos(torch.mul(k, 2))], 0)
    return torch.matmul(m, w)
"""


def torchscript(path):
    """A classifier as TorchScript: input__0 FP32 [N,3,H,W] to the scores of 1000 classes."""
    data = b"\x80\x02c__torch__\nToy\nq\x00)\x81}(X\x08\x00\x00\x00trainingq\x01\x89ub."
    files = {"data.pkl": data, "code/__torch__.py": TORCHSCRIPT.encode(), "constants.pkl": b"\x80\x02).", "version": b"3\n", "byteorder": b"little"}
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr("model/" + name, content)
    path.write_bytes(buffer.getvalue())


def openvino(path, name_in, name_out, channels_first=True):
    """A classifier as OpenVINO's IR, model.xml with model.bin: FP32 [1,3,224,224] or [N,224,224,3] to scores."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    axes, image, rows = ([2, 3], (1, 3, 224, 224), 1) if channels_first else ([1, 2], (-1, 224, 224, 3), -1)
    path.with_suffix(".bin").write_bytes(np.array(axes, np.int64).tobytes() + SCORES.tobytes())

    def dims(*sizes):
        return "".join(f"<dim>{n}</dim>" for n in sizes)

    def layer(number, name, kind, data="", inputs=(), output=(), precision="FP32", names=""):
        ports = "".join(f'<port id="{i}" precision="FP32">{dims(*shape)}</port>' for i, shape in enumerate(inputs))
        ports = f"<input>{ports}</input>" if inputs else ""
        if output is not None:
            ports += f'<output><port id="{len(inputs)}" precision="{precision}"{names}>{dims(*output)}</port></output>'
        return f'<layer id="{number}" name="{name}" type="{kind}" version="opset1">{data}{ports}</layer>'

    declared = ",".join("?" if n < 0 else str(n) for n in image)
    product = '<data transpose_a="false" transpose_b="false"/>'
    layers = [
        layer(0, name_in, "Parameter", f'<data shape="{declared}" element_type="f32"/>', output=image, names=f' names="{name_in}"'),
        layer(1, "axes", "Const", '<data element_type="i64" shape="2" offset="0" size="16"/>', output=(2,), precision="I64"),
        layer(2, "means", "ReduceMean", '<data keep_dims="false"/>', inputs=(image, (2,)), output=(rows, 3)),
        layer(3, "weights", "Const", '<data element_type="f32" shape="3,1000" offset="16" size="12000"/>', output=(3, 1000)),
        layer(4, name_out, "MatMul", product, inputs=((rows, 3), (3, 1000)), output=(rows, 1000), names=f' names="{name_out}"'),
        layer(5, name_out + "/result", "Result", inputs=((rows, 1000),), output=None),
    ]
    edges = [(0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 4, 0), (3, 0, 4, 1), (4, 2, 5, 0)]
    wires = "".join(f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in edges)
    path.write_text(f'<?xml version="1.0"?><net name="toy" version="11"><layers>{"".join(layers)}</layers><edges>{wires}</edges></net>')


def field(number, content):
    """A field of a protobuf message: an integer, or bytes, text or another message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def entry(number, key, content):
    """An entry of a map."""
    return field(number, field(1, key) + field(2, content))


FLOAT, INT32 = 1, 3  # TensorFlow's numbers of types


def shape(*sizes):
    return b"".join(field(2, field(1, n)) for n in sizes)


def node(name, op, inputs=(), **attributes):
    """A node of a graph; an attribute is a type, or the bytes of any other value."""
    text = field(1, name) + field(2, op) + b"".join(field(3, i) for i in inputs)
    for key, content in attributes.items():
        text += entry(5, key, field(6, content) if isinstance(content, int) else content)
    return field(1, text)


def const(name, array):
    dtype = FLOAT if array.dtype == np.float32 else INT32
    tensor = field(1, dtype) + field(2, shape(*array.shape)) + field(4, array.tobytes())
    return node(name, "Const", dtype=dtype, value=field(8, tensor))


def savedmodel(folder, name_in, name_out):
    """A classifier as a SavedModel: FP32 [N,224,224,3] to the scores of 1000 classes."""
    false = field(5, 0)
    image, output = shape(-1, 224, 224, 3), shape(-1, 1000)
    graph = node("image", "Placeholder", dtype=FLOAT, shape=field(7, image))
    graph += const("axes", np.array([1, 2], np.int32)) + const("weights", SCORES)
    graph += node("means", "Mean", ["image", "axes"], T=FLOAT, Tidx=INT32, keep_dims=false)
    graph += node("scores", "MatMul", ["means", "weights"], T=FLOAT, transpose_a=false, transpose_b=false)
    graph += field(4, field(1, 1882))  # the version of the format
    port = lambda tensor, dims: field(1, tensor) + field(2, FLOAT) + field(3, dims)  # noqa: E731
    signature = entry(1, name_in, port("image:0", image)) + entry(2, name_out, port("scores:0", output)) + field(3, "tensorflow/serving/predict")
    meta = field(1, field(4, "serve")) + field(2, graph) + entry(5, "serving_default", signature)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(field(1, 1) + field(2, meta))
