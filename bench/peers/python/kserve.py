"""KServe v2 JSON, for the servers that do not speak it themselves."""

import numpy as np
import orjson

from asked import MODEL


def tensor(request):
    """The first input of a request as FP32."""
    first = request["inputs"][0]
    return np.array(first["data"], np.float32).reshape(first["shape"])


def texts(request):
    """The first input of a request as a list of sentences."""
    data = request["inputs"][0]["data"]
    return [row[0] for row in data] if data and isinstance(data[0], list) else data


def answer(request, name, array):
    """A response as a dictionary; the array in it is for dumps to write."""
    output = {"name": name, "datatype": "FP32", "shape": array.shape, "data": np.ascontiguousarray(array).ravel()}
    response = {"model_name": MODEL, "model_version": "1", "outputs": [output]}
    if "id" in request:
        response["id"] = request["id"]
    return response


def dumps(response):
    """The response as bytes."""
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)


loads = orjson.loads
