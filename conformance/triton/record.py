"""Runs one unittest file as Python's main program, and writes a line of JSON for each test method.

usage: python record.py FILE OUT [CLASS.METHOD ...]
The harness starts it as a process of its own for each start of the server: test files read their environment when they are
imported, several have the same names, and one that hangs can be ended. Each line is written as soon as its test has ended,
so the results before a crash or a time-out are kept.
"""

import json
import os
import runpy
import sys
import time
import unittest

PATH, OUT, NAMES = sys.argv[1], sys.argv[2], sys.argv[3:]
Program = unittest.TestProgram


def write(name, result, why, seconds):
    """Appends a line of JSON."""
    test = ".".join(name.split(".")[-2:])
    with open(OUT, "a") as f:
        f.write(json.dumps({"test": test, "result": result, "why": why[:300], "seconds": round(seconds, 2)}) + "\n")


class Result(unittest.TextTestResult):
    """Keeps the first thing that goes wrong in a test. The methods are those of unittest.TestResult."""

    start = None  # of the test that runs

    def startTest(self, test):
        super().startTest(test)
        self.start, self.result, self.why = time.time(), "pass", ""

    def mark(self, result, why):
        """Sets the result, unless one is set."""
        if self.start is not None and self.result == "pass":
            self.result, self.why = result, why

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.mark("fail", repr(error[1]))

    def addError(self, test, error):
        super().addError(test, error)
        self.mark("fail", repr(error[1]))
        if not hasattr(test, "_testMethodName"):  # setUpClass or setUpModule
            write(test.id(), "fail", repr(error[1]), 0)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.mark("fail", repr(error[1]))

    def addSkip(self, test, why):
        super().addSkip(test, why)
        self.mark("skip", why)
        if self.start is None:  # the whole class
            write(test.id(), "skip", why, 0)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.mark("fail", "unexpected success")

    def stopTest(self, test):
        super().stopTest(test)
        write(test.id(), self.result, self.why, time.time() - self.start)


def main(*args, **kwargs):
    """Stands in for unittest.main, which the files call at their end."""
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=2)
    Program(module="__main__", argv=[PATH, *NAMES], testRunner=runner, exit=True)


sys.path.insert(0, os.path.dirname(os.path.abspath(PATH)))
unittest.main = main
sys.argv = [PATH]
runpy.run_path(PATH, run_name="__main__")
