"""Runs unchanged clients of OpenAI, Cohere, Text Embeddings Inference and MCP against the text example.

usage: python run.py [--json] [--list] [NAME ...]
Prints a line for each client: its version, how many calls it made, and how many of the results are right. Results are compared with those of
the v2 protocol, and with the example's expected.json. NAME is a part of a name. INFINITY names a checkout of Infinity, whose load test then sends its own texts.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))

# Packages that report their use would wait for a network.
os.environ.update(HAYSTACK_TELEMETRY_ENABLED="False", ANONYMIZED_TELEMETRY="False", LANGSMITH_TRACING="false", DO_NOT_TRACK="1")

import clients
import serving


def collect(check, at):
    """Runs a client; an exception is a failed check."""
    done = []
    try:
        for one in check(at):
            done.append(one)
    except Exception as e:  # whatever a client raises
        done.append(clients.Check("call", False, f"{type(e).__name__}: {e}"))
    return done


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--json", action="store_true")
    p.add_argument("--list", action="store_true", help="print the names only")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    wanted = {n: c for n, c in clients.LIST.items() if not args.names or any(part in n for part in args.names)}
    if args.list:
        print("\n".join(wanted))
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tutti-apis-") as folder:
        root = pathlib.Path(folder) / "models"
        shutil.copytree(serving.ROOT / "examples/ensembles/text", root)
        shutil.copytree(HERE / "models", root, dirs_exist_ok=True)
        server = serving.Server(root, ["--mcp=true"])
        try:
            if not args.json:
                print(f"{'client':<40} {'calls':>5} {'right':>5}")
            for name, check in wanted.items():
                done = collect(check, clients.At(server.http))
                wrong = [f"{c.what}: {c.detail}" for c in done if not c.ok]
                failed += bool(wrong)
                package, _, what = name.partition(" ")
                title = name if package == "infinity" else f"{package} {importlib.metadata.version(package)} {what}"
                if args.json:
                    print(json.dumps({"name": name, "title": title, "calls": len(done), "failures": wrong}), flush=True)
                else:
                    print("\n    ".join([f"{title:<40} {len(done):>5} {len(done) - len(wrong):>5}", *wrong]), flush=True)
        finally:
            status = server.stop()
        if status != 0:
            print(f"the server ended with {status}:\n" + "".join(server.log[-20:]), file=sys.stderr)
            return 1
    return 1 if failed and not args.json else 0


if __name__ == "__main__":
    sys.exit(main())
