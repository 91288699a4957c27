"""Serves published model repositories and sends them the requests of their users.

usage: python run.py [--json] [--list] [NAME ...]
Prints a line for each repository: how many of its models are served, how many requests and clients ran, how many
of the responses are right, and what had to differ. A repository of a backend that does not exist counts as right when its
models are refused for that reason. With --json, a line of JSON each. NAME is a part of a name.

TRITON_TUTORIALS, TRITON_PYTHON_BACKEND, TRITON_CLIENT, TRITON_SERVER, TRITON_DALI_BACKEND and TRITON_FIL_BACKEND name
checkouts: their files are served as they are, and their clients run. Without them the files are our own.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import docs
import examples
import forests
import pipelines
import quick
import tutorials
import unsupported
from repository import Check, Report, examine

LIST = (*tutorials.LIST, *quick.LIST, *unsupported.LIST, *examples.LIST, *docs.LIST, *forests.LIST, *pipelines.LIST)


def examined(kind):
    """Checks a repository in a separate folder."""
    with tempfile.TemporaryDirectory(prefix="tutti-real-") as folder:
        scratch = pathlib.Path(folder) / "scratch"
        scratch.mkdir()
        repository = kind(scratch)
        try:
            return examine(repository, pathlib.Path(folder) / "models")
        except Exception as e:  # whatever is wrong with one, the others run
            report = Report(repository)
            report.checks.append(Check("serving", False, f"{type(e).__name__}: {e}"))
            return report


def line(report):
    right = sum(c.ok for c in report.checks)
    differs = "; ".join(dict.fromkeys(report.differs)) or "nothing"
    if report.refused:
        differs = "refused: " + report.refused
    return f"{report.name:<97} {report.served:>2} of {report.all:<2} {len(report.checks):>5} {right:>5}  {differs}"


def record(report):
    return {
        "name": report.name, "served": report.served, "models": report.all, "requests": len(report.checks),
        "equal": sum(c.ok for c in report.checks), "differs": report.differs, "refused": report.refused, "failures": report.failures(),
    }  # fmt: skip


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--json", action="store_true")
    p.add_argument("--list", action="store_true", help="print the names only")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    wanted = [k for k in LIST if not args.names or any(n in k().name for n in args.names)]
    if args.list:
        print("\n".join(k().name for k in wanted))
        return 0
    failed = 0
    if not args.json:
        print(f"{'repository':<97} {'served':<8} {'sent':>5} {'equal':>5}  what differs")
    for kind in wanted:
        report = examined(kind)
        failed += bool(report.failures())
        print(json.dumps(record(report)) if args.json else line(report), flush=True)
        for text in [] if args.json else report.failures():
            print("    " + text.replace("\n", "\n    "), flush=True)
    if not args.json:
        print(f"{len(wanted) - failed} of {len(wanted)} repositories as expected")
    return 1 if failed and not args.json else 0


if __name__ == "__main__":
    sys.exit(main())
