"""Runs the cases of one client against one server.

usage: python run.py --flavour http --variant plain --http HOST:PORT --grpc HOST:PORT
Prints a line of JSON for each case: {"case": NAME, "error": TEXT or null, "skip": TEXT or null}.
"""

import argparse

import harness
import infer_cases  # noqa: F401  each of these adds its cases
import control_cases  # noqa: F401
import stream_cases  # noqa: F401
import wrong_cases  # noqa: F401
import guarded_cases  # noqa: F401
import backend_cases  # noqa: F401
import python_cases  # noqa: F401
import cuda_cases  # noqa: F401


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--flavour", choices=harness.FLAVOURS, required=True)
    p.add_argument("--variant", required=True)
    p.add_argument("--http", required=True)
    p.add_argument("--grpc", required=True)
    p.add_argument("--metrics", default="")
    p.add_argument("--certificates", default="", help="folder with ca.pem, client.pem and client.key")
    p.add_argument("--onnx", action="store_true", help="the example ensemble digits is there, with its runtime")
    p.add_argument("--examples", default="", help="folder of the example ensembles")
    harness.run(p.parse_args())


if __name__ == "__main__":
    main()
